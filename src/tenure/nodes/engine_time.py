"""Tells a node the time of its datacenter: the engine's, held against this machine's own clock, so that a clock that somebody sets moves no deadline.

Between two looks at the engine this machine's boot time measures the span. Where the engine's clock was set meanwhile, by an administrator, NTP or a
failover to another server, the node goes on by its own clock and follows the engine's slowly, as NTP slews a clock (decision 0910).

What is left to follow is kept in the engine's store, so that a manager that starts later, or takes over, tells the same time.
"""

from __future__ import annotations

import contextlib
import math
from typing import Annotated, NamedTuple

import msgspec

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Fence, Store
from tenure.errors import EngineUnavailableError, StaleFenceError
from tenure.jobs.alarms import Alarm, AlarmKind

STEP_S = 5.0
"""A smaller difference is followed without a word: it can come from the round trips of a busy engine."""
SLEW = 0.01
"""By so much this time runs faster or slower than real time while it follows: of the time that a job has left it takes one part in a hundred."""
JITTER_S = 0.05
SHIFTS = "engine-time"
"""The name of the store. It has one key for each journal."""


ClockSeconds = Annotated[float, msgspec.Meta(ge=-1e11, le=1e11)]
"""Three thousand years either way: no clock shows more."""


class ClockShift(msgspec.Struct, frozen=True):
    """By how much the engine's clock is ahead of the datacenter's time, and what the engine's clock showed then."""

    seconds: ClockSeconds = 0.0
    shown: ClockSeconds = 0.0

    def left(self, shown: float) -> float:
        """Returns what is left of it when the engine's clock shows this."""
        return math.copysign(max(0.0, abs(self.seconds) - SLEW * abs(shown - self.shown)), self.seconds)


NO_SHIFT = ClockShift()


def _read(stored: bytes | None) -> ClockShift:
    """Returns what the store says. A damaged record says nothing: it must keep no node from starting, and the next leader writes a new one."""
    try:
        return msgspec.json.decode(stored, type=ClockShift) if stored is not None else NO_SHIFT
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NO_SHIFT


def in_words(ahead_s: float) -> str:
    return f"the engine's clock was set {'forward' if ahead_s > 0 else 'back'} by {abs(ahead_s):,.0f} s"


class _Look(NamedTuple):
    offset: float
    """The engine's clock minus our boot time."""
    slack: float
    """The offset may be off by so much."""
    at: float


class EngineTime:
    """Call `refresh` now and then, and `now` at any time after the first `refresh`. `now` never goes back."""

    def __init__(self, engine: Engine, calls: Calls, clock: Clock, *, journal: str = "jobs") -> None:
        self._engine, self._calls, self._clock, self._journal = engine, calls, clock, journal
        self._offset: float | None = None
        """The time that `now` tells, minus our boot time."""
        self._looked: _Look | None = None
        """The last look at a clock that may be set."""
        self._kept = NO_SHIFT
        """The contents of the store when this node read or wrote it last."""
        self._doubted_at: float | None = None
        """Since when, in boot time, this node has seen something else than the store says."""
        self._last = 0.0
        self.set_forward_at = -math.inf
        """When this node saw last that the engine's clock had been set forward. The leases of before ended with that, however well their holders were."""

    async def refresh(self, epoch: int = 0, *, doubts_for_s: float = math.inf) -> None:
        """Looks at the engine's clock. `epoch` is that of the term in which this node leads: it then keeps for others what it has seen.

        A node that does not lead, and has seen something else than the leader for `doubts_for_s`, believes the leader: its own clock stood still,
        as that of a virtual machine does while it is moved.
        """
        asked = self._clock.boottime()
        if not self._engine.has_own_clock:
            theirs = await self._calls.run(self._engine.now)
            self._offset = theirs - (asked + self._clock.boottime()) / 2
            return
        shown = await self._calls.run(self._engine.clock_shows)
        answered = self._clock.boottime()
        # The engine read its clock at some moment between the two, so the middle is off by half of the round trip at most.
        self._follow(_Look(shown - (asked + answered) / 2, (answered - asked) / 2, answered))
        if epoch and self._offset is not None:
            await self._keep(shown, epoch)
        else:
            await self._believe(shown, doubts_for_s)

    def _follow(self, look: _Look) -> None:
        before, self._looked = self._looked, look
        if before is None or self._offset is None:
            return  # the store says what others know
        gap = look.offset - self._offset
        if look.offset - before.offset > STEP_S + before.slack + look.slack:
            self.set_forward_at = look.at + self._offset
        if abs(gap) > before.slack + look.slack + JITTER_S:
            most = SLEW * (look.at - before.at)
            gap = max(-most, min(most, gap))
        self._offset += gap

    async def _keep(self, shown: float, epoch: int) -> None:
        if abs(self.ahead_s - self._kept.left(shown)) <= STEP_S:
            return
        shift = ClockShift(self.ahead_s, shown)
        with contextlib.suppress(StaleFenceError):  # a newer leader has written it
            await self._calls.run(self._store().put, self._journal, msgspec.json.encode(shift), fence=Fence(epoch, 0))
            self._kept = shift

    async def _believe(self, shown: float, doubts_for_s: float) -> None:
        stored = await self._calls.run(self._store().get, self._journal)
        kept = _read(stored)
        left, now = kept.left(shown), self._clock.boottime()
        if abs(self.ahead_s - left) <= STEP_S:
            self._doubted_at = None
        elif self._doubted_at is None:
            self._doubted_at = now
        doubted = self._doubted_at is not None and now - self._doubted_at > doubts_for_s
        if self._looked is not None and (self._offset is None or kept != self._kept or doubted):
            self._offset, self._doubted_at = self._looked.offset - left, None
        self._kept = kept

    def _store(self) -> Store:
        return self._engine.store(SHIFTS)

    @property
    def ahead_s(self) -> float:
        """The seconds by which the engine's clock is ahead of `now`; negative where it is behind."""
        return 0.0 if self._offset is None or self._looked is None else self._looked.offset - self._offset

    @property
    def was_set(self) -> bool:
        """True while the engine's clock differs from `now` because somebody set it."""
        return abs(self.ahead_s) > STEP_S

    def now(self) -> float:
        if self._offset is None:
            raise EngineUnavailableError(
                "the engine's time is not known yet",
                remedy="Ask again: the node reads it when the engine answers for the first time",
            )
        self._last = max(self._last, self._clock.boottime() + self._offset)
        return self._last

    def of_engine(self, at: float) -> float:
        """Returns the time of a moment that the engine stamped: now at the latest, also where its clock was set since this node looked."""
        if self._looked is None:
            return at
        return min(at - self.ahead_s if self.was_set else at, self.now())

    @property
    def skew_s(self) -> float:
        """The seconds that this machine's wall clock is ahead of the engine's. It is shown to people; no deadline uses it."""
        return self._clock.wall() - self.now()


def clock_alarms(time: EngineTime) -> list[Alarm]:
    if not time.was_set:
        return []
    remedy = (
        "Deadlines go on by this machine's clock, and follow the engine's slowly. Leases and terms are the engine's, so that work may have been "
        "delivered again. Let its machine slew its clock, as chrony does, and not set it"
    )
    return [Alarm(AlarmKind.CLOCK_SET, "engine", in_words(time.ahead_s), remedy)]
