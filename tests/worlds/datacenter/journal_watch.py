"""The observer of the journal: reads it as it grows, entry by entry, and says what no journal may say.

It has its own small memory of each job and does not ask the core what is right: that is what is being tested. The core's book is folded
beside it for whoever wants to know how things stand.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.engines.contracts import Entry, Journal, Snapshot, Store
from tenure.jobs import JobBook
from tenure.jobs.attempt_results import AttemptFailed, WorkflowCompleted
from tenure.jobs.attempts import ProgressRecorded, WorkflowStarted
from tenure.jobs.deadlines import LeaderElected
from tenure.jobs.decisions import Event, Rule
from tenure.jobs.endings import JobArchived, JobCleaned, JobEnded, TombstoneSet
from tenure.jobs.extensions import ExtensionGranted, ExtensionsReset
from tenure.jobs.model import wall
from tenure.jobs.paged_book import PagedRestore
from tenure.jobs.state_pages import is_paged
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.steering import JobPaused, JobResumed, JobRetimed
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.topics import decode_event
from tenure.jobs.workers import WorkerEvicted
from tenure.nodes.journal_checksum import entry_damage, is_checked, opened
from tenure.nodes.manager.ledger import JOURNAL
from tenure.nodes.state_saving import read_pages_now
from tests.changed import changed
from tests.worlds.datacenter.times import EXTENSION_BOUND_S, LATE_S

COUNTED = ("state", "cause", "rule")
Require = Callable[[object, str], None]
ATTEMPTS = frozenset({WorkflowStarted, ProgressRecorded, WorkflowCompleted, AttemptFailed})


@dataclass
class Track:
    """What the journal has said of one workflow."""

    attempt: int = 1
    delivery: int = 0
    worker: str = ""
    incarnation: str = ""
    ended: str = ""
    excluded: set[str] = field(default_factory=set)


@dataclass
class Account:
    """What the journal has said of one job."""

    begins: float
    timeout: float
    ended: JobState | None = None
    cleaned: bool = False
    paused_at: float | None = None
    tracks: dict[str, Track] = field(default_factory=dict)

    @property
    def deadline(self) -> float:
        return self.begins + self.timeout if self.paused_at is None else math.inf


class JournalWatch:
    """`catch_up` after each event of a run."""

    def __init__(
        self, journal: Journal, pages: Store, require: Require, disturbed: Callable[[float, float], float]
    ) -> None:
        self._journal, self._pages, self._require, self._disturbed = journal, pages, require, disturbed
        self.book = JobBook()
        self.accounts: dict[str, Account] = {}
        self.tombstones: dict[str, JobState] = {}
        self.lost: set[tuple[str, str, int, str]] = set()
        """(job, workflow, attempt, incarnation) of what workers had when they were evicted."""
        self.posted: dict[tuple[str, str, int], float] = {}
        """(job, workflow, attempt) of results that the engine holds or held, and when each came."""
        self.seen: Counter[str] = Counter()
        """How often each kind of event was written, by its state, its cause and its rule."""
        self.epoch = self.seq = 0
        self.elected_at = 0.0
        self._series: dict[str, float] = {}
        self.entries: dict[int, Sequence[bytes]] = {}
        """What came since the last snapshot."""
        self._snapshot = Snapshot(seq=0, epoch=0, state=b"")
        self._judges: dict[type[Event], Callable[[Any], None]] = {
            JobSubmitted: self._submitted,
            WorkflowStarted: self._started,
            ProgressRecorded: self._progress,
            WorkflowCompleted: self.completed,
            AttemptFailed: self._failed,
            JobEnded: self.ended,
            JobCleaned: self._cleaned,
            JobArchived: self._archived,
            TombstoneSet: self._tombstone,
            ExtensionGranted: self._granted,
            ExtensionsReset: self._reset,
            WorkerEvicted: self._evicted,
            JobPaused: self._paused,
            JobResumed: self._resumed,
            JobRetimed: self._retimed,
        }

    def catch_up(self) -> None:
        if self._journal.head().seq != self.seq:
            for entry in self._journal.read(self.seq):
                self.entries[entry.seq] = entry.events
                self._judge(entry)
            self._check_snapshot()

    def _check_snapshot(self) -> None:
        """A snapshot, with the pages that it names, is the fold of all entries up to it, byte for byte."""
        found = self._journal.latest_snapshot()
        if found is None or found.seq == self._snapshot.seq:
            return
        self._require(found.seq > self._snapshot.seq, f"a snapshot at {found.seq} replaced a later one")
        whole = opened(found)
        self._require(whole.checked and not whole.damage, f"the snapshot at {found.seq} has no right checksum")
        book = JobBook.restore(self._snapshot.state) if self._snapshot.state else JobBook()
        for seq in range(self._snapshot.seq + 1, found.seq + 1):
            book.replay(self.entries.pop(seq))
        saved = self._saved(found.seq, whole.state)
        self._require(book.snapshot() == saved, f"the snapshot at {found.seq} is not the fold up to there")
        self._snapshot = changed(found, state=saved)

    def _saved(self, seq: int, state: bytes) -> bytes:
        """The whole state that was saved: a snapshot of format 1, or the root of one in pages."""
        if not is_paged(state):
            return state
        self.seen["saved in pages"] += 1
        return read_pages_now(JOURNAL, seq, PagedRestore(state), self._pages).snapshot()

    def _judge(self, entry: Entry) -> None:
        self._require(entry.seq == self.seq + 1, f"entry {entry.seq} follows {self.seq}")
        self._require(is_checked(entry) and not entry_damage(entry), f"entry {entry.seq} has no right checksum")
        events = [decode_event(encoded) for encoded in entry.events]
        first = events[0]
        if isinstance(first, LeaderElected):
            self._require(first.epoch > self.epoch, f"epoch {first.epoch} follows epoch {self.epoch}")
            self.epoch, self.elected_at = first.epoch, first.at
        self._require(entry.epoch == self.epoch, f"a leader of epoch {entry.epoch} wrote under epoch {self.epoch}")
        self.seq = entry.seq
        for event, encoded in zip(events, entry.events, strict=True):
            self._count(event)
            judge = self._judges.get(type(event))
            if judge is not None:
                judge(event)
            self.book.apply(event, encoded)

    def _count(self, event: Event) -> None:
        name = type(event).__name__
        self.seen[name] += 1
        for field_name in COUNTED:
            if (value := getattr(event, field_name, None)) is not None:
                self.seen[f"{name} {value}"] += 1

    # Jobs

    def _submitted(self, event: JobSubmitted) -> None:
        self._require(event.job_id not in self.accounts, f"{event.job_id} was submitted twice")
        submission = event.submission
        self.accounts[event.job_id] = Account(
            begins=event.at + submission.delay,
            timeout=wall(submission.timeout_seconds),
            tracks={spec.name: Track() for spec in submission.workflows},
        )

    def ended(self, event: JobEnded) -> None:
        account = self.accounts[event.job_id]
        before = account.ended
        self._require(before is None, f"{event.job_id} ended as {before}, and then as {event.state}")
        account.ended = event.state
        late = event.at - account.deadline
        if event.rule is Rule.OVERALL_TIMEOUT:
            self._require(late > 0, f"{event.job_id} was timed out {-late:.3f} s before its deadline")
            self._no_result_waits(event.job_id, account)
            self._was_sent(event)
        if late > LATE_S:
            calm = late - self._disturbed(account.deadline, event.at)
            self._require(
                calm <= LATE_S, f"{event.job_id} ended {late:.3f} s after its deadline, {calm:.3f} s of them calm"
            )

    def _paused(self, event: JobPaused) -> None:
        account = self.accounts[event.job_id]
        self._require(account.paused_at is None, f"{event.job_id} was paused twice")
        account.paused_at = event.at

    def _resumed(self, event: JobResumed) -> None:
        account = self.accounts[event.job_id]
        self._require(account.paused_at is not None, f"{event.job_id} was resumed, and was not paused")
        account.begins += event.at - (account.paused_at or event.at)
        account.paused_at = None

    def _retimed(self, event: JobRetimed) -> None:
        self.accounts[event.job_id].timeout = wall(event.timeout_seconds)

    def _no_result_waits(self, job_id: str, account: Account) -> None:
        """A result that was enqueued before the deadline wins over it (rule 5)."""
        for name, track in account.tracks.items():
            came = self.posted.get((job_id, name, track.attempt))
            self._require(
                track.ended or came is None or came > account.deadline,
                f"{job_id} was timed out although the result of {name} had come before its deadline",
            )

    def _was_sent(self, event: JobEnded) -> None:
        """Time may run out for what nobody had room for, not for what nobody sent."""
        for name, workflow in self.book.jobs[event.job_id].workflows.items():
            if workflow.state is WorkflowState.PENDING and event.at - workflow.not_before > LATE_S:
                calm = event.at - workflow.not_before - self._disturbed(workflow.not_before, event.at)
                self._require(calm <= LATE_S, f"{event.job_id}/{name} was never sent, for {calm:.3f} calm seconds")

    def _cleaned(self, event: JobCleaned) -> None:
        self.accounts[event.job_id].cleaned = True

    def _archived(self, event: JobArchived) -> None:
        self._require(self.accounts[event.job_id].ended, f"{event.job_id} was archived before it had ended")

    def _tombstone(self, event: TombstoneSet) -> None:
        self._require(event.job_id not in self.accounts, f"a tombstone was set for {event.job_id}, which is known")
        self.tombstones[event.job_id] = event.state

    # Attempts

    def _track(self, event: Any) -> Track:
        """The workflow that an event is about: its job lives, and the attempt is the one that counts."""
        account = self.accounts[event.job_id]
        what = f"{type(event).__name__} of {event.job_id}/{event.workflow} attempt {event.attempt}"
        self._require(account.ended is None, f"{what} came after its job had ended: {account.ended}")
        track = account.tracks[event.workflow]
        self._require(not track.ended, f"{what} came after its workflow had ended: {track.ended}")
        self._require(event.attempt == track.attempt, f"{what} counts, though attempt {track.attempt} is the one")
        return track

    def _started(self, event: WorkflowStarted) -> None:
        track = self._track(event)
        what = f"{event.job_id}/{event.workflow} attempt {event.attempt}"
        self._require(
            event.delivery >= track.delivery, f"delivery {event.delivery} of {what} follows delivery {track.delivery}"
        )
        self._still_its(event, event.incarnation)
        track.delivery, track.worker, track.incarnation = event.delivery, event.worker, event.incarnation

    def _still_its(self, event: Any, incarnation: str) -> None:
        """What a worker had when it was evicted is no longer its own, whatever it says. What it claims later is."""
        lost = (event.job_id, event.workflow, event.attempt, incarnation) in self.lost
        self._require(not lost, f"{type(event).__name__} of {event.job_id}/{event.workflow} by {incarnation}, evicted")

    def _progress(self, event: ProgressRecorded) -> None:
        if event.workflow:
            self._track(event)

    def completed(self, event: WorkflowCompleted) -> None:
        track = self._track(event)
        what = f"the result of {event.job_id}/{event.workflow} attempt {event.attempt}"
        attempt, delivery, incarnation = event.result["made_by"]
        self._require(attempt == event.attempt, f"{what} was made by attempt {attempt}")
        self._require(delivery >= track.delivery, f"{what} was made by delivery {delivery}, not {track.delivery}")
        self._still_its(event, incarnation)
        track.ended = "completed"

    def _failed(self, event: AttemptFailed) -> None:
        track = self._track(event)
        self._require(
            event.next_attempt in (0, event.attempt + 1),
            f"attempt {event.next_attempt} of {event.job_id}/{event.workflow} follows attempt {event.attempt}",
        )
        if event.exclude:
            track.excluded.add(event.worker)
        if event.next_attempt:
            track.attempt, track.delivery, track.worker, track.incarnation = event.next_attempt, 0, "", ""
        else:
            track.ended = "failed"

    # Workers

    def _granted(self, event: ExtensionGranted) -> None:
        bound = EXTENSION_BOUND_S + 1e-6
        total = self._series[event.worker] = self._series.get(event.worker, 0.0) + event.seconds
        self._require(total <= bound, f"{event.worker} was granted {total:g} s in one series")
        self._require(event.own, f"{event.worker} was granted time for {event.jobs}, which can earn none")

    def _reset(self, event: ExtensionsReset) -> None:
        self._series.pop(event.worker, None)

    def _evicted(self, event: WorkerEvicted) -> None:
        self._series.pop(event.worker, None)
        for job_id in event.jobs:
            for name, track in self.accounts[job_id].tracks.items():
                if track.worker == event.worker and track.incarnation == event.incarnation and not track.ended:
                    self.lost.add((job_id, name, track.attempt, event.incarnation))
