from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.engines import Engine, InMemoryMailbox, MemoryEngine
from tenure.engines.aio import InlineCalls, ThreadCalls, calls_for
from tenure.engines.contracts import Message
from tenure.errors import EngineClosedError, LimitError, MailboxClosedError
from tenure.testing import FakeMailbox

Story = Callable[[], Coroutine[Any, Any, Any]]


def play(story: Story) -> Any:
    return asyncio.run(asyncio.wait_for(story(), 30))


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(f"sqlite:///{tmp_path / 'tenure.db'}") as engine:
        yield engine


def test_the_memory_engine_is_called_inline_and_others_in_threads(sqlite: Engine) -> None:
    async def story() -> None:
        here = threading.get_ident()
        inline, threaded = calls_for(MemoryEngine()), calls_for(sqlite)
        assert await inline.run(threading.get_ident) == here
        assert await threaded.run(threading.get_ident) != here
        assert isinstance(inline, InlineCalls)
        assert isinstance(threaded, ThreadCalls)
        await threaded.close()

    play(story)


def test_an_engine_that_brings_its_own_calls_is_called_by_them() -> None:
    class Own(MemoryEngine):
        calls = object()

    assert calls_for(Own()) is Own.calls


def test_an_inline_call_lets_other_tasks_run() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        mailbox, calls = engine.mailbox("work"), calls_for(engine)
        ran = []

        async def other() -> None:
            ran.append(True)

        task = asyncio.create_task(other())
        await calls.run(mailbox.send, "x")
        assert ran
        await task

    play(story)


def test_a_long_poll_on_memory_waits_on_the_loop_and_is_woken_by_a_send() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        mailbox, calls = engine.mailbox("work"), calls_for(engine)
        polls = [asyncio.create_task(calls.run(mailbox.receive, 1, 60, 20)) for _ in range(50)]
        await asyncio.sleep(0.01)
        assert threading.active_count() < 20  # nobody waits in a thread
        for number in range(50):
            await calls.run(mailbox.send, number)
        got = [message.body for found in await asyncio.gather(*polls) for message in found]
        assert sorted(got) == list(range(50))

    play(story)


def test_a_message_wakes_one_long_poll_on_memory_and_lets_the_others_wait() -> None:
    looks = []

    class CountedMailbox(InMemoryMailbox[Any, Any]):
        def receive(self, *args: Any, **options: Any) -> list[Message[Any, Any]]:
            looks.append(self)
            return super().receive(*args, **options)

    async def story() -> None:
        engine = MemoryEngine()
        mailbox, calls = CountedMailbox("work", engine=engine), calls_for(engine)
        polls = [asyncio.create_task(calls.run(mailbox.receive, 1, 60, 20)) for _ in range(10)]
        await asyncio.sleep(0.01)
        assert len(looks) == 10
        await calls.run(mailbox.send, "x")
        await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.01)
        # The one that took it. Of the others, the first in line watches the new lease from now on, and need not look for that.
        assert len(looks) == 11
        mailbox.wake()
        assert sum(len(found) for found in await asyncio.gather(*polls)) == 1

    play(story)


def test_a_long_poll_on_memory_is_woken_from_another_thread() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        mailbox, calls = engine.mailbox("work"), calls_for(engine)
        poll = asyncio.create_task(calls.run(mailbox.receive, 1, 60, 20))
        await asyncio.sleep(0.01)
        await asyncio.to_thread(mailbox.send, "x")
        assert [message.body for message in await poll] == ["x"]

    play(story)


def test_a_long_poll_on_memory_goes_by_the_engines_clock() -> None:
    async def story() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock)
        mailbox, calls = engine.mailbox("work"), calls_for(engine)
        for wait, delay, expected in ((30, 20, ["x"]), (10, 20, [])):
            mailbox.purge()
            poll = asyncio.create_task(calls.run(mailbox.receive, 1, 60, wait))
            await asyncio.sleep(0.01)
            mailbox.send("x", delay=delay)
            await asyncio.sleep(0.01)
            assert not poll.done()
            for _ in range(30):
                clock.advance(1)
                await asyncio.sleep(0)
            assert [message.body for message in await poll] == expected

    play(story)


@pytest.mark.parametrize("end", ["wake", "close", "engine"])
def test_a_long_poll_on_memory_ends_when_it_is_woken_or_closed(end: str) -> None:
    async def story() -> None:
        engine = MemoryEngine()
        mailbox, journal, calls = engine.mailbox("work"), engine.journal("log"), calls_for(engine)
        poll = asyncio.create_task(calls.run(mailbox.receive, 1, 60, 20))
        follow = asyncio.create_task(calls.run(journal.follow, 0, 20))
        await asyncio.sleep(0.01)
        {"wake": mailbox.wake, "close": mailbox.close, "engine": engine.close}[end]()
        if end != "engine":
            journal.wake()
        assert await poll == []
        assert await follow == []
        if end == "close":
            with pytest.raises(MailboxClosedError):
                await calls.run(mailbox.receive)

    play(story)


def test_a_wake_before_a_long_poll_on_memory_is_not_lost() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        mailbox, journal, calls = engine.mailbox("work"), engine.journal("log"), calls_for(engine)
        mailbox.wake()
        journal.wake()
        assert await calls.run(mailbox.receive, 1, 60, 20) == []
        assert await calls.run(journal.follow, 0, 20) == []

    play(story)


def test_a_cancelled_long_poll_on_memory_claims_nothing() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        mailbox, calls = engine.mailbox("work"), calls_for(engine)
        poll = asyncio.create_task(calls.run(mailbox.receive, 1, 60, 20))
        await asyncio.sleep(0.01)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        mailbox.send("x")
        assert mailbox.depth() == (1, 0, 0)
        assert not mailbox.box.waiters

    play(story)


def test_a_follow_on_memory_waits_on_the_loop() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        journal, calls = engine.journal("log"), calls_for(engine)
        follows = [asyncio.create_task(calls.run(journal.follow, 0, 20)) for _ in range(3)]
        await asyncio.sleep(0.01)
        await calls.run(journal.append, [b"e"], epoch=1, expect=0, append_id="a")
        for follow in follows:
            assert [entry.append_id for entry in await follow] == ["a"]
        assert await calls.run(journal.follow, 1, 0.05) == []

    play(story)


def test_limits_hold_for_inline_polls_too() -> None:
    async def story() -> None:
        engine = MemoryEngine()
        calls = calls_for(engine)
        for call in (
            calls.run(engine.mailbox("work").receive, 1, 60, -1),
            calls.run(engine.journal("log").follow, 0, 50_000),
        ):
            with pytest.raises(LimitError):
                await call

    play(story)


def test_fakes_are_called_inline_with_their_faults() -> None:
    async def story() -> None:
        mailbox = FakeMailbox[Any, Any]()
        calls = InlineCalls(mailbox.clock)
        await calls.run(mailbox.send, "x")
        await calls.run(mailbox.receive, 1, 60, 20)
        assert mailbox.calls["receive"] == 1

    play(story)


def test_any_number_of_long_polls_leaves_room_for_short_calls(sqlite: Engine) -> None:
    async def story() -> None:
        calls = ThreadCalls(sqlite, threads=2)
        mailbox = sqlite.mailbox("work")
        polls = [asyncio.create_task(calls.run(mailbox.receive, 1, 60, 30)) for _ in range(30)]
        await asyncio.sleep(0.3)
        for number in range(30):
            await asyncio.wait_for(calls.run(mailbox.send, number), 10)
        got = [message.body for found in await asyncio.gather(*polls) for message in found]
        assert sorted(got) == list(range(30))
        await calls.close()

    play(story)


def test_what_a_cancelled_poll_claims_is_given_back_at_once(sqlite: Engine) -> None:
    async def story() -> None:
        calls = ThreadCalls(sqlite)
        mailbox = sqlite.mailbox("work")
        for _ in range(5):
            poll = asyncio.create_task(calls.run(mailbox.receive, 1, 60, 30))
            await asyncio.sleep(0.02)
            await calls.run(mailbox.send, "x")
            poll.cancel()  # the thread has claimed it, or is about to, or ends without
            await asyncio.gather(poll, return_exceptions=True)
            other = sqlite.mailbox("work")
            (message,) = await calls.run(other.receive, 1, 60, 20)
            assert message.delivery_count == 1
            await calls.run(message.acknowledge)
        await calls.close()

    play(story)


def test_closing_ends_long_polls_and_refuses_later_calls(sqlite: Engine) -> None:
    async def story() -> None:
        calls = ThreadCalls(sqlite)
        mailbox = sqlite.mailbox("work")
        poll = asyncio.create_task(calls.run(mailbox.receive, 1, 60, 90))
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        await calls.close()
        assert await poll == []
        assert time.monotonic() - begun < 45
        with pytest.raises(EngineClosedError):
            await calls.run(mailbox.depth)

    play(story)


def test_many_who_poll_one_mailbox_stand_still_while_nothing_is_ready() -> None:
    """One keeps watch over the timers for all: handing that on must not go round and round."""

    async def story() -> int:
        clock = ManualClock()
        with MemoryEngine(clock) as engine:
            mailbox = engine.mailbox("m")
            mailbox.send("work")
            (held,) = mailbox.receive(visibility_timeout=30)
            calls, looks = calls_for(engine), 0
            receive = type(mailbox).receive

            class Counting(type(mailbox)):  # type: ignore[misc]
                def receive(self, *args: Any, **options: Any) -> Any:
                    nonlocal looks
                    looks += 1
                    return receive(self, *args, **options)

            mailbox.__class__ = Counting
            polls = [asyncio.create_task(calls.run(mailbox.receive, 1, 30, 60)) for _ in range(4)]
            for _ in range(50):
                await asyncio.sleep(0)
            polls[0].cancel()  # the one that keeps watch
            for _ in range(500):
                await asyncio.sleep(0)
            before = looks
            clock.advance(31)
            for _ in range(50):
                await asyncio.sleep(0)
            assert sum(poll.done() and not poll.cancelled() for poll in polls) == 1
            assert held.delivery_count == 1
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
            return before

    assert asyncio.run(story()) <= 8


def test_the_error_of_a_poll_that_was_cancelled_is_not_logged_as_one_that_nobody_saw(sqlite: Engine) -> None:
    """A manager that stepped down while its engine was silent wrote a stack into its log."""
    unseen: list[Any] = []
    failing = threading.Event()

    class Silent(FakeMailbox[Any, Any]):
        def receive(self, *args: Any, **options: Any) -> Any:
            failing.wait(20)
            raise MailboxClosedError("the engine did not answer")

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        calls = ThreadCalls(sqlite)
        poll = asyncio.create_task(calls.run(Silent().receive, 1, 60, 10))
        await asyncio.sleep(0)
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        failing.set()
        await calls.close()
        while any(thread.name.startswith("tenure-poll") for thread in threading.enumerate()):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        gc.collect()

    play(story)
    assert unseen == []
