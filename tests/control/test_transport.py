"""The control plane over a real socket: what is served, what is refused, and in which words."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable
from typing import Any

import pytest

from tenure.control.caller import Caller, parse_address
from tenure.control.messages.jobs import Cancel, Done, GetJob
from tenure.control.messages.wire import AskLeader, LeaderView, Problem, Redirect
from tenure.control.transport import MAX_REQUEST_BYTES, HttpServer, check_bind
from tenure.errors import ConfigurationError, NodeUnavailableError, PortTakenError
from tenure.jobs import Outcome

JSON = {"Content-Type": "application/json"}


async def node(sender: str, request: Any) -> Any:
    match request:
        case Cancel():
            return Redirect(address="127.0.0.1:9", epoch=7)
        case GetJob():
            return Done(job_id=request.job_id, outcome=Outcome.ACCEPTED, epoch=1)
        case _:
            return LeaderView(leader="m-1@127.0.0.1:9", address="127.0.0.1:9", epoch=7, leads=False, seq=3)


def served(story: Callable[[int], Any], token: str = "") -> None:
    async def main() -> None:
        server = HttpServer(node, token=token)
        port = await server.start()
        try:
            await asyncio.to_thread(story, port)
        finally:
            await server.stop()

    asyncio.run(main())


def post(port: int, path: str, body: bytes = b"{}", headers: dict[str, str] = JSON, method: str = "POST") -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read())
    finally:
        connection.close()


def test_a_request_is_a_path_and_a_json_body_and_the_reply_is_typed() -> None:
    def story(port: int) -> None:
        caller = Caller()
        address = f"127.0.0.1:{port}"
        reply = caller.ask(address, GetJob(job_id="a/b"), 5)
        assert reply == Done(job_id="a/b", outcome=Outcome.ACCEPTED, epoch=1)
        assert isinstance(caller.ask(address, AskLeader(), 5), LeaderView)
        caller.close()
        assert post(port, "/v1/leader")[0] == 200

    served(story)


def test_a_write_that_comes_to_a_standby_is_sent_to_the_leader() -> None:
    def story(port: int) -> None:
        status, headers, body = post(port, "/v1/cancel", b'{"job_id": "j"}')
        assert (status, headers["Location"]) == (307, "http://127.0.0.1:9/v1/cancel")
        assert (body["type"], body["address"], body["epoch"]) == ("redirect", "127.0.0.1:9", 7)

    served(story)


@pytest.mark.parametrize(
    ("path", "body", "headers", "method", "status", "words"),
    [
        ("/v1/nonsense", b"{}", JSON, "POST", 404, "there is no '/v1/nonsense'"),
        ("/elsewhere", b"{}", JSON, "POST", 404, "there is no '/elsewhere'"),
        ("/v1/leader", b"{}", JSON, "DELETE", 405, "DELETE is not for 'leader'"),
        ("/v1/job", b"{", JSON, "POST", 400, "cannot be read"),
        ("/v1/job", b"[]", JSON, "POST", 400, "cannot be read"),
        ("/v1/job", b'{"job_id": 7}', JSON, "POST", 400, "$.job_id"),
        ("/v1/job", b"{}", JSON, "POST", 400, "job_id"),
        ("/v1/leader", b"{}", {"Content-Type": "text/plain"}, "POST", 415, "text/plain"),
        ("/v1/job", b" " * (MAX_REQUEST_BYTES + 1), JSON, "POST", 413, "too large"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_its_reason(
    path: str, body: bytes, headers: dict[str, str], method: str, status: int, words: str
) -> None:
    def story(port: int) -> None:
        got, _, problem = post(port, path, body, headers, method)
        assert (got, problem["type"]) == (status, "problem")
        assert words in problem["fact"]

    served(story)


def test_with_a_token_nobody_else_gets_in() -> None:
    def story(port: int) -> None:
        address = f"127.0.0.1:{port}"
        for token in ("", "wrong", "secre"):
            caller = Caller(token=token)
            reply = caller.ask(address, AskLeader(), 5)
            assert isinstance(reply, Problem)
            assert reply.kind == "forbidden"
            caller.close()
        caller = Caller(token="secret")
        assert isinstance(caller.ask(address, AskLeader(), 5), LeaderView)
        caller.close()

    served(story, token="secret")


def test_other_machines_are_served_only_with_a_token() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_bind(host, "")
    check_bind("0.0.0.0", "secret")
    for host in ("0.0.0.0", "::", "10.1.2.3", "example.org", ""):
        with pytest.raises(ConfigurationError, match="TENURE_TOKEN"):
            check_bind(host, "")


def test_a_taken_port_is_said() -> None:
    async def main() -> None:
        first = HttpServer(node)
        port = await first.start()
        with pytest.raises(PortTakenError, match=str(port)):
            await HttpServer(node, port=port).start()
        await first.stop()

    asyncio.run(main())


def test_nobody_at_an_address_is_an_error_that_may_be_retried() -> None:
    with pytest.raises(NodeUnavailableError, match=r"127\.0\.0\.1:9 did not answer") as caught:
        Caller().ask("127.0.0.1:9", AskLeader(), 5)
    assert caught.value.retryable


def test_a_connection_that_the_node_closed_meanwhile_is_opened_again() -> None:
    async def main() -> None:
        caller = Caller()
        first = HttpServer(node)
        port = await first.start()
        address = f"127.0.0.1:{port}"
        assert isinstance(await asyncio.to_thread(caller.ask, address, AskLeader(), 5), LeaderView)
        await first.stop()
        second = HttpServer(node, port=port)
        await second.start()
        assert isinstance(await asyncio.to_thread(caller.ask, address, AskLeader(), 5), LeaderView)
        await second.stop()
        caller.close()

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "localhost", ":8470", "host:", "host:x", "host:0", "host:70000"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the address of a node"):
        parse_address(text)


def test_an_address_may_be_a_url_or_ipv6() -> None:
    assert parse_address("http://localhost:8470/") == ("localhost", 8470)
    assert parse_address("[::1]:8470") == ("::1", 8470)
