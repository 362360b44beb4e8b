"""Decides what a supervisor does about one attempt, from the readings of its record. Pure: the caller passes readings and times.

Two clocks: beats and silences are in monotonic time, which stands still while the machine sleeps, so that a laptop that was closed has
not stalled; leases and deadlines are in boot time, because the engine's clock went on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tenure.beat.attempt_history import BeatHistory, GapWatch
from tenure.beat.proof import ProofClock, ShownProof, place_of, stuck_threshold
from tenure.beat.record import BeatReading, Occupant, Phase
from tenure.work.delivery import CancelCode


class Act(StrEnum):
    """The action that a supervisor takes for an attempt now."""

    NOTHING = "nothing"
    EXTEND = "extend"
    CANCEL = "cancel"
    KILL = "kill"


class WatchVerdict(NamedTuple):
    act: Act
    code: CancelCode = CancelCode.NONE
    reason: str = ""


_NOTHING = WatchVerdict(Act.NOTHING)


@dataclass(slots=True)
class AttemptWatch:
    """Follows one delivery from claim to end. A record with another receipt gets another watch.

    No phase lasts for ever, whatever the slot does. `_LIMITS` below holds the rule of each phase:

    | phase    | its lease is renewed                   | it ends at the latest                                       |
    |----------|----------------------------------------|-------------------------------------------------------------|
    | EMPTY    | there is none                          | nothing is held                                             |
    | CLAIMED  | never                                  | when the short lease of the claim ran out                   |
    | RUNNING  | for beats, until the stall threshold   | at its stall, its timeout, a cancel, with its lease, or     |
    |          |                                        | when it has spun for the stuck threshold                    |
    | SETTLING | until `settle_s` after it began        | `settle_s` after it began, or with its lease                |
    | any, with a verdict | through the grace, except after a lost lease | when the grace is over: its slot is killed |
    """

    occupant: Occupant
    extend_every_s: float
    grace_s: float
    lease_until: float
    settle_s: float = 60.0
    """The outcome of ended work must be settled within this."""
    steps_extended: int = -1
    """The beat count at the last extension. Only a higher count is new proof; -1 lets the first reading count."""
    next_extension: float = 0.0
    """Monotonic time before which no further extension is sent."""
    code: CancelCode = CancelCode.NONE
    reason: str = ""
    kill_at: float = float("inf")
    """Monotonic time at which the slot is killed: the verdict's time and the grace."""
    phase: Phase = Phase.EMPTY
    phase_since: float = 0.0
    """Monotonic time of the first look that showed this phase."""
    history: BeatHistory = field(default_factory=BeatHistory)
    held_at: float = 0.0
    """Monotonic time at which what it waits for was last known to be down. Its clocks stood still until then, and start anew there."""
    gaps: GapWatch = field(default_factory=GapWatch)
    """Measures the longest silence after which the attempt went on."""
    proof: ProofClock = field(default_factory=ProofClock)
    """Counts how long the attempt beats without anything new."""

    def step(self, reading: BeatReading, monotonic: float, boottime: float) -> WatchVerdict:
        if reading.phase is not self.phase:
            self.phase, self.phase_since = reading.phase, monotonic
        if reading.phase is Phase.EMPTY:
            return _NOTHING
        if reading.phase is Phase.RUNNING and self.occupant.started_at:
            self.history.look(boottime - self.occupant.started_at, reading.steps)
            self.gaps.look(self.silent_since(reading, monotonic), reading.steps, monotonic)
        if self.code is not CancelCode.NONE:
            return self._enforce(monotonic, boottime)
        if boottime >= self.lease_until:
            return self.cancel(CancelCode.LEASE_LOST, "the lease ran out by our own clock", monotonic)
        return _LIMITS[reading.phase](self, reading, monotonic, boottime)

    def _enforce(self, monotonic: float, boottime: float) -> WatchVerdict:
        """Returns what to do after a verdict: the lease is held through the grace, so that the verdict can be recorded, then the slot is killed.

        No other worker gets the work before its slot is gone. A lost lease is not extended again.
        """
        if monotonic >= self.kill_at:
            return WatchVerdict(Act.KILL, self.code, self.reason)
        if self.code is CancelCode.LEASE_LOST or self.phase is Phase.CLAIMED or monotonic < self.next_extension:
            return _NOTHING
        # With or without a beat: an interval has to be left when the slot is killed, in which its verdict is recorded.
        left, needed = self.lease_until - boottime, self.kill_at - monotonic + self.extend_every_s
        return WatchVerdict(Act.EXTEND) if 0 < left < needed else _NOTHING

    def _claimed(self, reading: BeatReading, monotonic: float, boottime: float) -> WatchVerdict:
        """Asks for nothing: the lease of a claim is short and is not renewed, and `step` ends what does not start within it."""
        return _NOTHING

    def _running(self, reading: BeatReading, monotonic: float, boottime: float) -> WatchVerdict:
        if late := self._late(reading, monotonic, boottime):
            return self.cancel(*late, monotonic)
        if monotonic >= self.next_extension and (
            self._has_proof(reading, monotonic) or self._lease_ends_before_stall(reading, monotonic, boottime)
        ):
            return WatchVerdict(Act.EXTEND)
        return _NOTHING

    def _settling(self, reading: BeatReading, monotonic: float, boottime: float) -> WatchVerdict:
        """Writing an outcome takes a moment, unless the engine is away: then it is worth a longer lease, for a while."""
        if monotonic - self.phase_since >= self.settle_s:
            reason = f"its outcome could not be handed over: it ended {self.settle_s:g} s ago, and nothing was written"
            return self.cancel(CancelCode.UNSETTLED, reason, monotonic)
        return WatchVerdict(Act.EXTEND) if self._is_running_out(boottime, monotonic) else _NOTHING

    def _is_running_out(self, boottime: float, monotonic: float) -> bool:
        return monotonic >= self.next_extension and self.lease_until - boottime < self.extend_every_s / 2

    def _late(self, reading: BeatReading, monotonic: float, boottime: float) -> tuple[CancelCode, str] | None:
        deadline = self.occupant.deadline
        if deadline is not None and boottime >= deadline:
            return CancelCode.TIMEOUT, f"ran for {boottime - self.occupant.started_at:.1f} s, past its timeout"
        if self._stall_left(reading, monotonic) < 0:
            note = f" (its last note: {self.occupant.note})" if self.occupant.note else ""
            silent = monotonic - reading.beat_at
            others = (
                f"; other threads beat {reading.others} times, which ctx.thread() would count" if reading.others else ""
            )
            learned = " (learned)" if self.occupant.learned else ""
            return (
                CancelCode.STALL,
                f"no beat for {silent:.1f} s, allowed are {self.occupant.stall_s:g} s{learned}{note}{others}",
            )
        return self._spinning(reading, monotonic)

    def _spinning(self, reading: BeatReading, monotonic: float) -> tuple[CancelCode, str] | None:
        """Ends work that beats and gets nowhere like work that does not beat."""
        excused = monotonic < max(reading.silent_until, reading.polling_until) or monotonic <= self.held_at
        # From the occupant at each look: its thresholds are known only after its function was found.
        stuck_s = stuck_threshold(self.occupant.stall_s, self.occupant.stuck_s)
        shown = ShownProof(reading.steps, reading.mark, excused)
        spinning = self.proof.look(shown, monotonic, stuck_s=stuck_s, proof=self.occupant.proof)
        if spinning is None:
            return None
        return CancelCode.STALL, spinning.reason(place_of(reading.items, reading.total, reading.progress), stuck_s)

    def _has_proof(self, reading: BeatReading, monotonic: float) -> bool:
        """New beats since the last extension, or a declared silence."""
        return reading.steps != self.steps_extended or monotonic < reading.silent_until

    def silent_since(self, reading: BeatReading, monotonic: float) -> float:
        """Returns since when the stall clock runs. A declared silence and a hold stop it; it starts anew where they end."""
        return max(reading.beat_at, min(reading.silent_until, monotonic), self.held_at)

    def _stall_left(self, reading: BeatReading, monotonic: float) -> float:
        return self.occupant.stall_s - (monotonic - self.silent_since(reading, monotonic))

    def _lease_ends_before_stall(self, reading: BeatReading, monotonic: float, boottime: float) -> bool:
        """Returns True when the lease ends before the stall clock. The last beat earned the whole threshold, which the lease pays out in short pieces
        (decision 0160)."""
        left = self.lease_until - boottime
        return left < self.extend_every_s and left < self._stall_left(reading, monotonic) + self.grace_s

    def cancel(self, code: CancelCode, reason: str, monotonic: float) -> WatchVerdict:
        self.code, self.reason, self.kill_at = code, reason, monotonic + self.grace_s
        return WatchVerdict(Act.CANCEL, code, reason)

    def forgive(self) -> None:
        """Takes the verdict back: another attempt of the same slot blocked the event loop, and this one is not to blame."""
        self.code, self.reason, self.kill_at = CancelCode.NONE, "", float("inf")

    def extending(self, reading: BeatReading, monotonic: float) -> None:
        """Records that an extension was sent. The next one needs a new beat and waits for the interval."""
        self.steps_extended = reading.steps
        self.next_extension = monotonic + self.extend_every_s

    def extended(self, lease_until: float) -> None:
        self.lease_until = max(self.lease_until, lease_until)

    def extension_failed(self, monotonic: float, *, retry_in_s: float) -> None:
        """Records that the engine did not answer. The beat is still proof, so the next try may come soon and needs no new one."""
        self.steps_extended = -1
        self.next_extension = monotonic + retry_in_s


_Limit = Callable[[AttemptWatch, BeatReading, float, float], WatchVerdict]
_LIMITS: Mapping[Phase, _Limit] = {
    Phase.CLAIMED: AttemptWatch._claimed,
    Phase.RUNNING: AttemptWatch._running,
    Phase.SETTLING: AttemptWatch._settling,
}
"""The rule of each phase that holds a delivery. `EMPTY` holds none."""
