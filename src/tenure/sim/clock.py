"""The clock of one simulated machine: it may be offset, run fast or slow, be stepped, and sleep.

Nothing here waits by itself. `async_sleep` waits on the virtual loop, which runs at this clock's rate. The blocking
`sleep` and `wait` are refused: a simulation has one thread, so blocking it would stop everybody else's time too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from tenure.clock import Clock, wait_on_loop
from tenure.errors import ConfigurationError, SimulationForbiddenError
from tenure.sim.kernel import NEVER, TICKS_PER_S, to_seconds, to_ticks

PARTS = 1_000_000
"""Rates are whole parts per million, so that they multiply exactly."""


class Ticking(Protocol):
    """Whatever has the true time: the kernel."""

    now: int


class SimClock(Clock):
    """One machine's idea of the time, as a function of the kernel's."""

    blocks = False

    def __init__(
        self,
        true: Ticking,
        *,
        monotonic: float = 1_000.0,
        boottime: float | None = None,
        wall: float = 1_700_000_000.0,
        boot_id: str = "boot-1",
    ) -> None:
        self._true = true
        self._since = true.now
        self._base = to_ticks(monotonic)
        self._rate = PARTS
        self._boot_offset = 0 if boottime is None else to_ticks(boottime) - self._base
        self._wall_offset = to_ticks(wall) - self._base
        self._boot_id = boot_id
        self._shift = -self._since + self._base  # local minus kernel ticks, while the rate is exactly one
        self.on_change: Callable[[], None] = _nothing
        """Called when timers that were set by this clock are due at another moment than they were."""

    def ticks(self) -> int:
        """Returns the monotonic time in ticks."""
        if self._rate == PARTS:
            return self._true.now + self._shift
        return self._base + (self._true.now - self._since) * self._rate // PARTS

    def monotonic(self) -> float:
        if self._rate == PARTS:
            return (self._true.now + self._shift) / TICKS_PER_S
        return self.ticks() / TICKS_PER_S

    def boottime(self) -> float:
        if self._rate == PARTS:  # the common case, in one call
            return (self._true.now + self._shift + self._boot_offset) / TICKS_PER_S
        return (self.ticks() + self._boot_offset) / TICKS_PER_S

    def wall(self) -> float:
        return (self.ticks() + self._wall_offset) / TICKS_PER_S

    def boot_id(self) -> str:
        return self._boot_id

    def tick_at(self, when: float) -> int:
        """Returns the first tick of the kernel at which `monotonic()` reads `when` or more."""
        local = to_ticks(when)
        if local >= NEVER:
            return NEVER
        if self._rate == PARTS:
            return local - self._shift
        return self._since - (self._base - local) * PARTS // self._rate

    @property
    def rate(self) -> float:
        return self._rate / PARTS

    def set_rate(self, rate: float) -> None:
        """Run fast (above 1) or slow (below); what has been counted so far stays."""
        parts = round(rate * PARTS)
        if not PARTS // 10 <= parts <= PARTS * 10:
            raise ConfigurationError(f"clock rate is {rate}, and must be between 0.1 and 10")
        self._rebase(self.ticks())
        self._rate = parts
        self.on_change()

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does; spans are not affected."""
        self._wall_offset += to_ticks(seconds)

    def slept(self, ticks: int) -> None:
        """Counts the last so many kernel ticks as slept: the machine was suspended, and only boot time and the wall clock went on."""
        local = ticks * self._rate // PARTS
        self._rebase(self.ticks() - local)
        self._boot_offset += local
        self._wall_offset += local
        self.on_change()

    def reboot(self, boot_id: str) -> None:
        """Start monotonic and boot time at nought, under a new boot id; the wall clock goes on."""
        wall = self.ticks() + self._wall_offset
        self._rebase(0)
        self._boot_offset, self._wall_offset, self._boot_id = 0, wall, boot_id
        self.on_change()

    def _rebase(self, local: int) -> None:
        self._since, self._base = self._true.now, local
        self._shift = local - self._since

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            raise SimulationForbiddenError(
                f"clock.sleep({seconds}) would block the thread that simulates everybody",
                remedy="Simulated code waits with `await clock.async_sleep(...)`",
            )

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return False
        raise SimulationForbiddenError(
            f"clock.wait(..., {timeout}) would block the thread that simulates everybody",
            remedy="Await instead; a long poll of the engine goes through `await host.calls.run(mailbox.receive, ...)`",
        )

    async def async_sleep(self, seconds: float) -> None:
        """Wait on the running loop, at the rate of the machine that the loop belongs to."""
        await asyncio.sleep(max(0.0, seconds))

    async def async_wait(self, event: asyncio.Event, seconds: float) -> bool:
        return await wait_on_loop(event, seconds)

    def __repr__(self) -> str:
        return f"<SimClock monotonic={to_seconds(self.ticks()):.6f} rate={self.rate:g}>"


def _nothing() -> None: ...
