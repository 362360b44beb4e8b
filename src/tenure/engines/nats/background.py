"""One event loop in one background thread per process: the client library is asyncio, and engines are called from any thread.

All NATS engines of a process share it; the last one that closes ends it. After a fork the child has its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_LOOK_S = 5.0


async def end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel them until they end.

    Once is not enough: the client library waits with `wait_for`, which in Python 3.11 drops a cancellation that comes in the moment in
    which what it waits for is there, or fails.
    """
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.05)


class _Call(Generic[T]):
    """One coroutine that a thread waits for. Half the cost of `run_coroutine_threadsafe`, which chains two futures."""

    __slots__ = ("answers", "coroutine", "done", "loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.coroutine: Coroutine[Any, Any, T]
        self.done = threading.Lock()
        self.done.acquire()
        self.task: asyncio.Task[T]
        self.answers: list[T] = []

    def start(self) -> None:
        self.task = self.loop.create_task(self.coroutine)
        self.task.add_done_callback(self._finish)

    def cancel(self) -> None:
        self.task.cancel()

    def answer(self, value: T) -> None:
        """Wake the thread with this, now: two turns of the loop sooner than by returning it. What the coroutine ends with is nobody's any more."""
        if not self.answers and not self.task.done():
            self.answers.append(value)
            self.done.release()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if not self.answers:
            self.done.release()
        elif not task.cancelled():
            task.exception()

    def result(self) -> T:
        return self.answers[0] if self.answers else self.task.result()


class Background:
    """The loop and its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pid = os.getpid()
        self.users = 0
        self.thread = threading.Thread(target=self._run, name="tenure-nats", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait for what it gives."""
        call: _Call[T] = _Call(self.loop)
        call.coroutine = coroutine
        return self._wait(call)

    def run_answering(self, work: Callable[[Callable[[T], None]], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine that gets a function with which it answers before it ends, and returns that answer."""
        call: _Call[T] = _Call(self.loop)
        call.coroutine = work(call.answer)
        return self._wait(call)

    def _wait(self, call: _Call[T]) -> T:
        self.loop.call_soon_threadsafe(call.start)
        try:
            while not call.done.acquire(timeout=_LOOK_S):
                if self.loop.is_closed():
                    raise asyncio.CancelledError
        except KeyboardInterrupt:
            self.loop.call_soon_threadsafe(call.cancel)  # an interrupt in this thread: nobody waits for it any more
            raise
        return call.result()

    def soon(self, call: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End the loop, and what still runs on it: whoever waits for that is told so."""
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=2.0)


_lock = threading.Lock()
_shared: Background | None = None


def enter() -> Background:
    """The process's loop, started if need be. Give it back with `leave`."""
    global _shared
    with _lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = Background()
        _shared.users += 1
        return _shared


def leave(background: Background) -> None:
    global _shared
    with _lock:
        background.users -= 1
        if background.users or background.pid != os.getpid():
            return
        if _shared is background:
            _shared = None
    background.stop()


def _forget_after_fork() -> None:
    # The lock may have been held by a thread that the child does not have.
    global _lock, _shared
    _lock, _shared = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_after_fork)
