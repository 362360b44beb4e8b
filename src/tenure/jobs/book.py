"""Holds the state of a datacenter's jobs: the fold over its journal, its snapshot, and the indexes that answer questions fast.

Only `apply` changes the state. Indexes are derived: `restore` rebuilds them from the state, and they are
never part of a snapshot. Two books that folded the same events have the same snapshot, byte for byte, whether or not
one of them was restored on the way.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator

import msgspec

from tenure.errors import EngineVersionError, UnknownJobError
from tenure.jobs.events import Event, ManagerEvent, decode_event, encode_event
from tenure.jobs.fold import FOLD
from tenure.jobs.model import (
    ArchivedJob,
    DrainRecord,
    JobInfo,
    QueueRecord,
    Tombstone,
    WorkerRecord,
    Workflow,
)
from tenure.jobs.schedule import ScheduleRecord
from tenure.jobs.settings import JobSettings
from tenure.jobs.state_size import StateSize
from tenure.jobs.states import WorkflowState
from tenure.jobs.timers import Timers

SNAPSHOT_VERSION = 1

HISTORY_SHARE = 4
"""The histories of all jobs together take at most one part in HISTORY_SHARE of the budget. Beyond it, each takes `SHORT_HISTORY_BYTES`."""
SHORT_HISTORY_BYTES = 512

WorkflowKey = tuple[str, str]
"""(job id, workflow name)."""
Lane = tuple[str, int]
"""(queue, priority)."""


class BookState(msgspec.Struct, kw_only=True):
    """The contents of a snapshot. Dictionaries keep the order in which things happened; `fold.forgotten` relies on it."""

    version: int = SNAPSHOT_VERSION
    epoch: int = 0
    leader: str = ""
    elected_at: float = 0.0
    jobs: dict[str, JobInfo] = {}
    archive: dict[str, ArchivedJob] = {}
    tombstones: dict[str, Tombstone] = {}
    schedules: dict[str, ScheduleRecord] = {}
    workers: dict[str, WorkerRecord] = {}
    queues: dict[str, QueueRecord] = {}
    drained: dict[str, DrainRecord] = {}
    """Maps the name of each worker that an operator drained to the record of it."""
    forgotten_early: int = 0
    """The number of ids that left memory before their time because there were too many."""


_encode_state = msgspec.msgpack.Encoder().encode
_state_decoder = msgspec.msgpack.Decoder(BookState)


class JobBook:
    """Holds every job that this datacenter knows."""

    def __init__(
        self, settings: JobSettings | None = None, state: BookState | None = None, *, state_bytes: int | None = None
    ) -> None:
        self.settings = settings or JobSettings()
        self.state = state or BookState()
        self.size = StateSize(self.state, state_bytes)
        """Counts the bytes that a snapshot has at most."""
        self.resting: Timers[WorkflowKey] = Timers()
        """Workflows whose attempt is decided and not recorded as sent, until their `not_before` comes."""
        self.ready: dict[Lane, dict[WorkflowKey, None]] = {}
        """Workflows whose `not_before` has come, oldest first in each lane. `wake` moves them here from `resting`."""
        self.queued: dict[Lane, dict[WorkflowKey, None]] = {}
        """Attempts in the engine that no worker has started, oldest first in each lane."""
        self.on_worker: dict[str, dict[WorkflowKey, None]] = {}
        """Maps each worker to the attempts that it has started and not ended."""
        self.in_queue: dict[str, int] = {}
        """Maps each queue to the number of its attempts that are in the engine or running."""
        self.uncleaned: dict[str, None] = {}
        """Ended jobs whose messages the leader has not confirmed as revoked."""
        self.ended: dict[str, None] = {}
        """Ended jobs that are not archived, in the order of their end."""
        self.expiring: Timers[str] = Timers()
        """Ended jobs whose submission limits how long results are kept, each with the time at which they expire."""
        self.keys: dict[str, str] = {}
        """Maps each idempotency key to the id of its job, in memory or archived."""
        self._index()

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def jobs(self) -> dict[str, JobInfo]:
        return self.state.jobs

    def job(self, job_id: str) -> JobInfo:
        """Returns the job, or raises `UnknownJobError`."""
        info = self.state.jobs.get(job_id)
        if info is None:
            raise UnknownJobError(job_id)
        return info

    def apply(self, event: Event, encoded: bytes | None = None) -> None:
        """Folds one event. A caller that has it `encoded` passes that, which saves encoding it again for the job's history."""
        fold = FOLD.get(type(event))
        if fold is None:
            raise EngineVersionError(f"this Tenure cannot fold a {type(event).__name__}")
        fold(self, event)
        self.size.folded(event)
        if self.settings.history_limit:
            self._note(event, encoded)

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def replay(self, encoded_events: Iterable[bytes]) -> None:
        """Folds events as the journal keeps them."""
        for encoded in encoded_events:
            self.apply(decode_event(encoded), encoded)

    def snapshot(self) -> bytes:
        """Returns all of the state, in an encoding that depends on nothing but the state."""
        state = _encode_state(self.state)
        self.size.measured(len(state))
        return state

    def measure(self) -> None:
        """Makes `size` exact. It costs about 2 ms for each megabyte."""
        self.snapshot()

    @classmethod
    def restore(cls, snapshot: bytes, settings: JobSettings | None = None) -> JobBook:
        """Returns the book that `snapshot` was taken of."""
        try:
            state = _state_decoder.decode(snapshot)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineVersionError(f"a snapshot of jobs cannot be read: {error}") from error
        if state.version > SNAPSHOT_VERSION:
            raise EngineVersionError(
                f"the snapshot has version {state.version}, and this Tenure reads up to {SNAPSHOT_VERSION}",
                remedy="Start the newer version again",
            )
        return cls(settings, state, state_bytes=len(snapshot))

    def live_jobs(self) -> Iterator[JobInfo]:
        return (info for info in self.state.jobs.values() if not info.state.terminal)

    def history(self, job_id: str) -> list[ManagerEvent]:
        """Returns the events of a job that are still in memory, oldest first. `JobInfo.elided` counts those that are not."""
        return [decode_event(encoded) for encoded in self.job(job_id).history]

    # The fold calls `moved` and `left_worker` to keep the indexes right; the outbox calls `wake`.

    def moved(self, info: JobInfo, workflow: Workflow, old: WorkflowState) -> None:
        """Updates the indexes after a workflow has changed its state."""
        key = (info.id, workflow.spec.name)
        new = workflow.state
        if old is WorkflowState.PENDING:
            self.resting.cancel(key)
            if lane := self.ready.get(lane_of(info)):
                lane.pop(key, None)
        if old is WorkflowState.QUEUED:
            self.queued[lane_of(info)].pop(key, None)
        elif new is WorkflowState.QUEUED:
            self.queued.setdefault(lane_of(info), {})[key] = None
        if new is WorkflowState.PENDING:
            self.resting.set(key, workflow.not_before)
        was = old is WorkflowState.QUEUED or old is WorkflowState.RUNNING
        now = new is WorkflowState.QUEUED or new is WorkflowState.RUNNING
        if was != now:
            queue = info.job.submission.queue
            self.in_queue[queue] = self.in_queue.get(queue, 0) + (1 if now else -1)

    def wake(self, now: float, *, skip: Container[str] = (), failed: dict[str, Exception] | None = None) -> None:
        """Moves the attempts whose rest is over from `resting` to their lanes in `ready`. It costs only what is due.

        As in `outbox.to_dispatch`, it leaves out the jobs in `skip`. Where `failed` is given, a job whose lane raises goes into it.
        """
        for key in self.resting.pop_due(now):
            if key[0] in skip:
                continue
            try:
                self.ready.setdefault(lane_of(self.state.jobs[key[0]]), {})[key] = None
            except Exception as error:
                if failed is None:
                    raise
                failed[key[0]] = error
                self.resting.set(key, now)

    def left_worker(self, worker: str, key: WorkflowKey) -> None:
        held = self.on_worker.get(worker)
        if held is not None:
            held.pop(key, None)
            if not held:
                del self.on_worker[worker]

    def _index(self) -> None:
        for job_id, info in self.state.jobs.items():
            if key := info.job.submission.idempotency_key:
                self.keys[key] = job_id
            if info.state.terminal:
                self.ended[job_id] = None
                self.expiring.set(job_id, results_expire_at(info))
                if not info.cleaned:
                    self.uncleaned[job_id] = None
            for name, workflow in info.workflows.items():
                self.moved(info, workflow, WorkflowState.WAITING)
                if workflow.state is WorkflowState.RUNNING:
                    self.on_worker.setdefault(workflow.worker, {})[(job_id, name)] = None
        for job_id, archived in self.state.archive.items():
            if archived.idempotency_key:
                self.keys[archived.idempotency_key] = job_id

    def _note(self, event: Event, encoded: bytes | None) -> None:
        """Keeps the event with the jobs that it is about, so that `why` survives snapshots and truncation."""
        jobs = self.state.jobs
        job_id = getattr(event, "job_id", None)
        if job_id is not None:
            info = jobs.get(job_id)
            if info is not None:
                self._keep(info, encoded or encode_event(event))
            return
        names: Iterable[str] = getattr(event, "jobs", None) or ()
        if type(event).__name__ == "LeaderElected":
            names = [info.id for info in self.live_jobs()]
        if names:
            encoded = encoded or encode_event(event)
            for name in names:
                if info := jobs.get(name):
                    self._keep(info, encoded)

    def _keep(self, info: JobInfo, encoded: bytes) -> None:
        if encoded.startswith(b'{"type":"JobSubmitted"'):
            return  # the job itself holds its submission
        history = info.history
        if encoded.startswith(_PROGRESS) and history and history[-1].startswith(_PROGRESS):
            self.size.line_left(history.pop())  # a run of progress is one line: the newest
            info.elided += 1
        limit = self.settings.history_limit
        if len(history) >= limit:
            # The first events of a job explain its end: keep the first tenth, and drop the oldest line after it.
            self._elide(info, limit // 10)
        if self.size.history + len(encoded) > self.settings.state_budget // HISTORY_SHARE:
            self._elide_all_but(info, SHORT_HISTORY_BYTES - len(encoded))
            if len(encoded) > SHORT_HISTORY_BYTES:
                info.elided += 1
                return
        history.append(encoded)
        self.size.line_came(encoded)

    def _elide(self, info: JobInfo, place: int) -> None:
        self.size.line_left(info.history.pop(place))
        info.elided += 1

    def _elide_all_but(self, info: JobInfo, room: int) -> None:
        """Drops the oldest lines of this history until the rest fits into `room`, because all histories together are at their share."""
        held = sum(map(len, info.history))
        while info.history and held > room:
            held -= len(info.history[0])
            self._elide(info, 0)


def results_expire_at(info: JobInfo) -> float:
    """Returns when the job's results expire. Infinity: they are kept as long as the job's record, or are gone."""
    ttl = info.job.submission.result_ttl
    return math.inf if ttl is None or info.results_expired else info.ended_at + ttl


def lane_of(info: JobInfo) -> Lane:
    submission = info.job.submission
    return submission.queue, submission.priority


_PROGRESS = b'{"type":"ProgressRecorded"'
