"""How asyncio code calls an engine: `calls = calls_for(engine)`, then `await calls.run(mailbox.send, body, key=key)`.

Engines are synchronous. Their calls run in threads, so that the loop never waits for a disk or a server; a long poll gets a
thread of its own, so that no number of them keeps a short call from running. The memory engine never blocks: its calls run
inline, and its long polls wait on the loop, so that a simulation does the same thing every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from tenure.clock import Clock
from tenure.engines.checks import check_seconds
from tenure.engines.contracts import (
    MAX_WAIT_S,
    Consumer,
    Engine,
    Entry,
    Exchanged,
    Journal,
    Mailbox,
    Message,
    Settlement,
)
from tenure.engines.long_poll import LoopWaiter
from tenure.engines.memory.engine import MemoryEngine
from tenure.engines.memory.journal import MemoryJournal
from tenure.engines.memory.mailbox import MemoryConsumer, MemoryMailbox
from tenure.engines.memory.shared_mailbox import MemoryPolls
from tenure.errors import EngineClosedError, TenureError

ResultT = TypeVar("ResultT")
POLLS = ("receive", "follow", "exchange")
MOST_POLLS = 4_096  # threads are made when needed and used again; this many long polls is a mistake


class Calls(Protocol):
    """One engine call for each `run`, as one request. The simulator brings its own, on which calls travel and get lost."""

    async def run(self, function: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT: ...


def calls_for(engine: Engine) -> Calls:
    """Returns the right way to call this engine from asyncio."""
    own: Calls | None = getattr(engine, "calls", None)
    if own is not None:
        return own
    return InlineCalls(engine.clock) if isinstance(engine, MemoryEngine) else ThreadCalls(engine)


@asynccontextmanager
async def calling(engine: Engine) -> AsyncIterator[Calls]:
    """Yields an engine's calls. It closes the engine at the end of the block, without keeping the loop."""
    calls = calls_for(engine)
    try:
        yield calls
    finally:
        if isinstance(calls, ThreadCalls):
            await calls.close()
        else:
            engine.close()


PollSource = Mailbox[Any, Any] | Consumer[Any, Any] | Journal


def polled(function: Callable[..., Any]) -> PollSource | None:
    """Returns the object that a call may wait on: `mailbox.receive`, `consumer.exchange` and `journal.follow` have one."""
    owner = getattr(function, "__self__", None)
    waits = isinstance(owner, (Mailbox, Consumer, Journal)) and getattr(function, "__name__", "") in POLLS
    return owner if waits else None


class ThreadCalls:
    """Calls in threads. Cancelling does not take back what was asked; what a cancelled receive claims is released."""

    def __init__(self, engine: Engine, *, threads: int = 4) -> None:
        self._engine = engine
        self._short = ThreadPoolExecutor(threads, thread_name_prefix="tenure-engine")
        self._polls = ThreadPoolExecutor(MOST_POLLS, thread_name_prefix="tenure-poll")
        self._closed = False
        self._append_on_loop: Any = getattr(engine, "append_on_loop", None)
        """Appends without a thread where the engine can. Two wake-ups less, and a leader's callers wait for each append."""
        self._append_with: Any = engine.append_with if self._append_on_loop is not None else None

    async def run(self, function: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
        if self._closed:
            raise EngineClosedError(f"the calls to {self._engine.url} were closed", remedy="Open the engine again")
        source = polled(function)
        if source is None:
            if function == self._append_with:
                done: ResultT | None = await self._append_on_loop(*args, **options)
                if done is not None:
                    return done
            return await asyncio.wrap_future(self._short.submit(function, *args, **options))
        future = self._polls.submit(function, *args, **options)
        waiting = asyncio.wrap_future(future)
        try:
            # Shielded: a thread cannot be cancelled, and what it claims after we left must not be stranded.
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            future.add_done_callback(_give_back)
            waiting.add_done_callback(_look_at)  # or asyncio would log that nobody did
            if not future.done():
                self._short.submit(_wake, source)
            raise

    async def close(self) -> None:
        """Close the engine, which ends its long polls, and then the threads."""
        self._closed = True
        await asyncio.wrap_future(self._short.submit(self._engine.close))
        self._short.shutdown(wait=False)
        self._polls.shutdown(wait=False)


def _wake(source: PollSource) -> None:
    try:
        source.wake()
    except TenureError:  # closed meanwhile: then the poll has ended
        return


def _look_at(poll: asyncio.Future[Any]) -> None:
    """Takes note of the error of a poll that nobody waits for any more."""
    if not poll.cancelled():
        poll.exception()


def _give_back(poll: Future[Any]) -> None:
    """Nobody waits for these any more: let another consumer have them at once."""
    if poll.cancelled() or poll.exception() is not None:
        return
    result = poll.result()
    for claimed in result.messages if isinstance(result, Exchanged) else result:
        if isinstance(claimed, Message):
            try:
                claimed.release()
            except TenureError:  # out of reach, or it ran out: then its lease gives it back
                continue


class InlineCalls:
    """Calls to the memory engine, on the loop's own thread. Each lets other tasks run first, as a thread would."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def run(self, function: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
        await asyncio.sleep(0)
        source = polled(function)
        found: Any
        if isinstance(source, MemoryMailbox):
            found = await self._receive(source, function, *args, **options)
        elif isinstance(source, MemoryConsumer):
            found = await self._exchange(source, function, *args, **options)
        elif isinstance(source, MemoryJournal):
            found = await self._follow(source, function, *args, **options)
        else:
            found = function(*args, **options)
        result: ResultT = found
        return result

    async def _receive(
        self,
        mailbox: MemoryMailbox[Any, Any],
        receive: Callable[..., Any],
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        *,
        provisional: bool = False,
    ) -> list[Message[Any, Any]]:
        def look() -> list[Message[Any, Any]]:
            found: list[Message[Any, Any]] = receive(max_messages, visibility_timeout, 0, provisional=provisional)
            return found

        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        return look() or await self._poll(mailbox, wait_time_seconds, look)

    async def _exchange(
        self,
        consumer: MemoryConsumer[Any, Any],
        exchange: Callable[..., Any],
        settlements: Sequence[Settlement[Any, Any]] = (),
        *,
        max_messages: int = 1,
        wait_time_seconds: float = 0,
        **options: Any,
    ) -> Exchanged[Any, Any]:
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        first: Exchanged[Any, Any] = exchange(settlements, max_messages=max_messages, **options)
        if first.messages or not max_messages:
            return first

        def look() -> list[Message[Any, Any]]:
            found: list[Message[Any, Any]] = exchange(max_messages=max_messages, **options).messages
            return found

        return first._replace(messages=await self._poll(consumer, wait_time_seconds, look))

    async def _poll(
        self, handle: MemoryPolls, wait_time_seconds: float, look: Callable[[], list[Message[Any, Any]]]
    ) -> list[Message[Any, Any]]:
        """Waits for a ring and looks, until that finds something. The caller has looked once, and found nothing."""
        deadline = self._clock.boottime() + wait_time_seconds
        found: list[Message[Any, Any]] = []
        while not found and self._clock.boottime() < deadline:
            rung = LoopWaiter()
            waiter = handle.listen(rung.ring, deadline)
            try:
                await rung.wait(self._clock, waiter.until - self._clock.boottime())
                # Rung only because the watch over the timers is its now: it keeps its place in the line. If it left, the
                # next in line would be rung for the same reason, and so on for ever.
                while self._clock.boottime() < waiter.until and handle.waits(waiter):
                    rung.reset()
                    await rung.wait(self._clock, waiter.until - self._clock.boottime())
                if waiter.over:
                    break
                # Looks before it leaves: to leave rings the next in line for what is still ready, which this look may take.
                found = look()
            finally:
                handle.unlisten(waiter)
        return found

    async def _follow(
        self, journal: MemoryJournal, follow: Callable[..., Any], after: int, wait_time_seconds: float
    ) -> list[Entry]:
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        deadline = self._clock.boottime() + wait_time_seconds
        while True:
            found: list[Entry] = follow(after, 0)
            if found or self._clock.boottime() >= deadline:
                return found
            rung = LoopWaiter()
            poll = journal.listen(rung.ring, after)
            try:
                await rung.wait(self._clock, deadline - self._clock.boottime())
            finally:
                goes_on = journal.unlisten(poll)
            if not goes_on:
                return []
