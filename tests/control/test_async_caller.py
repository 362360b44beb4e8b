"""An async caller reads whatever HTTP/1.1 allows, keeps connections, and takes nonsense for no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tenure.control.async_caller import HttpCaller
from tenure.control.messages.wire import AskLeader, LeaderView
from tenure.errors import NodeUnavailableError

VIEW = LeaderView(leader="m@127.0.0.1:1", address="127.0.0.1:1", epoch=3, leads=True, seq=7)
BODY = msgspec.json.encode(VIEW)
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def asked(*answers: bytes, times: int = 1) -> tuple[list[object], int]:
    """Asks a server that sends one of `answers` for each request; returns the replies and the number of connections."""
    left, connections = list(answers), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while left:
                await reader.readuntil(b"\r\n\r\n")
                answer = left.pop(0)
                writer.write(answer)
                await writer.drain()
                if answer is not PLAIN:
                    break
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    caller, replies = HttpCaller(), []
    try:
        for _ in range(times):
            replies.append(await caller.ask(f"127.0.0.1:{port}", AskLeader(), 5.0))
    finally:
        caller.close()
        server.close()
    return replies, connections


def test_a_connection_is_kept_for_the_next_request() -> None:
    assert asyncio.run(asked(PLAIN, PLAIN, PLAIN, times=3)) == ([VIEW] * 3, 1)


def test_a_connection_that_the_node_closes_is_not_used_again() -> None:
    closing = PLAIN.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    assert asyncio.run(asked(closing, closing, times=2)) == ([VIEW] * 2, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n" + BODY[:5] + b"\r\n%x\r\n" % (len(BODY) - 5) + BODY[5:] + b"\r\n0\r\nTrailer: t\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + PLAIN,
        b"HTTP/1.1 200 OK\r\ncontent-length:%d\r\n\r\n" % len(BODY) + BODY,
    ],
    ids=["chunked", "extensions and trailers", "until the end", "informational", "small letters"],
)  # fmt: skip
def test_every_form_of_an_answer_is_read(answer: bytes) -> None:
    assert asyncio.run(asked(answer)) == ([VIEW], 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + BODY[:10],
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}}",
    ],
    ids=["nothing", "no HTTP", "cut off", "two lengths", "negative", "huge head", "bad chunk", "no reply"],
)
def test_nonsense_is_no_answer(answer: bytes) -> None:
    with pytest.raises(NodeUnavailableError):
        asyncio.run(asked(answer))
