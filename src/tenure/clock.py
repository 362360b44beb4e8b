"""Clocks: the only file of the package that asks the machine for the time, and that knows time zones.

Three times, because they answer three questions. `monotonic` measures a span inside one process and stands still while
the machine sleeps. `boottime` goes on through suspend, is the same in every process of one boot, and is what leases and
terms are counted in. `wall` is Unix time, may be stepped, and is only for people and for the wire.

Everything that decides is told the time by its caller; what has to wait is given a `Clock`.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from tenure import machine
from tenure.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

# asyncio is imported where it is used: a worker without managers has no event loop in its supervisor, and shall start quickly.


class Clock(ABC):
    """Tells the time and waits for it. Safe to share between threads."""

    blocks = True
    """False where one thread plays everybody, as in a simulation: `sleep` and `wait` are forbidden there, and no other thread is started."""

    @abstractmethod
    def monotonic(self) -> float:
        """Returns the seconds since some point in this process's past. It never goes back."""

    @abstractmethod
    def boottime(self) -> float:
        """Returns the seconds since this machine booted, sleep included. Processes of one boot can compare them."""

    @abstractmethod
    def wall(self) -> float:
        """Unix time. It may be stepped: never measure a span with it."""

    @abstractmethod
    def boot_id(self) -> str:
        """Names this boot: boot times of different boots are not comparable."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Block this thread for a while."""

    @abstractmethod
    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a condition that the caller holds; False when the time ran out first.

        As with any condition, a True answer may be spurious: check the predicate again.
        """

    @abstractmethod
    async def async_sleep(self, seconds: float) -> None:
        """Suspend this task for a while."""

    async def async_wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Suspend this task until the event is set, or for so long; whether it is set."""
        import asyncio

        waiting = asyncio.ensure_future(event.wait())
        napping = asyncio.ensure_future(self.async_sleep(seconds))
        try:
            await asyncio.wait([waiting, napping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            napping.cancel()
        return event.is_set()


# Linux has CLOCK_BOOTTIME (7). Elsewhere CLOCK_MONOTONIC is the nearest thing: macOS counts sleep in it.
# Windows has no clock_gettime: there, monotonic() is the only one.
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
_boottime = time.monotonic if _BOOTTIME is None else partial(time.clock_gettime, _BOOTTIME)


class SystemClock(Clock):
    """The machine's own clock."""

    # The builtins themselves, not wrappers: beats ask for the time in a tight loop.
    monotonic = staticmethod(time.monotonic)
    boottime = staticmethod(_boottime)
    wall = staticmethod(time.time)

    def __init__(self) -> None:
        self._boot_id = ""

    def boot_id(self) -> str:
        if not self._boot_id:
            self._boot_id = _read_boot_id()
        return self._boot_id

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        return condition.wait(timeout)

    async def async_sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(max(0.0, seconds))

    async def async_wait(self, event: asyncio.Event, seconds: float) -> bool:
        return await wait_on_loop(event, seconds)


async def wait_on_loop(event: asyncio.Event, seconds: float) -> bool:
    """`Clock.async_wait` where the running loop's time is the clock's: a timer instead of two tasks."""
    import asyncio

    if event.is_set():
        await asyncio.sleep(0)  # whoever loops lets others run
        return True
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()


def _read_boot_id() -> str:
    # Without the kernel's id, the second in which the machine booted names the boot well enough.
    return machine.here.boot_id() or f"booted-{round(time.time() - _boottime(), -1):.0f}"


class ManualClock(Clock):
    """A clock that moves only when told to, so that a test of hours takes microseconds.

    `advance` wakes sleepers, long polls and tasks whose time has come, in the order in which they are due. Never call
    it while holding a condition that something waits on.
    """

    def __init__(self, start: float = 1_000.0, *, wall: float = 1_700_000_000.0, boot_id: str = "boot-1") -> None:
        self._now = start
        self._wall_offset = wall - start
        self._boot_id = boot_id
        self._lock = threading.Lock()
        self._parked = threading.Condition(self._lock)
        self._sleepers: list[tuple[float, int, Callable[[], None]]] = []
        self._tickets = itertools.count()
        self._waiting = 0

    def monotonic(self) -> float:
        return self._now

    def boottime(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_offset

    def boot_id(self) -> str:
        return self._boot_id

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does; spans are not affected."""
        self._wall_offset += seconds

    def reboot(self, boot_id: str) -> None:
        """Start the boot time anew, under a new boot id; the wall clock goes on."""
        wall = self.wall()
        self._now, self._boot_id = 0.0, boot_id
        self._wall_offset = wall

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at each sleeper on the way, so that what it does next is due in order."""
        if seconds < 0:
            raise ValueError(f"a clock cannot be advanced by {seconds} s; use step_wall for the wall clock")
        with self._lock:
            target = self._now + seconds
        while (wake := self._next_due(target)) is not None:
            wake()
        with self._lock:
            self._now = max(self._now, target)

    def _next_due(self, target: float) -> Callable[[], None] | None:
        with self._lock:
            if not self._sleepers or self._sleepers[0][0] > target:
                return None
            due, _, wake = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            return wake

    def next_due(self) -> float:
        """Returns the monotonic time at which the next sleeper wakes; infinity when nobody sleeps."""
        with self._lock:
            return self._sleepers[0][0] if self._sleepers else float("inf")

    def until_waiting(self, count: int = 1, *, real_seconds: float = 10.0) -> None:
        """Block, in real time, until this many threads wait on this clock: then it is safe to advance."""
        with self._lock:
            if not self._parked.wait_for(lambda: self._waiting >= count, real_seconds):
                raise TimeoutError(f"{self._waiting} threads wait on the clock after {real_seconds} s, not {count}")

    @property
    def waiting(self) -> int:
        """Returns the number of threads that wait on this clock now."""
        return self._waiting

    def sleep(self, seconds: float) -> None:
        condition = threading.Condition()
        deadline = self._now + seconds
        with condition:
            while self._now < deadline:
                self.wait(condition, deadline - self._now)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return False
        rang = False
        counted = [True]

        def ring() -> None:
            nonlocal rang
            with self._lock:
                if not counted:
                    return  # it was notified before its time came
                rang = True
                counted.clear()
                # From here on it runs: whoever asks until_waiting() must not take it for parked.
                self._waiting -= 1
            with condition:
                condition.notify_all()

        with self._lock:
            if timeout is not None:
                self._push(timeout, ring)
            self._waiting += 1
            self._parked.notify_all()
        try:
            condition.wait()
        finally:
            with self._lock:
                self._waiting -= len(counted)
                counted.clear()
        return not rang

    async def async_sleep(self, seconds: float) -> None:
        import asyncio

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def ring() -> None:
            if not woken.done():  # cancelled: then its loop may be closed by now
                loop.call_soon_threadsafe(_resolve, woken)

        with self._lock:
            self._push(seconds, ring)
        await woken

    def _push(self, seconds: float, ring: Callable[[], None]) -> None:
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._tickets), ring))


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():  # the sleeper may have been cancelled
        future.set_result(None)


@lru_cache(maxsize=256)
def zone(name: str) -> Callable[[float], int]:
    """Returns the seconds by which local clocks are ahead of UTC at a Unix time. Raises `ConfigurationError` for an unknown place."""
    from datetime import UTC, datetime  # here, because only schedules need them, and every slot imports this file
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return lambda instant: 0
    try:
        place = ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"zone {name!r} is not known on this machine",
            remedy="Write a name as Europe/Berlin or UTC; where the system has no zones, install the tzdata package",
        ) from error

    def ahead(instant: float) -> int:
        offset = datetime.fromtimestamp(instant, UTC).astimezone(place).utcoffset()
        return int(offset.total_seconds()) if offset else 0

    return ahead
