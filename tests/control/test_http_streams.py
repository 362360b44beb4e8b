"""A stream over a real socket: how it looks, how it resumes, and what ends it."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from tests.patience import wait_until

from tenure.control.admission import HttpLimits
from tenure.control.messages.events import EventPage, GetEvents
from tenure.control.messages.operations import Role
from tenure.control.messages.tokens import Token
from tenure.control.streams import StreamItem
from tenure.control.tokens import TokenBook
from tenure.control.transport import HttpServer
from tenure.errors import ConfigurationError, EngineUnavailableError


async def page(sender: str, request: Any) -> EventPage:
    return EventPage(events=(), cursor="7")


def served(
    story: Callable[[int, HttpServer], Any],
    streams: Callable[[GetEvents], AsyncGenerator[list[StreamItem], None]],
    **options: Any,
) -> None:
    async def main() -> None:
        server = HttpServer(page, streams=streams, **options)
        port = await server.start()
        try:
            await asyncio.to_thread(story, port, server)
        finally:
            await server.stop()

    asyncio.run(main())


def get(port: int, path: str, **headers: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return connection, connection.getresponse()


def told(number: int) -> StreamItem:
    return StreamItem("event", str(number), "JobEnded", json.dumps({"type": "JobEnded", "n": number}).encode())


async def three(request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
    after = int(request.after or 0)
    yield [StreamItem("beat", str(after))]
    yield [told(number) for number in range(after + 1, 4)]


def test_a_stream_is_server_sent_events_and_resumes_after_the_last_id() -> None:
    def story(port: int, server: HttpServer) -> None:
        connection, answer = get(port, "/v1/events?after=0")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        text = answer.read().decode()
        assert text.startswith("retry: 500\n\n: beat\nid: 0\n\nid: 1\nevent: JobEnded\ndata: {")
        assert text.count("event: JobEnded") == 3
        connection.close()
        connection, answer = get(port, "/v1/events?after=0", Last_Event_ID="2")
        assert answer.read().decode().count("event: JobEnded") == 1
        connection.close()

    served(story, three)


def test_with_accept_it_is_lines_of_json_or_one_page() -> None:
    def story(port: int, server: HttpServer) -> None:
        connection, answer = get(port, "/v1/events", Accept="application/x-ndjson")
        lines = [json.loads(line) for line in answer.read().splitlines()]
        assert [line["cursor"] for line in lines] == ["0", "1", "2", "3"]
        assert lines[1]["event"] == {"type": "JobEnded", "n": 1}
        connection.close()
        connection, answer = get(port, "/v1/events", Accept="application/json")
        assert json.loads(answer.read()) == {
            "type": "event_page",
            "events": [],
            "cursor": "7",
            "gap": None,
            "progress": [],
        }
        connection.close()

    served(story, three)


@pytest.mark.parametrize(
    ("error", "status"),
    [(ConfigurationError("after is 'x', and is no cursor"), 422), (EngineUnavailableError("the disk is away"), 503)],
)
def test_what_is_wrong_before_the_first_word_has_a_status(error: Exception, status: int) -> None:
    async def broken(request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        if request is not None:
            raise error
        yield []

    def story(port: int, server: HttpServer) -> None:
        connection, answer = get(port, "/v1/events")
        assert answer.status == status
        assert json.loads(answer.read())["type"] == "problem"
        connection.close()

    served(story, broken)


def test_a_listener_that_does_not_read_is_let_go_and_holds_nothing() -> None:
    ended: list[bool] = []

    async def flood(request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        try:
            while True:
                yield [StreamItem("event", "1", "X", b"1" * 100_000)]
        finally:
            ended.append(True)

    def story(port: int, server: HttpServer) -> None:
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: ended)
        wait_until(lambda: server.admission.waiting.inside == 0)
        sock.close()

    served(story, flood, limits=HttpLimits(send_s=0.3))


def test_a_listener_that_leaves_is_noticed() -> None:
    ended: list[bool] = []

    async def silent(request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        try:
            yield [StreamItem("beat", "1")]
            await asyncio.sleep(3_600)
        finally:
            ended.append(True)

    def story(port: int, server: HttpServer) -> None:
        connection, answer = get(port, "/v1/events")
        assert answer.read1(5)
        assert server.admission.waiting.inside == 1
        answer.close()
        connection.close()
        wait_until(lambda: ended)
        wait_until(lambda: server.admission.waiting.inside == 0)

    served(story, silent)


def test_the_stream_of_a_token_that_was_withdrawn_ends() -> None:
    async def beats(request: GetEvents) -> AsyncGenerator[list[StreamItem], None]:
        while True:
            yield [StreamItem("beat", "1")]
            await asyncio.sleep(0.05)

    def story(port: int, server: HttpServer) -> None:
        connection, answer = get(port, "/v1/events", Authorization="Bearer one")
        assert answer.readline()
        server.admission.tokens = TokenBook([token("two")])
        answer.read()
        connection.close()

    served(story, beats, tokens=TokenBook([token("one")]))


def token(text: str) -> Token:
    return Token(name=text, role=Role.CLIENT, sha256=hashlib.sha256(text.encode()).hexdigest())
