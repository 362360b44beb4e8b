"""When an evaluation has to be over: an instant on the wire, a countdown in the process.

The instant is Unix time, so that it survives an engine and another machine. A process measures its span once, when it starts, and counts
it down on its own monotonic clock: a stepped wall clock moves no deadline that is already running.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tenure.clock import Clock, SystemClock
from tenure.errors import LimitError


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant, in Unix seconds."""

    expires_at: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.expires_at):
            raise LimitError("Deadline.expires_at", self.expires_at, "a finite Unix time")

    @classmethod
    def after(cls, seconds: float, clock: Clock | None = None) -> Deadline:
        """So many seconds from now."""
        if not 0 <= seconds < math.inf:
            raise LimitError("Deadline seconds", seconds, "0 seconds or more")
        return cls((clock or SystemClock()).wall() + seconds)

    def earlier(self, other: Deadline | None) -> Deadline:
        """Whichever of the two comes first."""
        return self if other is None or self.expires_at <= other.expires_at else other

    def countdown(self, clock: Clock) -> Countdown:
        """Counts the time that is left, from here on by this process's own clock."""
        return Countdown(clock, clock.monotonic() + self.expires_at - clock.wall())


@dataclass(frozen=True, slots=True)
class Countdown:
    """A running deadline."""

    clock: Clock
    until: float = math.inf

    @property
    def remaining_s(self) -> float:
        """Seconds that are left; 0 once it is over, infinite without a deadline."""
        return max(0.0, self.until - self.clock.monotonic())

    @property
    def over(self) -> bool:
        return self.remaining_s <= 0
