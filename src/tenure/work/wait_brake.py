"""Carries out the leader's word about what is down, on the attempts of one worker (decision 0366). Told the time; it writes to records only.

While a name is held, the clocks of every attempt that waits for it stand still. Of those attempts, a few may try; the others wait for their turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.beat.record import BeatReading, Brake
from tenure.work.watched_attempt import WatchedAttempt

GONE_S = 2.0
"""A canary that has not waited for this long has got through, or ended: another may try."""


class HeldWord(Protocol):
    """The leader's word about one name, as `control.messages.workers.HeldName` has it."""

    @property
    def name(self) -> str: ...
    @property
    def canaries(self) -> int: ...
    @property
    def released(self) -> int: ...


class _Held:
    """One name that is down."""

    def __init__(self) -> None:
        self.canaries, self.released = 0, 0
        self.trying: dict[int, float] = {}
        """The canaries, by the serial of their record and its index, and when each was last seen to wait."""
        self.let_go: set[int] = set()
        """Attempts that were released."""

    def may_try(self, attempt: int, now: float) -> bool:
        if attempt in self.let_go:
            return True
        if len(self.let_go) < self.released:
            self.let_go.add(attempt)
            return True
        self.trying = {one: at for one, at in self.trying.items() if now - at < GONE_S}
        if attempt not in self.trying and len(self.trying) >= self.canaries:
            return False
        self.trying[attempt] = now
        return True


class WaitBrake:
    """Call it from the thread that looks at the attempts."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def tell(self, holds: Sequence[HeldWord]) -> None:
        """Takes the whole of what is down: a name that is missing is so no longer."""
        self._held = {one.name: self._held.get(one.name) or _Held() for one in holds}
        for one in holds:
            held = self._held[one.name]
            held.canaries, held.released = one.canaries, one.released
            if not one.canaries and not one.released:
                held.trying.clear()
                held.let_go.clear()

    def look(self, watched: WatchedAttempt, reading: BeatReading, now: float) -> None:
        """Stops the clocks of an attempt that waits for what is down, and tells it whether it may try."""
        occupant = watched.watch.occupant
        held = self._held.get(occupant.waits_on) if occupant.waits_on else None
        brake = Brake.NONE
        if held is not None:
            watched.watch.held_at = now
            attempt = watched.serial << 16 | watched.record.index
            brake = Brake.LET_GO if held.may_try(attempt, now) else Brake.HELD
        if brake is not reading.brake:
            watched.record.set_brake(brake, watched.serial)
