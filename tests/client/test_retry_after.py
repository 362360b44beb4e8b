"""Clients that are asked to stay away do, over real HTTP, at managers and gates alike. The clock is manual: nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web

from tenure import AsyncClient, Client
from tenure.clock import ManualClock
from tenure.control.messages.jobs import Cancel, Done
from tenure.control.messages.wire import Problem, ProblemKind, Reply, Request
from tenure.control.transport import HttpServer
from tenure.errors import NodeUnavailableError
from tenure.jobs.decisions import Outcome

DONE = Done(job_id="j", outcome=Outcome.ACCEPTED, epoch=1)
SHED = Problem(
    kind=ProblemKind.UNAVAILABLE, fact="the gate is stressed", remedy="Wait", retryable=True, retry_after_s=5.0
)
TOO_MANY = Problem(kind=ProblemKind.TOO_MANY, fact="too many requests", retryable=True, retry_after_s=3.0)


class Node:
    """Answers with what it was given, one after the other, and then with the last of it."""

    def __init__(self, *replies: Reply) -> None:
        self._replies, self.asked = list(replies), 0

    async def answer(self, sender: str, request: Request) -> Reply:
        assert isinstance(request, Cancel)
        self.asked += 1
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


@contextmanager
def served(start: Callable[[], Awaitable[tuple[str, Callable[[], Awaitable[None]]]]]) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    ready, over, found = threading.Event(), threading.Event(), list[str]()

    async def main() -> None:
        address, stop = await start()
        found.append(address)
        ready.set()
        await asyncio.to_thread(over.wait)
        await stop()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert ready.wait(180)
        yield found[0]
    finally:
        over.set()
        thread.join(180)


@contextmanager
def node(*replies: Reply) -> Iterator[tuple[str, Node]]:
    one = Node(*replies)

    async def start() -> tuple[str, Callable[[], Awaitable[None]]]:
        server = HttpServer(one.answer)
        return f"127.0.0.1:{await server.start()}", server.stop

    with served(start) as address:
        yield address, one


class Jumping(ManualClock):
    """Whoever sleeps on it is where they wanted to be."""

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    async def async_sleep(self, seconds: float) -> None:
        self.advance(seconds)


def blocking(address: str, clock: ManualClock, patience_s: float = 60.0) -> Done:
    with Client([address], clock=clock, patience_s=patience_s) as client:
        return client.cancel("j")


def awaited(address: str, clock: ManualClock, patience_s: float = 60.0) -> Done:
    async def main() -> Done:
        async with AsyncClient([address], clock=clock, patience_s=patience_s) as client:
            return await client.cancel("j")

    return asyncio.run(main())


@pytest.mark.parametrize("cancel", [blocking, awaited])
def test_a_client_comes_back_when_it_was_asked_to_and_not_before(cancel: Callable[..., Done]) -> None:
    with node(SHED, TOO_MANY, DONE) as (address, one):
        clock = Jumping()
        begun = clock.monotonic()
        assert cancel(address, clock) == DONE
        assert one.asked == 3
        took = clock.monotonic() - begun
        assert took >= 8.0  # 5 s and then 3 s
        assert took <= 8.0 * 1.25 + 2.0 or cancel is awaited  # there the clock runs on while the answer travels


@pytest.mark.parametrize("cancel", [blocking, awaited])
def test_a_client_whose_patience_is_shorter_says_so_and_does_not_hammer(cancel: Callable[..., Done]) -> None:
    with node(SHED) as (address, one):
        with pytest.raises(NodeUnavailableError, match="longer than the patience of 2 s"):
            cancel(address, Jumping(), 2.0)
        assert one.asked == 1


@pytest.mark.parametrize("cancel", [blocking, awaited])
def test_what_stands_before_a_node_may_say_retry_after_too(cancel: Callable[..., Done]) -> None:
    """A load balancer answers in HTML, and in the header says when to come again."""
    asked = 0

    async def balancer(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(status=503, text="<h1>no backend</h1>", headers={"Retry-After": "30"})

    async def start() -> tuple[str, Callable[[], Awaitable[None]]]:
        runner = web.ServerRunner(web.Server(balancer))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"127.0.0.1:{runner.addresses[0][1]}", runner.cleanup

    with served(start) as address:
        with pytest.raises(NodeUnavailableError, match=r"stands before the node answered 503.*left alone for 30 s"):
            cancel(address, Jumping(), 20.0)
        assert asked == 1
