"""Appends that a leader makes on the thread of its event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis

from tenure.engines import Outgoing
from tenure.engines.aio import ThreadCalls
from tenure.engines.redis import RedisEngine
from tenure.engines.redis.connections import script
from tenure.errors import EngineUnavailableError, SequenceConflictError, StaleEpochError
from tools.servers import FaultProxy

Opened = Callable[..., RedisEngine]
APPEND = "append_with"


def appending(engine: RedisEngine, number: int, event: bytes = b"x") -> Coroutine[Any, Any, Any]:
    """Appends one event, and sends it."""
    sends = [(engine.mailbox("work"), [Outgoing(number)])]
    place = {"epoch": 1, "expect": number, "append_id": f"a{number}"}
    return engine.append_on_loop(engine.journal("log"), [event], **place, sends=sends)


def events(engine: RedisEngine) -> list[bytes]:
    return [event for entry in engine.journal("log").read() for event in entry.events]


def test_it_appends_and_sends_without_a_thread(opened: Opened) -> None:
    engine = opened()
    threads = threading.active_count()

    async def three() -> list[int]:
        calls = ThreadCalls(engine)
        sends = [(engine.mailbox("work"), [Outgoing("x")])]
        journal = engine.journal("log")
        return [
            (
                await calls.run(engine.append_with, journal, [b"x"], epoch=1, expect=n, append_id=f"a{n}", sends=sends)
            ).seq
            for n in range(3)
        ]

    assert asyncio.run(three()) == [1, 2, 3]
    assert threading.active_count() == threads
    assert [message.body for message in engine.mailbox("work").receive(10)] == ["x"] * 3


def test_a_refusal_is_the_same(opened: Opened) -> None:
    engine = opened()
    assert asyncio.run(appending(engine, 0)).seq == 1
    with pytest.raises(SequenceConflictError):
        asyncio.run(appending(engine, 0))
    engine.journal("log").append([b"y"], epoch=2, expect=1, append_id="other")
    with pytest.raises(StaleEpochError):
        asyncio.run(appending(engine, 2))
    assert events(engine) == [b"x", b"y"]


def test_what_might_hold_the_loop_up_is_left_to_a_thread(opened: Opened, valkey_url: str) -> None:
    engine = opened()
    assert asyncio.run(appending(engine, 0, b"x" * 40_000)) is None
    with redis.Redis.from_url(valkey_url) as client:
        client.script_flush()
    assert asyncio.run(appending(engine, 0)) is None
    assert events(engine) == []

    async def through_calls() -> int:
        place = {"epoch": 1, "expect": 0, "append_id": "a"}
        return (await ThreadCalls(engine).run(engine.append_with, engine.journal("log"), [b"x"], **place)).seq

    assert asyncio.run(through_calls()) == 1


def test_an_answer_that_was_lost_is_an_unknown_outcome(through: RedisEngine, proxy: FaultProxy) -> None:
    assert asyncio.run(appending(through, 0)).seq == 1
    proxy.cut_answer(script(APPEND).sha)
    with pytest.raises(EngineUnavailableError):
        asyncio.run(appending(through, 1))
    assert proxy.fired == 1
    assert events(through) == [b"x", b"x"]


def test_a_server_that_is_silent_is_waited_for_as_long_as_in_a_thread(through: RedisEngine, proxy: FaultProxy) -> None:
    assert asyncio.run(appending(through, 0)).seq == 1

    async def silent() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        with pytest.raises(EngineUnavailableError, match="did not answer within 1 s"):
            await appending(through, 1)
        ticking.cancel()
        return ticks

    proxy.partition()
    assert asyncio.run(silent()) > 10  # the loop goes on meanwhile
    proxy.heal()
    assert through.journal("log").head().seq in (1, 2)


def test_one_that_was_cancelled_leaves_no_answer_to_the_next(opened: Opened) -> None:
    engine = opened("&pool=1")
    assert asyncio.run(appending(engine, 0)).seq == 1

    async def hang_up() -> None:
        task = asyncio.create_task(appending(engine, 1))
        await asyncio.sleep(0)  # it has sent its command
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(hang_up())
    assert engine.mailbox("other").send("y")
    assert engine.journal("log").head().seq in (1, 2)
