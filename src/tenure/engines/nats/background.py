"""One event loop in one background thread per process: the client library is asyncio, and engines are called from any thread.

All NATS engines of a process share it; the last one that closes ends it. After a fork the child has its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_LOOK_S = 5.0


class _Call(Generic[T]):
    """One coroutine that a thread waits for. Half the cost of `run_coroutine_threadsafe`, which chains two futures."""

    __slots__ = ("coroutine", "done", "loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self.loop, self.coroutine = loop, coroutine
        self.done = threading.Lock()
        self.done.acquire()
        self.task: asyncio.Task[T]

    def start(self) -> None:
        self.task = self.loop.create_task(self.coroutine)
        self.task.add_done_callback(self._finish)

    def cancel(self) -> None:
        self.task.cancel()

    def _finish(self, _task: asyncio.Task[T]) -> None:
        self.done.release()


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
        call = _Call(self.loop, coroutine)
        self.loop.call_soon_threadsafe(call.start)
        try:
            while not call.done.acquire(timeout=_LOOK_S):
                if self.loop.is_closed():
                    raise asyncio.CancelledError
        except KeyboardInterrupt:
            self.loop.call_soon_threadsafe(call.cancel)  # an interrupt in this thread: nobody waits for it any more
            raise
        return call.task.result()

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
