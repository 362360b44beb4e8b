"""What a supervisor does about one attempt, from what the board shows. Pure: told the readings and the time.

Two clocks: beats and silences are in monotonic time, which stands still while the machine sleeps, so that a laptop that was closed has
not stalled; leases and deadlines are in boot time, because the engine's clock went on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tenure.beat.board import Occupant, Phase, Reading
from tenure.work.seat import CancelCode


class Act(StrEnum):
    """What to do now."""

    NOTHING = "nothing"
    EXTEND = "extend"
    CANCEL = "cancel"
    KILL = "kill"


class Verdict(NamedTuple):
    act: Act
    code: CancelCode = CancelCode.NONE
    reason: str = ""


_NOTHING = Verdict(Act.NOTHING)


@dataclass(slots=True)
class AttemptWatch:
    """Follows one delivery from claim to end. A record with another receipt gets another watch."""

    occupant: Occupant
    extend_every_s: float
    grace_s: float
    lease_until: float
    steps_extended: int = -1
    next_extension: float = 0.0
    code: CancelCode = CancelCode.NONE
    reason: str = ""
    kill_at: float = float("inf")

    def step(self, reading: Reading, monotonic: float, boottime: float) -> Verdict:
        if reading.phase in (Phase.EMPTY, Phase.CLAIMED):
            return _NOTHING
        if self.code is not CancelCode.NONE:
            if monotonic >= self.kill_at:
                return Verdict(Act.KILL, self.code, self.reason)
            return _NOTHING
        if boottime >= self.lease_until:
            return self.cancel(CancelCode.LEASE_LOST, "the lease ran out by our own clock", monotonic)
        if reading.phase is Phase.RUNNING and (late := self._late(reading, monotonic, boottime)):
            return self.cancel(*late, monotonic)
        if reading.phase is Phase.SETTLING:
            # It takes a moment, unless the engine is away: then the outcome is worth a longer lease.
            return Verdict(Act.EXTEND) if self._is_running_out(boottime, monotonic) else _NOTHING
        if monotonic >= self.next_extension and (
            self._has_proof(reading, monotonic) or self._lease_ends_before_stall(reading, monotonic, boottime)
        ):
            return Verdict(Act.EXTEND)
        return _NOTHING

    def _is_running_out(self, boottime: float, monotonic: float) -> bool:
        return monotonic >= self.next_extension and self.lease_until - boottime < self.extend_every_s / 2

    def _late(self, reading: Reading, monotonic: float, boottime: float) -> tuple[CancelCode, str] | None:
        deadline = self.occupant.deadline
        if deadline is not None and boottime >= deadline:
            return CancelCode.TIMEOUT, f"ran for {boottime - self.occupant.started_at:.1f} s, past its timeout"
        if self._stall_left(reading, monotonic) < 0:
            note = f" (its last note: {self.occupant.note})" if self.occupant.note else ""
            silent = monotonic - reading.beat_at
            return CancelCode.STALL, f"no beat for {silent:.1f} s, allowed are {self.occupant.stall_s:g} s{note}"
        return None

    def _has_proof(self, reading: Reading, monotonic: float) -> bool:
        """New beats since the last extension, or a declared silence."""
        return reading.steps != self.steps_extended or monotonic < reading.silent_until

    def _stall_left(self, reading: Reading, monotonic: float) -> float:
        # A declared silence holds the stall clock; it starts anew where the silence ends.
        since = max(reading.beat_at, min(reading.silent_until, monotonic))
        return self.occupant.stall_s - (monotonic - since)

    def _lease_ends_before_stall(self, reading: Reading, monotonic: float, boottime: float) -> bool:
        """Its last beat earned it the whole stall threshold, of which the lease is paid out in short pieces (decision 0160)."""
        left = self.lease_until - boottime
        return left < self.extend_every_s and left < self._stall_left(reading, monotonic) + self.grace_s

    def cancel(self, code: CancelCode, reason: str, monotonic: float) -> Verdict:
        self.code, self.reason, self.kill_at = code, reason, monotonic + self.grace_s
        return Verdict(Act.CANCEL, code, reason)

    def forgive(self) -> None:
        """It was not this attempt that hung; its clock goes on when the slot is gone."""
        self.code, self.reason, self.kill_at = CancelCode.NONE, "", float("inf")

    def extending(self, reading: Reading, monotonic: float) -> None:
        """An extension was sent: the next one needs a new beat and waits for the interval, also if this one fails."""
        self.steps_extended = reading.steps
        self.next_extension = monotonic + self.extend_every_s

    def extended(self, lease_until: float) -> None:
        self.lease_until = max(self.lease_until, lease_until)

    def extension_failed(self, monotonic: float, *, retry_in_s: float) -> None:
        """The engine did not answer: the proof still stands, so try again soon."""
        self.steps_extended = -1
        self.next_extension = monotonic + retry_in_s
