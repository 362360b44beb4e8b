"""Holds a gate's view of its jobs across all datacenters (document 002, part 5): the fold over the gate's journal.

Only `GateJobTracker.apply` changes the state. Progress that the gate has heard of and not journaled (the moments, by its own
clock) is beside the state, in `fresh`, and dies with the gate's term.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from tenure.errors import EngineVersionError, UnknownJobError
from tenure.jobs import gate_events as g
from tenure.jobs.deadlines import NEVER
from tenure.jobs.events import Event, encode_event
from tenure.jobs.model import Address, ArchivedJob, JobSubmission, Tombstone
from tenure.jobs.settings import GateSettings
from tenure.jobs.states import JobState, check_job_transition

SNAPSHOT_VERSION = 1


class GateJobTrackingInfo(msgspec.Struct, kw_only=True):
    """A gate's view of one job across all datacenters. The document's fields come first, then those that our rulings need."""

    job_id: str
    submitted_at: float
    """Global start time, by the gate's own clock."""
    timeout_seconds: float
    target_datacenters: list[str]
    dc_status: dict[str, JobState] = {}
    dc_last_progress: dict[str, float] = {}
    """The time at which the gate received a report of progress, by its own clock. Never a report's timestamp."""
    dc_manager_addrs: dict[str, Address] = {}
    globally_timed_out: bool = False
    timeout_reason: str = ""
    timeout_fence_token: int = 0
    """Counts this gate's decisions about the job. It is not compared with any manager's token."""

    dc_fence_tokens: dict[str, int] = {}
    """The highest manager token seen from each datacenter. A decision made from reports echoes it."""
    dc_extensions: dict[str, float] = {}
    dc_timeouts: dict[str, int] = {}
    """Maps each datacenter that reported a local timeout to the token of its report."""
    dc_heard: dict[str, bool] = {}
    """False until the datacenter has answered. Until then the gate sends the submission, or the query, again."""
    submission: JobSubmission | None = None
    """None for a job that was rebuilt from reports."""
    digest: str = ""
    decided: JobState | None = None
    decided_reason: str = ""
    decided_at: float = 0.0
    decided_from_reports: bool = False
    state: JobState = JobState.RUNNING
    reason: str = ""
    ended_at: float = 0.0
    resumed_at: float = 0.0
    history: list[bytes] = []
    elided: int = 0

    @property
    def running(self) -> list[str]:
        """The datacenters that are not terminal."""
        return [dc for dc in self.target_datacenters if not self.dc_status[dc].terminal]

    @property
    def standing(self) -> str:
        """The job's state, or `ending` while a decision is on its way to datacenters that have not obeyed yet."""
        return "ending" if self.decided is not None and not self.state.terminal else self.state.value


class GateState(msgspec.Struct, kw_only=True):
    """The contents of a snapshot."""

    version: int = SNAPSHOT_VERSION
    epoch: int = 0
    gate: str = ""
    jobs: dict[str, GateJobTrackingInfo] = {}
    archive: dict[str, ArchivedJob] = {}
    tombstones: dict[str, Tombstone] = {}
    forgotten_early: int = 0


_encode_state = msgspec.msgpack.Encoder().encode
_state_decoder = msgspec.msgpack.Decoder(GateState)


class GateJobTracker:
    """Holds every job that this gate cluster owns."""

    def __init__(self, settings: GateSettings | None = None, state: GateState | None = None) -> None:
        self.settings = settings or GateSettings()
        self.state = state or GateState()
        self.fresh: dict[tuple[str, str], float] = {}
        """Maps (job, datacenter) to the time at which the gate last heard of progress. It may be newer than the journaled time."""
        self.ended: dict[str, None] = {job_id: None for job_id, info in self.jobs.items() if info.state.terminal}
        self._ending = sum(info.standing == "ending" for info in self.jobs.values())
        self._ended_as: Counter[str] = Counter(self.jobs[job_id].standing for job_id in self.ended)
        self.keys: dict[str, str] = {}
        for job_id, info in self.jobs.items():
            if info.submission and info.submission.idempotency_key:
                self.keys[info.submission.idempotency_key] = job_id
        for job_id, archived in self.state.archive.items():
            if archived.idempotency_key:
                self.keys[archived.idempotency_key] = job_id

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def jobs(self) -> dict[str, GateJobTrackingInfo]:
        return self.state.jobs

    @property
    def standings(self) -> Counter[str]:
        """Counts the jobs of each standing. Its cost does not depend on the number of jobs."""
        running = len(self.jobs) - len(self.ended) - self._ending
        return Counter({"running": running, "ending": self._ending, **self._ended_as})

    def job(self, job_id: str) -> GateJobTrackingInfo:
        """Returns the job, or raises `UnknownJobError`."""
        info = self.state.jobs.get(job_id)
        if info is None:
            raise UnknownJobError(job_id)
        return info

    def apply(self, event: Event, encoded: bytes | None = None) -> None:
        """Folds one event. A caller that has it `encoded` passes that, which saves encoding it again for the job's history."""
        fold = GATE_FOLD.get(type(event))
        if fold is None:
            raise EngineVersionError(f"this Tenure cannot fold a {type(event).__name__}")
        fold(self, event)
        if self.settings.history_limit:
            self._note(event, encoded)

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def replay(self, encoded_events: Iterable[bytes]) -> None:
        """Folds events as the journal keeps them."""
        for encoded in encoded_events:
            self.apply(g.decode_gate_event(encoded), encoded)

    def snapshot(self) -> bytes:
        """Returns all of the state, in an encoding that depends on nothing but the state."""
        return _encode_state(self.state)

    @classmethod
    def restore(cls, snapshot: bytes, settings: GateSettings | None = None) -> GateJobTracker:
        """Returns the tracker that `snapshot` was taken of."""
        try:
            state = _state_decoder.decode(snapshot)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineVersionError(f"a snapshot of a gate's jobs cannot be read: {error}") from error
        if state.version > SNAPSHOT_VERSION:
            raise EngineVersionError(
                f"the snapshot has version {state.version}, and this Tenure reads up to {SNAPSHOT_VERSION}",
                remedy="Start the newer version again",
            )
        return cls(settings, state)

    def history(self, job_id: str) -> list[g.GateEvent]:
        return [g.decode_gate_event(encoded) for encoded in self.job(job_id).history]

    def heard_progress(self, job_id: str, datacenter: str, now: float) -> None:
        """Notes that a report showed progress. The shell calls it for every such report that `decide_gate` did not refuse."""
        self.fresh[(job_id, datacenter)] = now

    def last_progress(self, info: GateJobTrackingInfo, datacenter: str) -> float:
        """Returns where a datacenter's stuck clock starts: its newest progress, but not before this gate took over."""
        return max(info.dc_last_progress[datacenter], info.resumed_at, self.fresh.get((info.job_id, datacenter), 0.0))

    def deadline(self, info: GateJobTrackingInfo) -> float:
        """Returns the deadline. The largest extension that any datacenter granted moves it, and so does a delayed start."""
        begins = info.submitted_at + (info.submission.delay if info.submission else 0.0)
        return begins + info.timeout_seconds + max(info.dc_extensions.values(), default=0.0)

    def all_stuck_at(self, info: GateJobTrackingInfo) -> float:
        """Returns when every running datacenter will have been without progress for the threshold; `NEVER` when none runs."""
        running = info.running
        if not running:
            return NEVER
        return max(self.last_progress(info, dc) for dc in running) + self.settings.stuck_threshold

    def next_due(self, job_id: str) -> float:
        """Returns the next time at which checking this job can matter; 0 when it is due at once."""
        info = self.job(job_id)
        if info.state.terminal or info.decided is not None:
            return NEVER
        if info.dc_timeouts or JobState.TIMED_OUT in info.dc_status.values():
            return 0.0
        # The checks compare strictly, so the first instant after the deadline is the one that matters.
        return math.nextafter(min(self.deadline(info), self.all_stuck_at(info)), NEVER)

    def forget_fresh(self, job_id: str, datacenters: Iterable[str]) -> None:
        for datacenter in datacenters:
            self.fresh.pop((job_id, datacenter), None)

    def note_decided(self) -> None:
        self._ending += 1

    def note_ended(self, info: GateJobTrackingInfo) -> None:
        self._ending -= info.decided is not None
        self._ended_as[info.standing] += 1

    def note_archived(self, info: GateJobTrackingInfo) -> None:
        self._ended_as[info.standing] -= 1

    def _note(self, event: Event, encoded: bytes | None) -> None:
        job_id = getattr(event, "job_id", None)
        if job_id is None or type(event) is g.GateJobAccepted:
            return
        info = self.state.jobs.get(job_id)
        if info is None:
            return
        info.history.append(encoded or encode_event(event))
        limit = self.settings.history_limit
        if len(info.history) > limit:
            del info.history[limit // 10]
            info.elided += 1


def gate_elected(tracker: GateJobTracker, event: g.GateElected) -> None:
    tracker.state.epoch, tracker.state.gate = event.epoch, event.gate
    for info in tracker.jobs.values():
        if not info.state.terminal:
            # The progress that the last gate held in `fresh` is lost, so the stuck clocks start at the takeover.
            info.resumed_at = event.at


def open_job(
    job_id: str, at: float, timeout_seconds: float, targets: Iterable[str], *, submitted_at: float
) -> GateJobTrackingInfo:
    datacenters = list(targets)
    return GateJobTrackingInfo(
        job_id=job_id,
        submitted_at=submitted_at,
        timeout_seconds=timeout_seconds,
        target_datacenters=datacenters,
        dc_status=dict.fromkeys(datacenters, JobState.RUNNING),
        dc_last_progress=dict.fromkeys(datacenters, at),
        dc_fence_tokens=dict.fromkeys(datacenters, 0),
        dc_heard=dict.fromkeys(datacenters, False),
    )


def job_accepted(tracker: GateJobTracker, event: g.GateJobAccepted) -> None:
    submission = event.submission
    info = open_job(event.job_id, event.at, submission.timeout_seconds, event.target_datacenters, submitted_at=event.at)
    info.submission, info.digest = submission, event.digest
    tracker.jobs[event.job_id] = info
    tracker.state.tombstones.pop(event.job_id, None)
    if submission.idempotency_key:
        tracker.keys[submission.idempotency_key] = event.job_id


def job_rebuilt(tracker: GateJobTracker, event: g.GateJobRebuilt) -> None:
    tracker.jobs[event.job_id] = open_job(
        event.job_id, event.at, event.timeout_seconds, event.target_datacenters, submitted_at=event.submitted_at
    )
    tracker.state.tombstones.pop(event.job_id, None)


def hear(
    tracker: GateJobTracker, info: GateJobTrackingInfo, event: g.DatacenterReported | g.DatacenterTimedOut
) -> None:
    """Folds the part that every report of a datacenter has: its token, its extensions and its manager's address."""
    dc = event.datacenter
    # A gate that lost its journal cannot tell an old report from a new one. A report that carries this gate's own epoch was
    # sent under it; until one comes, the gate goes on asking.
    if info.submission is not None or event.gate_epoch >= tracker.epoch:
        info.dc_heard[dc] = True
    info.dc_fence_tokens[dc] = max(info.dc_fence_tokens[dc], event.token)
    if event.extensions > info.dc_extensions.get(dc, 0.0):
        info.dc_extensions[dc] = event.extensions
    if event.manager_addr is not None:
        info.dc_manager_addrs[dc] = event.manager_addr


def datacenter_reported(tracker: GateJobTracker, event: g.DatacenterReported) -> None:
    info = tracker.job(event.job_id)
    hear(tracker, info, event)
    dc = event.datacenter
    if event.status.terminal:
        check_job_transition(f"{event.job_id} in {dc}", info.dc_status[dc], event.status)
        info.dc_status[dc] = event.status
        tracker.forget_fresh(event.job_id, [dc])
    if event.progressed:
        info.dc_last_progress[dc] = max(info.dc_last_progress[dc], event.at)


def datacenter_timed_out(tracker: GateJobTracker, event: g.DatacenterTimedOut) -> None:
    info = tracker.job(event.job_id)
    hear(tracker, info, event)
    info.dc_timeouts[event.datacenter] = event.token


def decision_made(tracker: GateJobTracker, event: g.GlobalDecisionMade) -> None:
    info = tracker.job(event.job_id)
    assert info.decided is None, "a global decision is made once"
    info.decided, info.decided_at, info.decided_from_reports = event.state, event.at, event.from_reports
    info.decided_reason = event.reason
    info.timeout_fence_token += 1
    tracker.note_decided()
    if event.state is JobState.TIMED_OUT:
        info.globally_timed_out, info.timeout_reason = True, event.reason


def job_ended(tracker: GateJobTracker, event: g.GateJobEnded) -> None:
    info = tracker.job(event.job_id)
    check_job_transition(event.job_id, info.state, event.state)
    info.state, info.reason, info.ended_at = event.state, event.reason, event.at
    tracker.ended[event.job_id] = None
    tracker.note_ended(info)


def tombstone_set(tracker: GateJobTracker, event: g.GateTombstoneSet) -> None:
    tracker.state.tombstones[event.job_id] = Tombstone(
        at=event.at, state=JobState.CANCELLED, reason=event.reason, by=event.by
    )


def job_archived(tracker: GateJobTracker, event: g.GateJobArchived) -> None:
    info = tracker.jobs.pop(event.job_id)
    tracker.note_archived(info)
    tracker.ended.pop(event.job_id, None)
    tracker.forget_fresh(event.job_id, info.target_datacenters)
    tracker.state.archive[event.job_id] = ArchivedJob(
        state=info.state,
        ended_at=info.ended_at,
        archived_at=event.at,
        digest=info.digest,
        idempotency_key=info.submission.idempotency_key if info.submission else "",
    )
    for job_id in event.forget:
        drop_archived(tracker, job_id)
        tracker.state.forgotten_early += 1


def drop_archived(tracker: GateJobTracker, job_id: str) -> None:
    archived = tracker.state.archive.pop(job_id)
    if tracker.keys.get(archived.idempotency_key) == job_id:
        del tracker.keys[archived.idempotency_key]


def forgotten(tracker: GateJobTracker, event: g.GateForgotten) -> None:
    archive, stones = tracker.state.archive, tracker.state.tombstones
    while archive and archive[job_id := next(iter(archive))].archived_at <= event.until:
        drop_archived(tracker, job_id)
    while stones and stones[job_id := next(iter(stones))].at <= event.until:
        del stones[job_id]


GATE_FOLD: Mapping[type[Event], Callable[[GateJobTracker, Any], None]] = {
    g.GateElected: gate_elected,
    g.GateJobAccepted: job_accepted,
    g.GateJobRebuilt: job_rebuilt,
    g.DatacenterReported: datacenter_reported,
    g.DatacenterTimedOut: datacenter_timed_out,
    g.GlobalDecisionMade: decision_made,
    g.GateJobEnded: job_ended,
    g.GateTombstoneSet: tombstone_set,
    g.GateJobArchived: job_archived,
    g.GateForgotten: forgotten,
}
