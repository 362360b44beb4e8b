"""Holds a gate's view of its jobs across all datacenters (document 002, part 5): the fold over the gate's journal.

Only `GateJobTracker.apply` changes the state. Progress that the gate has heard of and not journaled (the moments, by its own
clock) is beside the state, in `fresh`, and dies with the gate's term.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

from tenure.jobs.deadlines import NEVER, job_bound
from tenure.jobs.decisions import Event, encode_event
from tenure.jobs.fold import SNAPSHOT_VERSION, JournalFold, read_snapshot
from tenure.jobs.gate_jobs import GateJobAccepted
from tenure.jobs.messages import JobProgressReport
from tenure.jobs.model import ArchivedJob, GateJobTrackingInfo, Tombstone, wall
from tenure.jobs.settings import GateSettings
from tenure.jobs.states import JobState
from tenure.jobs.topics import GATE_EVENT_DECODER, GATE_FOLD


class GateState(msgspec.Struct, kw_only=True):
    """The contents of a snapshot."""

    version: int = SNAPSHOT_VERSION
    epoch: int = 0
    leader: str = msgspec.field(default="", name="gate")
    jobs: dict[str, GateJobTrackingInfo] = {}
    archive: dict[str, ArchivedJob] = {}
    tombstones: dict[str, Tombstone] = {}
    forgotten_early: int = 0


_encode_state = msgspec.msgpack.Encoder().encode
_state_decoder = msgspec.msgpack.Decoder(GateState)


class GateJobTracker(JournalFold[GateState, GateJobTrackingInfo]):
    """Holds every job that this gate cluster owns."""

    folds = GATE_FOLD
    decoder = GATE_EVENT_DECODER

    def __init__(self, settings: GateSettings | None = None, state: GateState | None = None) -> None:
        state = state or GateState()
        super().__init__(state, state.jobs)
        self.settings = settings or GateSettings()
        self.fresh: dict[tuple[str, str], float] = {}
        """Maps (job, datacenter) to the time at which the gate last heard of progress. It may be newer than the journaled time."""
        self.heard: dict[tuple[str, str], float] = {}
        """Maps (job, datacenter) to the time of the last report that told all about the deadline there. It dies with the gate's term, too."""
        self.ended: dict[str, None] = {job_id: None for job_id, info in self.jobs.items() if info.state.terminal}
        self._ending = sum(info.standing == "ending" for info in self.jobs.values())
        self._ended_as: Counter[str] = Counter(self.jobs[job_id].standing for job_id in self.ended)
        for job_id, info in self.jobs.items():
            if info.submission and info.submission.idempotency_key:
                self.keys[info.submission.idempotency_key] = job_id

    @property
    def standings(self) -> Counter[str]:
        """Counts the jobs of each standing. Its cost does not depend on the number of jobs."""
        running = len(self.jobs) - len(self.ended) - self._ending
        return Counter({"running": running, "ending": self._ending, **self._ended_as})

    def snapshot(self) -> bytes:
        """Returns all of the state, in an encoding that depends on nothing but the state."""
        return _encode_state(self.state)

    @classmethod
    def restore(cls, snapshot: bytes, settings: GateSettings | None = None) -> GateJobTracker:
        """Returns the tracker that `snapshot` was taken of."""
        state = read_snapshot(_state_decoder, snapshot, "a gate's jobs")
        return cls(settings, state)

    def heard_report(self, report: JobProgressReport, now: float) -> None:
        """Notes that a datacenter reported. One that may still grant time past the deadline has not told all: its next report will."""
        if not report.may_earn:
            self.heard[(report.job_id, report.datacenter)] = now

    def heard_progress(self, job_id: str, datacenter: str, now: float) -> None:
        """Notes that a report showed progress. The shell calls it for every such report that `decide_gate` did not refuse."""
        self.fresh[(job_id, datacenter)] = now

    def last_progress(self, info: GateJobTrackingInfo, datacenter: str) -> float:
        """Returns where a datacenter's stuck clock starts: its newest progress, but not before this gate took over."""
        return max(info.dc_last_progress[datacenter], info.resumed_at, self.fresh.get((info.job_id, datacenter), 0.0))

    def deadline(self, info: GateJobTrackingInfo, *, running: bool = False) -> float:
        """Returns the deadline; `NEVER` while the job is paused, unless `running` asks for it as if it were not. The largest extension that any
        datacenter granted moves it, within the job's one series, and so do a delayed start and its pauses."""
        if info.pause is not None and not running:
            return NEVER
        begins = info.submitted_at + (info.submission.delay if info.submission else 0.0)
        return begins + wall(info.timeout_seconds) + self.earned(info) + info.paused_s

    def earned(self, info: GateJobTrackingInfo) -> float:
        """Returns the seconds that the job earned past its deadline: in the datacenter that granted most, and at most what one job can earn."""
        return min(max(info.dc_extensions.values(), default=0.0), self._most_earned(info))

    def _most_earned(self, info: GateJobTrackingInfo) -> float:
        # One that was rebuilt from reports is not known to have a bound: reports do not tell its grace.
        return job_bound(info.submission.grace_s) if info.submission is not None else math.inf

    def closes_at(self, info: GateJobTrackingInfo) -> float:
        """Returns when the gate may declare the deadline: once every running datacenter has reported since, or after two report intervals.

        A datacenter grants time until the last moment. Its report of that may be on its way, or wait for a gate that is just taking over.
        """
        due = self.deadline(info)
        if self.earned(info) >= self._most_earned(info) or all(
            self.heard.get((info.job_id, dc), 0.0) > due for dc in info.running
        ):
            return due
        return max(due, info.resumed_at) + 2 * self.settings.report_interval

    def all_stuck_at(self, info: GateJobTrackingInfo) -> float:
        """Returns when every running datacenter will have been without progress for the threshold; `NEVER` when none runs, or the job is paused."""
        running = info.running
        if not running or info.pause is not None:
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
        return math.nextafter(min(self.closes_at(info), self.all_stuck_at(info)), NEVER)

    def forget_fresh(self, job_id: str, datacenters: Iterable[str]) -> None:
        for datacenter in datacenters:
            self.fresh.pop((job_id, datacenter), None)
            self.heard.pop((job_id, datacenter), None)

    def note_decided(self) -> None:
        self._ending += 1

    def note_ended(self, info: GateJobTrackingInfo) -> None:
        self._ending -= info.decided is not None
        self._ended_as[info.standing] += 1

    def note_archived(self, info: GateJobTrackingInfo) -> None:
        self._ended_as[info.standing] -= 1

    def folded(self, event: Event, encoded: bytes | None) -> None:
        job_id = getattr(event, "job_id", None)
        # The job itself holds its submission.
        if job_id is None or type(event) is GateJobAccepted or not self.settings.history_limit:
            return
        info = self.state.jobs.get(job_id)
        if info is None:
            return
        info.history.append(encoded or encode_event(event))
        limit = self.settings.history_limit
        if len(info.history) > limit:
            del info.history[limit // 10]
            info.elided += 1
