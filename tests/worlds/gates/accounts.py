"""The observer's accounts: what every journal has said of every job, and what no journal may say.

He reads each entry as it is committed, keeps books of his own, and objects to what contradicts them: so a fault in the folds of `tenure.jobs`
does not hide itself. Times of events are the engine's; `seen` times are true time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tenure.engines.contracts import Entry
from tenure.jobs.deadlines import LeaderElected, LocalTimeoutReported
from tenure.jobs.decisions import NO_TOKEN, Event, Rule
from tenure.jobs.endings import JobEnded, TombstoneSet
from tenure.jobs.extensions import ExtensionGranted
from tenure.jobs.gate_decisions import GateJobEnded, GlobalDecisionMade
from tenure.jobs.gate_exchange import GateAcknowledged, GateEpochSeen, GlobalDecisionRefused
from tenure.jobs.gate_jobs import GateElected, GateJobAccepted, GateJobRebuilt
from tenure.jobs.gate_reports import DatacenterReported, DatacenterTimedOut
from tenure.jobs.model import wall
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import JobState
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.topics import decode_event, decode_gate_event

Require = Callable[[object, str], None]
Judge = Callable[[Any, Any], None]
_TAG_AT = len(b'{"type":"')
NO_SOONER_S = 1e-6
"""Floats that were added in another order."""
RANKED = (JobState.TIMED_OUT, JobState.CANCELLED, JobState.FAILED, JobState.COMPLETED)
"""How a job ended that ended differently in its datacenters: the first of these that any has."""


@dataclass(slots=True)
class There:
    """A job in one datacenter, as its journal tells it."""

    begins: float
    timeout: float
    seen: float
    ended: JobState | None = None
    ended_seen: float = 0.0
    by_gate: bool = False
    acked: bool = False
    token: int = 1
    """The fence token of its leader: one more with each election that it lives through."""
    gate_epoch: int = 0
    """The highest epoch of a gate that its leaders have heard of it."""
    reported: float | None = None
    """When its leader first told the gate that its time was over."""
    extended: float = 0.0
    grace: float = 0.0


@dataclass(slots=True)
class Owned:
    """A job as the gates' journal tells it."""

    submitted: float
    timeout: float
    statuses: dict[str, JobState | None]
    seen: float
    rebuilt: bool = False
    extensions: dict[str, float] = field(default_factory=dict)
    decided: JobState | None = None
    decided_seen: float = 0.0
    decided_rule: Rule | None = None
    ended: JobState | None = None
    ended_seen: float = 0.0

    @property
    def deadline(self) -> float:
        return self.submitted + self.timeout + max(self.extensions.values(), default=0.0)


class Book:
    """What the journals of all places have in common: one writer for each epoch, and no gaps."""

    def __init__(self, name: str, require: Require, now: Callable[[], float]) -> None:
        self.name, self._require, self._now = name, require, now
        self.seq = self.epoch = 0
        self.leader = ""

    def take(self, entry: Entry) -> None:
        self._require(entry.seq == self.seq + 1, f"{self.name}: entry {entry.seq} follows {self.seq}")
        self.seq = entry.seq
        for encoded in entry.events:
            judge = self.judges.get(encoded[_TAG_AT : encoded.index(b'"', _TAG_AT)])
            if judge is not None:
                judge(self, self.decode(encoded))
        self._require(entry.epoch == self.epoch, f"{self.name}: epoch {entry.epoch} wrote under epoch {self.epoch}")

    def elected(self, event: LeaderElected | GateElected) -> None:
        self._require(event.epoch > self.epoch, f"{self.name}: epoch {event.epoch} follows epoch {self.epoch}")
        self.epoch = event.epoch
        self.leader = event.leader if isinstance(event, LeaderElected) else event.gate

    def decode(self, encoded: bytes) -> Event:
        raise NotImplementedError

    judges: ClassVar[Mapping[bytes, Judge]] = {}
    """By the tag of the event: what is of no interest is not even decoded."""


class DatacenterBook(Book):
    """One datacenter's journal."""

    def __init__(
        self,
        name: str,
        require: Require,
        now: Callable[[], float],
        settings: JobSettings,
        decisions: dict[str, set[JobState]],
    ) -> None:
        super().__init__(name, require, now)
        self._settings, self._decisions = settings, decisions
        self.jobs: dict[str, There] = {}
        self.tombstones: dict[str, JobState] = {}
        self.rules: dict[str, Rule] = {}
        """By which rule each job ended."""
        self.open: dict[str, None] = {}
        """Jobs that have not ended, or of which the gate does not know it."""

    def decode(self, encoded: bytes) -> Event:
        return decode_event(encoded)

    def _submitted(self, event: JobSubmitted) -> None:
        job_id, submission = event.job_id, event.submission
        self._require(job_id not in self.jobs, f"{self.name}: {job_id} was submitted twice")
        self._require(self.name in submission.target_datacenters, f"{job_id} runs in {self.name}, and not for it")
        self.jobs[job_id] = There(
            event.at,
            wall(submission.timeout_seconds),
            self._now(),
            gate_epoch=submission.gate_epoch,
            grace=submission.grace_s,
        )
        self.open[job_id] = None

    def _elected(self, event: LeaderElected) -> None:
        self.elected(event)
        for job_id in self.open:
            self.jobs[job_id].token += self.jobs[job_id].ended is None

    def _ended(self, event: JobEnded) -> None:
        there, what = self.jobs[event.job_id], f"{event.job_id} in {self.name}"
        self._require(there.ended is None, f"{what} ended as {there.ended}, and then as {event.state}")
        self._not_stale(event, there, what)
        there.ended, there.ended_seen, there.by_gate = event.state, self._now(), event.by_gate
        self.rules[event.job_id] = event.rule
        if event.by_gate:
            decided = self._decisions.get(event.job_id, ())
            self._require(event.state in decided, f"{what} was {event.state} for a gate that had decided {decided}")
        elif event.state is JobState.TIMED_OUT:
            waited = event.at - (event.at if there.reported is None else there.reported)
            self._require(
                waited >= self._settings.fallback_after - NO_SOONER_S,
                f"{what} was timed out {waited:.3f} s after the gate was told, and no gate had decided it",
            )
        else:
            self._require(event.state is not JobState.CANCELLED, f"{what} was cancelled by nobody")

    def _not_stale(self, event: JobEnded, there: There, what: str) -> None:
        """A decision is obeyed only from the newest gate, and only if it answers the reports of the leader that obeys."""
        if event.rule is Rule.GLOBAL_TIMEOUT:
            token = event.evidence["fence_token"]
            self._require(token in (NO_TOKEN, there.token), f"{what} obeyed token {token}, its own is {there.token}")
        if event.by_gate:
            self._require(
                event.gate_epoch >= there.gate_epoch,
                f"{what} obeyed a gate of epoch {event.gate_epoch} after it had heard of {there.gate_epoch}",
            )
            there.gate_epoch = event.gate_epoch

    def _heard(self, event: GateEpochSeen | GlobalDecisionRefused | GateAcknowledged) -> None:
        there = self.jobs[event.job_id]
        there.gate_epoch = max(there.gate_epoch, event.gate_epoch)

    def _reported(self, event: LocalTimeoutReported) -> None:
        there = self.jobs[event.job_id]
        if there.reported is None:
            there.reported = event.at
        if event.rule is Rule.OVERALL_TIMEOUT:
            late = event.at - there.begins - there.timeout - there.extended
            self._require(late > -NO_SOONER_S, f"{event.job_id} timed out in {self.name} {-late:.3f} s early")

    def _acknowledged(self, event: GateAcknowledged) -> None:
        self._heard(event)
        self.jobs[event.job_id].acked = True
        self.open.pop(event.job_id, None)

    def _extended(self, event: ExtensionGranted) -> None:
        if event.own:
            return
        there = self.jobs[event.jobs[0]]
        there.extended += event.seconds
        most = 1.9375 * there.grace
        self._require(there.extended <= most, f"{event.jobs[0]} earned {there.extended:g} s of at most {most:g} s")

    def _tombstone(self, event: TombstoneSet) -> None:
        self._require(event.job_id not in self.jobs, f"{self.name}: a tombstone for {event.job_id}, which is known")
        self.tombstones[event.job_id] = event.state

    judges: ClassVar[Mapping[bytes, Judge]] = {
        b"LeaderElected": _elected,
        b"JobSubmitted": _submitted,
        b"JobEnded": _ended,
        b"LocalTimeoutReported": _reported,
        b"GateAcknowledged": _acknowledged,
        b"GateEpochSeen": _heard,
        b"GlobalDecisionRefused": _heard,
        b"ExtensionGranted": _extended,
        b"TombstoneSet": _tombstone,
    }


class GateBook(Book):
    """The gates' journal."""

    def __init__(
        self, name: str, require: Require, now: Callable[[], float], decisions: dict[str, set[JobState]]
    ) -> None:
        super().__init__(name, require, now)
        self.jobs: dict[str, Owned] = {}
        self.open: dict[str, None] = {}
        self._decisions = decisions

    def decode(self, encoded: bytes) -> Event:
        return decode_gate_event(encoded)

    def _accepted(self, event: GateJobAccepted) -> None:
        self._opens(event.job_id, event.at, wall(event.submission.timeout_seconds), event.target_datacenters)

    def _rebuilt(self, event: GateJobRebuilt) -> None:
        self._opens(event.job_id, event.submitted_at, wall(event.timeout_seconds), event.target_datacenters)
        self.jobs[event.job_id].rebuilt = True

    def _opens(self, job_id: str, submitted: float, timeout: float, targets: tuple[str, ...]) -> None:
        self._require(job_id not in self.jobs, f"the gates took {job_id} for new twice")
        self.jobs[job_id] = Owned(submitted, timeout, dict.fromkeys(targets), self._now())
        self.open[job_id] = None

    def _reported(self, event: DatacenterReported) -> None:
        owned, name = self.jobs[event.job_id], event.datacenter
        owned.extensions[name] = max(owned.extensions.get(name, 0.0), event.extensions)
        if event.status.terminal:
            before = owned.statuses[name]
            self._require(before is None, f"{event.job_id} was {before} in {name} for the gates, then {event.status}")
            owned.statuses[name] = event.status

    def _timed_out(self, event: DatacenterTimedOut) -> None:
        extensions = self.jobs[event.job_id].extensions
        extensions[event.datacenter] = max(extensions.get(event.datacenter, 0.0), event.extensions)

    def _decided(self, event: GlobalDecisionMade) -> None:
        owned, job_id = self.jobs[event.job_id], event.job_id
        self._require(owned.decided is None, f"{job_id} was decided as {owned.decided}, and then as {event.state}")
        self._require(owned.ended is None, f"{job_id} was decided as {event.state} after it had ended: {owned.ended}")
        epoch = event.evidence.get("epoch", self.epoch)
        self._require(epoch == self.epoch, f"{job_id} was decided by a gate of epoch {epoch} in epoch {self.epoch}")
        owned.decided, owned.decided_seen, owned.decided_rule = event.state, self._now(), event.rule
        self._decisions.setdefault(job_id, set()).add(event.state)
        if event.rule is Rule.OVERALL_TIMEOUT:
            early = owned.deadline - event.at
            self._require(early < NO_SOONER_S, f"{job_id} was timed out {early:.3f} s before its global deadline")

    def _ended(self, event: GateJobEnded) -> None:
        owned, job_id = self.jobs[event.job_id], event.job_id
        self._require(owned.ended is None, f"{job_id} ended as {owned.ended}, and then as {event.state}")
        statuses = owned.statuses.values()
        self._require(None not in statuses, f"{job_id} ended as {event.state} while it ran: {owned.statuses}")
        worst = next(state for state in RANKED if state in statuses)
        self._require(event.state is worst, f"{job_id} ended as {event.state}, and there as {owned.statuses}")
        owned.ended, owned.ended_seen = event.state, self._now()
        del self.open[job_id]

    judges: ClassVar[Mapping[bytes, Judge]] = {
        b"GateElected": Book.elected,
        b"GateJobAccepted": _accepted,
        b"GateJobRebuilt": _rebuilt,
        b"DatacenterReported": _reported,
        b"DatacenterTimedOut": _timed_out,
        b"GlobalDecisionMade": _decided,
        b"GateJobEnded": _ended,
    }
