"""An event loop whose time is a manual clock's: it never waits, it jumps to whatever is due next.

Unlike the simulator it forbids nothing: threads, files and sockets of the code under test work. Time stands still while a thread of the
kit computes, and goes on once it waits on the clock, ends, or has been silent for `hung_after_s` of real time: then it counts as hung.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

from tenure.clock import Clock, ManualClock, SystemClock
from tenure.errors import SimulationDeadlockError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

HUNG_AFTER_S = 1.0
LOOK_S = 0.02
"""The most that one look at the threads adds to their silence. Looks are a millisecond apart: a longer gap says that the machine gave this process no core, and
then it gave none to the threads, either. Without this bound a busy machine made healthy workflows hang."""


class WatchedThreads:
    """Runs sync workflows in threads, and knows whether one of them computes right now."""

    def __init__(self, clock: ManualClock, hung_after_s: float = HUNG_AFTER_S, *, real: Clock | None = None) -> None:
        self._clock, self._hung_after_s, self._real = clock, hung_after_s, real or SystemClock()
        self._running: dict[int, float] = {}
        """Maps each thread to the real time for which it was seen to compute since it last waited on the clock."""
        self._looked_at = self._real.monotonic()
        self._hung: set[int] = set()
        self._lock = threading.Lock()

    def start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._running.pop(threading.get_ident(), None)
                    self._hung.discard(threading.get_ident())

        thread = threading.Thread(target=run, name="tenure-workflow", daemon=True)
        with self._lock:
            thread.start()
            assert thread.ident is not None
            self._running[thread.ident] = 0.0

    @property
    def busy(self) -> bool:
        """Returns True while a thread neither waits on the clock nor hangs: then no time may pass."""
        with self._lock:
            now = self._real.monotonic()
            passed, self._looked_at = min(LOOK_S, now - self._looked_at), now
            self._running = {ident: silent_s + passed for ident, silent_s in self._running.items()}
            self._hung |= {ident for ident, silent_s in self._running.items() if silent_s > self._hung_after_s}
            return len(self._running) - len(self._hung) > self._clock.waiting

    def nap(self) -> None:
        """Waits for a moment of real time, or until all threads wait on the clock."""
        with self._lock:
            count = len(self._running) - len(self._hung)
        with suppress(TimeoutError):
            self._clock.until_waiting(count, real_seconds=0.001)

    def stood_still(self) -> None:
        """Notes that all threads wait on the clock: what was slow until now did not hang."""
        with self._lock:
            self._running = dict.fromkeys(self._running, 0.0)


class VirtualSelector(selectors.BaseSelector):
    """Lets the clock jump to what is due next, where an event loop would wait."""

    def __init__(self, clock: ManualClock, threads: WatchedThreads) -> None:
        self._real = selectors.DefaultSelector()
        self._clock, self._threads = clock, threads
        self.until = clock.monotonic()
        """Time goes no further; the loop stops there."""
        self.on_idle: Callable[[], None] = lambda: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        while self._threads.busy:
            if events := self._real.select(0):
                return events
            self._threads.nap()
        self._threads.stood_still()
        now = self._clock.monotonic()
        due = min(self._clock.next_due(), float("inf") if timeout is None else now + timeout)
        if due > self.until:
            self._clock.advance(max(0.0, self.until - now))
            self.on_idle()
        else:
            self._clock.advance(max(0.0, due - now))
        return self._real.select(0)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs tasks in a manual clock's time."""

    def __init__(self, clock: ManualClock, threads: WatchedThreads | None = None) -> None:
        self._manual = clock
        self.threads = threads or WatchedThreads(clock)
        self._virtual = VirtualSelector(clock, self.threads)
        self._virtual.on_idle = self.stop
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._manual.monotonic()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Runs the function in a thread that is watched, so that time stands still until it is done."""
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        ended: asyncio.Future[T] = self.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            if ended.done():
                return
            if error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(cast("T", value))

        def work() -> None:
            try:
                value = func(*args)
            except BaseException as error:
                self.call_soon_threadsafe(settle, None, error)
            else:
                self.call_soon_threadsafe(settle, value, None)

        self.threads.start(work)
        return ended

    def pass_time(self, seconds: float) -> None:
        """Run everything that is due in this span, each at its time."""
        self._virtual.until = self._manual.monotonic() + seconds
        self.run_forever()

    def finish(self, task: asyncio.Task[Any], most_s: float) -> Any:
        """Let as much time pass as the task needs. Raises `SimulationDeadlockError` when it needs more."""
        self._virtual.until = self._manual.monotonic() + most_s
        task.add_done_callback(lambda _: self.stop())
        if not task.done():
            self.run_forever()
        if not task.done():
            task.cancel()
            raise SimulationDeadlockError(f"after {most_s:g} s of the clock's time it had not happened")
        return task.result()
