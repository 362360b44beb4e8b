"""Holds the state of a datacenter's jobs: the fold over its journal, its snapshot, and the indexes that answer questions fast.

`JournalFold` has the rules of a fold. The indexes here cost a leader only what is due, however many jobs it holds.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from tenure.jobs.budget import StateSize
from tenure.jobs.catalogue import (
    CatalogueEntry,
    Registration,
    Schemas,
    ServedKey,
    Services,
    WorkerOffer,
    in_words,
    is_served,
    served_key,
)
from tenure.jobs.deadlines import LeaderElected, needs_its_leader, see_election
from tenure.jobs.decisions import Event, encode_event
from tenure.jobs.endings import results_expire_at
from tenure.jobs.fair_lanes import Turns
from tenure.jobs.fold import SNAPSHOT_VERSION, Histories, JournalFold, note_election, read_snapshot
from tenure.jobs.job_records import JobRecords
from tenure.jobs.learned_gaps import LearnedGaps
from tenure.jobs.learned_rates import LearnedRates
from tenure.jobs.model import ArchivedJob, JobInfo, Tombstone, WorkflowRecord
from tenure.jobs.outages import OutageRecord
from tenure.jobs.queues import QueueRecord
from tenure.jobs.settings import MAX_STATE_BUDGET, JobSettings
from tenure.jobs.state_pages import StatePages
from tenure.jobs.state_records import DrainRecord, ScheduleRecord, WorkerRecord
from tenure.jobs.states import WorkflowState
from tenure.jobs.stored_pages import LEVEL, SavedRecords, Section
from tenure.jobs.topics import EVENT_DECODER, FOLD
from tenure.jobs.undo_rules import note_undo
from tenure.jobs.unique_jobs import UniqueJobs, unique_name
from tenure.jobs.unsigned_results import UnsignedIndex
from tenure.jobs.waits import in_words_of_wait
from tenure.jobs.work_indexes import (
    Lane,
    NeedsTable,
    QueuedWork,
    RestingWork,
    WaitIndex,
    WaitingWork,
    WorkflowKey,
    WorkNeeds,
    lane_of,
)
from tenure.timers import Timers


class BookState(msgspec.Struct, kw_only=True):
    """The contents of a snapshot. Dictionaries keep the order in which things happened."""

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
    catalogue: dict[str, dict[str, CatalogueEntry]] = {}
    """Maps the name of each workflow that a worker registered to its versions (see `catalogue.py`)."""
    offers: dict[str, WorkerOffer] = {}
    registered: dict[str, Registration] = {}
    """Maps each worker to what it registered."""
    schemas: Schemas = {}
    """Maps the hash of each schema of arguments to the schema."""
    outages: dict[str, OutageRecord] = {}
    """Maps the name of everything that is down to its record."""
    rates: LearnedRates = msgspec.field(default_factory=LearnedRates)
    """Holds the usual duration of each workflow, and the speed of each worker."""
    gaps: LearnedGaps = msgspec.field(default_factory=LearnedGaps)
    """Holds how long healthy attempts of each workflow are silent."""
    forgotten_early: int = 0
    """The number of ids that left memory before their time because there were too many."""
    places: int = 0  # those that were given (`WorkflowRecord.place`)


_encode_state = msgspec.msgpack.Encoder().encode
_state_decoder = msgspec.msgpack.Decoder(BookState)


class JobBook(JournalFold[BookState, JobInfo]):
    """Holds every job that this datacenter knows."""

    folds = FOLD
    decoder = EVENT_DECODER

    def __init__(
        self, settings: JobSettings | None = None, state: BookState | None = None, *, state_bytes: int | None = None
    ) -> None:
        state = state or BookState()
        self.jobs: JobRecords
        super().__init__(state, JobRecords(state.jobs))
        self.settings = settings or JobSettings()
        self.size = StateSize(state, state_bytes)
        """Counts the bytes that a snapshot has at most."""
        self.histories = Histories(self)
        self._pages: StatePages | None = None
        self.needs = NeedsTable()
        self.resting = RestingWork()
        """Workflows whose attempt is decided and not recorded as sent, until their `not_before` comes."""
        self.ready: dict[Lane, WaitingWork] = {}
        """Workflows whose `not_before` has come, oldest first in each lane. `wake` moves them here from `resting`."""
        self.parked: dict[ServedKey, WaitingWork] = {}
        """Workflows whose `not_before` has come and that no worker serves, by what a worker would have to serve. They cost the others nothing."""
        self.services = Services()
        self.lost_at: float | None = state.elected_at
        """When a worker last left that may have been the last to serve something; None when the leader has looked at the engine since."""
        self.queued = QueuedWork()
        self.waits = WaitIndex()
        self.unsigned = UnsignedIndex()
        self.turns = Turns(self)  # the work of `ready` by key, and how much of each key is under way
        self.unique = UniqueJobs(state.archive)
        self.on_worker: dict[str, dict[WorkflowKey, None]] = {}  # the attempts that each has started and not ended
        self.in_queue: dict[str, int] = {}  # of each queue, the attempts that are in the engine or running
        self.uncleaned: dict[str, None] = {}  # ended jobs whose messages the leader has not confirmed as revoked
        self.undoing: dict[str, str] = {}  # live jobs that run compensations, and the job of these
        self.failed_undos: dict[str, float] = {}  # ended ones that could not run them all, and when they ended
        self.paused: dict[str, None] = {}  # live jobs that somebody paused, in the order of their pauses
        self.ended: dict[str, None] = {}  # ended jobs that are not archived, in the order of their end
        self.expiring: Timers[str] = Timers()
        """Ended jobs whose submission limits how long results are kept, each with the time at which they expire."""
        self.attended: dict[str, None] = {}
        """The jobs that a new leader has to look at although nothing of them runs: those with a deadline, a gate or a parent."""
        self.services.restore(self)
        for info in state.jobs.values():
            self.index(info)

    @property
    def pages(self) -> StatePages | None:
        """The pages in which the state is saved; None for a datacenter of format 1."""
        return self._pages

    @pages.setter
    def pages(self, pages: StatePages) -> None:
        self._pages = pages
        self.jobs.attach(pages.sections["jobs"])

    def replay(self, encoded_events: Iterable[bytes]) -> None:
        super().replay(encoded_events)
        self.jobs.pack_if_crowded()

    def folded(self, event: Event, encoded: bytes | None) -> None:
        # Folds count jobs, archived ids, tombstones and schedules themselves.
        if count := event.growth():
            self.size.grew(count)
        if isinstance(event, LeaderElected):
            self._elected(event, encoded)
        elif self.settings.history_limit:
            self.histories.note(event, encoded)
        if job_id := getattr(event, "job_id", None):
            self._attend(job_id, self.jobs.get(job_id))
        if self.pages is not None:
            self.pages.mark(event, encoded, self.position)

    def snapshot(self) -> bytes:
        """Returns all of the state, in an encoding that depends on nothing but the state."""
        state = _encode_state(msgspec.structs.replace(self.state, jobs=self.jobs.whole()))
        self.size.measured(len(state))
        return state

    def measure(self) -> None:
        """Makes `size` exact. It costs about 2 ms for each megabyte. In format 2 each saving measures, and this does nothing."""
        if self.pages is None:
            self.snapshot()

    @classmethod
    def restore(cls, snapshot: bytes, settings: JobSettings | None = None) -> JobBook:
        """Returns the book that `snapshot` was taken of."""
        state = read_snapshot(_state_decoder, snapshot, "jobs")
        return cls(settings, state, state_bytes=len(snapshot))

    @property
    def budget(self) -> int:
        """The bytes of state at which nothing new is accepted."""
        most = self.settings.state_budget
        return most if self.pages is not None else min(most, MAX_STATE_BUDGET)

    def live_jobs(self) -> Iterator[JobInfo]:
        """Yields the jobs that have not ended, for readers: nobody may change them."""
        return (info for info in self.jobs.values() if not info.state.terminal)

    def saved_page(self, section: Section, number: int, members: Sequence[str]) -> SavedRecords:
        """Returns the bytes with which a page is saved."""
        if section == "jobs":
            return self.jobs.saved(number, members)
        records: dict[str, Any] = getattr(self.state, section)
        encoded = _encode_state({name: records[name] for name in members})
        return SavedRecords(zlib.compress(encoded, LEVEL), len(encoded))

    # Folds call these for each record of a job, an archived id or a tombstone that came or left.

    def job_came(self, info: JobInfo) -> None:
        before = self.size.total
        self.size.job_came(info)
        if self.pages is not None:
            self.pages.sections["jobs"].came(info.id, self.size.total - before, self.position)
            self.jobs.placed(info.id)

    def job_left(self, info: JobInfo) -> None:
        self.size.job_left(info)
        self.attended.pop(info.id, None)
        self._left("jobs", info.id)

    def came(self, section: Literal["archive", "tombstones"], job_id: str, record: ArchivedJob | Tombstone) -> None:
        before = self.size.total
        self.size.came(section, job_id, record)
        if self.pages is not None:
            self.pages.sections[section].came(job_id, self.size.total - before, self.position)

    def _left(self, section: Section, job_id: str) -> None:
        if self.pages is not None:
            self.pages.sections[section].left(job_id, self.position)

    def drop_archived(self, job_id: str) -> ArchivedJob:
        archived = super().drop_archived(job_id)
        self.unique.drop(archived.unique, job_id)
        self.size.left("archive", job_id, archived)
        self._left("archive", job_id)
        return archived

    def drop_tombstone(self, job_id: str) -> Tombstone | None:
        stone = super().drop_tombstone(job_id)
        if stone is not None:
            self.size.left("tombstones", job_id, stone)
            self._left("tombstones", job_id)
        return stone

    def _elected(self, event: LeaderElected, encoded: bytes | None) -> None:
        line = (encoded or encode_event(event)) if self.settings.history_limit else b""
        for info in self.jobs.objects():
            if info.state.terminal:
                continue
            see_election(info, event.at)
            if line:
                self.size.elections_came(len(line) - note_election(info, line), 1)
        self.size.elections_came(*self.jobs.saw_election(event.at, line))

    def _attend(self, job_id: str, info: JobInfo | None) -> None:
        if info is None or not needs_its_leader(info):
            self.attended.pop(job_id, None)
        else:
            self.attended[job_id] = None

    # The fold calls `moved` and `left_worker` to keep the indexes right; the outbox calls `wake`.

    def moved(self, info: JobInfo, workflow: WorkflowRecord, old: WorkflowState) -> None:
        """Updates the indexes after a workflow has changed its state."""
        key, new, lane = (info.id, workflow.spec.name), workflow.state, lane_of(info)
        if old is WorkflowState.PENDING:
            self.resting.cancel(key)
            self._unready(info, workflow, key, sent=new is WorkflowState.QUEUED)
        if old is WorkflowState.QUEUED:
            self.queued.drop(key, lane)
        elif new is WorkflowState.QUEUED:
            self.queued.put(key, self.needs.of(lane, workflow))
        if new is WorkflowState.PENDING and info.timeout_tracking.pause is None:
            self._rest(key, info, workflow)
        self.waits.moved(key, workflow, old)
        if old is WorkflowState.RUNNING:
            self.jobs.placed(info.id)
        was = old is WorkflowState.QUEUED or old is WorkflowState.RUNNING
        now = new is WorkflowState.QUEUED or new is WorkflowState.RUNNING
        if was != now:
            self.in_queue[lane[0]] = self.in_queue.get(lane[0], 0) + (1 if now else -1)
            self.turns.count(info, workflow, 1 if now else -1)

    def hold_back(self, info: JobInfo) -> None:
        """Keeps what is pending of a paused job from being dispatched."""
        self.paused[info.id] = None
        for name, workflow in info.workflows.items():
            if workflow.state is WorkflowState.PENDING:
                self.resting.cancel((info.id, name))
                self._unready(info, workflow, (info.id, name))

    def let_go(self, info: JobInfo) -> None:
        """Lets what is pending of a job that was paused be dispatched."""
        self.paused.pop(info.id, None)
        for name, workflow in info.workflows.items():
            if workflow.state is WorkflowState.PENDING:
                self._rest((info.id, name), info, workflow)

    def _rest(self, key: WorkflowKey, info: JobInfo, workflow: WorkflowRecord) -> None:
        self.resting.put(key, self.needs.of(lane_of(info), workflow), workflow.not_before, workflow.place)

    def wake(self, now: float, *, skip: Container[str] = (), failed: dict[str, Exception] | None = None) -> None:
        """Moves the attempts whose rest is over from `resting` to their lanes in `ready`. It costs only what is due.

        As in `outbox.to_dispatch`, it leaves out the jobs in `skip`. Where `failed` is given, a job whose lane raises goes into it.
        """
        for key, needs in self.resting.pop_work(now):
            if key[0] in skip:
                continue
            try:
                self._make_ready(key, needs)
            except Exception as error:
                if failed is None:
                    raise
                failed[key[0]] = error
                self.resting.put(key, needs, now)

    def _make_ready(self, key: WorkflowKey, needs: WorkNeeds) -> None:
        if is_served(self, needs.served, by_workflow=needs.by_workflow):
            self.ready.setdefault(needs.lane, WaitingWork()).put(key, needs)
            self.turns.put(key, needs)
        else:
            self.parked.setdefault(needs.served, WaitingWork()).put(key, needs)

    def _unready(self, info: JobInfo, workflow: WorkflowRecord, key: WorkflowKey, *, sent: bool = False) -> None:
        lane = lane_of(info)
        if waiting := self.ready.get(lane):
            waiting.pop(key)
            self.turns.remove(lane, key, sent=sent)
        if parked := self.parked.get(needs := served_key(lane, workflow)):
            parked.pop(key)
            if not parked:
                del self.parked[needs]

    def sort_parked(self, at: float, *, lost: bool) -> None:
        """Releases the parked work that a worker serves now. With `lost`, parks the ready work that nobody serves any more."""
        for needs in [needs for needs in self.parked if is_served(self, needs, by_workflow=False)]:
            for key, whole in self.parked.pop(needs).items():
                self._make_ready(key, whole)
        if lost:
            self.lost_at = at
            for lane, waiting in list(self.ready.items()):
                self.ready[lane] = WaitingWork()
                self.turns.lanes.pop(lane, None)
                for key, whole in waiting.items():
                    self._make_ready(key, whole)

    def waits_for(self, info: JobInfo, workflow: WorkflowRecord, now: float = 0.0) -> str:
        """Returns what a suspended workflow waits for, or the worker that a parked one needs, in words; nothing for other work."""
        if workflow.state is not WorkflowState.PENDING:
            return in_words_of_wait(workflow)
        needs, key = served_key(lane_of(info), workflow), (info.id, workflow.spec.name)
        if self.resting.due(key) <= now:  # a standby, which wakes nothing: the leader has parked or sent it
            return "" if is_served(self, needs, by_workflow=workflow.by_workflow) else in_words(needs)
        return in_words(needs) if key in self.parked.get(needs, ()) else ""

    def left_worker(self, worker: str, key: WorkflowKey) -> None:
        held = self.on_worker.get(worker)
        if held is not None:
            held.pop(key, None)
            if not held:
                del self.on_worker[worker]

    def index(self, info: JobInfo) -> None:
        """Enters a record that was read back into all indexes. `page_heads` names what it reads off a job that waits."""
        job_id = info.id
        if key := info.job.submission.idempotency_key:
            self.keys[key] = job_id
        self.unique.note(unique_name(info.job.submission), job_id, info.job.submitted_at)
        note_undo(self, info)
        self.unsigned.read(info)
        self._attend(job_id, info)
        if info.state.terminal:
            self.ended[job_id] = None
            self.expiring.set(job_id, results_expire_at(info))
            if not info.cleaned:
                self.uncleaned[job_id] = None
        elif info.timeout_tracking.pause is not None:
            self.paused[job_id] = None
        for name, workflow in info.workflows.items():
            self.moved(info, workflow, WorkflowState.WAITING)
            if workflow.state is WorkflowState.RUNNING:
                self.on_worker.setdefault(workflow.worker, {})[(job_id, name)] = None
