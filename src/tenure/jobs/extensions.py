"""Extensions: the time that a worker earns past its healthcheck deadline (document 000), and a job past its own (document 002, part 8).

They are two series. A worker's grants move its healthcheck deadline and come back to it. A job's grants move the job's deadline, and are counted
for life: one series over all attempts, workers and leaders. A job earns each grant by progress near its deadline, the first one, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tenure.errors import LimitError
from tenure.health.extension import Denial
from tenure.jobs.attempts import progressed
from tenure.jobs.budget import WORKER_BYTES, text_bytes
from tenure.jobs.deadlines import NEVER, deadline, job_bound, near_s, next_grant
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, Outcome, Rule, Rules
from tenure.jobs.model import JobInfo
from tenure.jobs.settings import MOST_EXTENSIONS
from tenure.jobs.state_records import WorkerRecord

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


class GrantExtension(Command, frozen=True, kw_only=True):
    """The health rules granted a worker time past its healthcheck deadline."""

    worker: str
    seconds: float
    count: int
    total: float
    bound: float
    progress: float
    counter: int | None = None
    deadline: float = 0.0
    """The engine's time until which the worker now has time. A new leader goes on from there."""
    reason: str = ""


class DenyExtension(Command, frozen=True, kw_only=True):
    worker: str
    reason: str


class ResetExtensions(Command, frozen=True, kw_only=True):
    worker: str
    reason: str


class ExtendJob(Command, frozen=True, kw_only=True):
    """A worker asks for time past the deadline of a job that it runs."""

    job_id: str
    worker: str
    start: str = ""
    """The incarnation of the worker. Its counters are compared with each other only."""
    counter: int
    """Grows whenever the job advances on this worker: something new where its work counts, a beat where it only beats."""
    since: int = 0
    """The counter when the deadline came near, or when the worker was last answered."""
    progress: float = 0.0
    reason: str = ""
    suspect: str = ""
    """Why the worker is suspect; empty where it is not."""


class ExtensionGranted(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker earned time for itself, or for one of its jobs."""

    worker: str
    seconds: float
    jobs: tuple[str, ...]
    count: int
    total: float
    bound: float
    """The most seconds that the series can add up to."""
    progress: float = 0.0
    counter: int | None = None
    deadline: float = 0.0
    own: bool = False
    """True when only the worker's deadline moves. In journals of earlier releases its grants counted for the jobs that advanced there."""
    job_count: int = 0
    """The number of this grant in the job's own series; 0 for a grant of the worker's. Count, total and deadline are the worker's in any case,
    so that the release before reads them as it wrote them."""
    job_total: float = 0.0
    job_counter: int = 0
    start: str = ""

    def growth(self) -> int:
        return (text_bytes(self.worker) + 9) * (len(self.jobs) + 1) + text_bytes(self.start) + WORKER_BYTES


class ExtensionDenied(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker asked for time, for itself or for one of its jobs, and got none."""

    worker: str
    reason: str
    jobs: tuple[str, ...] = ()
    denial: str = ""
    """The kind of the denial, where the worker asked for a job."""

    def growth(self) -> int:
        return text_bytes(self.worker, self.denial) + WORKER_BYTES


class ExtensionsReset(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The worker completed something, or was healthy for a whole interval: its series starts anew."""

    worker: str

    def growth(self) -> int:
        return text_bytes(self.worker) + WORKER_BYTES


def jobs_on(book: JobBook, worker: str) -> tuple[str, ...]:
    """Returns the jobs with an attempt on this worker, each once."""
    return tuple(dict.fromkeys(job_id for job_id, _ in book.on_worker.get(worker, ())))


def grant_extension(book: JobBook, command: GrantExtension, now: float, rules: Rules) -> Decision:
    if not 0 < command.seconds <= command.bound < float("inf"):
        raise LimitError("seconds", command.seconds, f"above 0 and at most the bound ({command.bound:g} s)")
    granted = ExtensionGranted(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        seconds=command.seconds,
        jobs=jobs_on(book, command.worker),
        count=command.count,
        total=command.total,
        bound=command.bound,
        progress=command.progress,
        counter=command.counter,
        deadline=command.deadline,
        own=True,
        evidence={"reason": command.reason, **command.evidence},
    )
    return Decision([granted], Outcome.ACCEPTED, Rule.HEALTH)


def deny_extension(book: JobBook, command: DenyExtension, now: float, rules: Rules) -> Decision:
    denied = ExtensionDenied(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        reason=command.reason,
        jobs=jobs_on(book, command.worker),
        evidence=command.evidence,
    )
    return Decision([denied], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def reset_extensions(book: JobBook, command: ResetExtensions, now: float, rules: Rules) -> Decision:
    record = book.state.workers.get(command.worker)
    if record is None or record.extension_count == 0:
        return Decision([], Outcome.NOTHING, Rule.HEALTH, "it has used none")
    event = ExtensionsReset(
        at=now, by=command.by, rule=Rule.HEALTH, worker=command.worker, evidence={"reason": command.reason}
    )
    return Decision([event], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


# The series of a job


def extend_job(book: JobBook, command: ExtendJob, now: float, rules: Rules) -> Decision:
    """Grants a job the next extension of its series, or denies it with the reason. A denial is journaled once for each kind, until the next grant."""
    info = book.jobs.get(command.job_id)
    if info is None or info.state.terminal or info.timeout_tracking.locally_timed_out:
        return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, "its job has ended", command.job_id)
    tracking = info.timeout_tracking
    if now < near_since(info):
        return Decision([], Outcome.REFUSED, Rule.FOLLOWED, "the job's deadline is not near", info.id)
    evidence = {
        "progress": command.progress,
        "counter": command.counter,
        "since": command.since,
        "asked_for": command.reason,
        "left_s": round(deadline(tracking) - now, 3),
        **command.evidence,
    }
    if refused := why_denied(info, command):
        events: list[Event] = []
        if refused.kind != tracking.denied:
            denied = ExtensionDenied(
                at=now,
                by=command.by,
                rule=Rule.HEALTH,
                worker=command.worker,
                reason=refused.reason,
                jobs=(info.id,),
                denial=refused.kind,
                evidence=evidence,
            )
            events.append(denied)
        return Decision(events, Outcome.REFUSED, Rule.HEALTH, refused.reason, info.id)
    return Decision([job_grant(book, info, command, now, evidence)], Outcome.ACCEPTED, Rule.HEALTH, "", info.id)


def near_since(info: JobInfo) -> float:
    """Returns when the job's deadline comes near, so that its workers may ask for time; `NEVER` for a job that cannot earn any."""
    due = deadline(info.timeout_tracking)
    return due - near if (near := near_s(info)) else NEVER


class Denied(NamedTuple):
    kind: str
    reason: str


def why_denied(info: JobInfo, command: ExtendJob) -> Denied | None:
    tracking = info.timeout_tracking
    if command.suspect:
        return Denied(Denial.SUSPECT, f"Worker is already marked suspect: {command.suspect}")
    if next_grant(info) <= 0:
        return Denied(Denial.MAXIMUM, f"Maximum extensions ({MOST_EXTENSIONS}) exceeded")
    before = max(command.since, tracking.extended_counter) if tracking.extended_by == command.start else command.since
    if command.counter <= before:
        what = "its last extension" if tracking.extension_count else "its deadline came near"
        return Denied(Denial.NO_PROGRESS, f"No progress since {what}")
    return None


def job_grant(
    book: JobBook, info: JobInfo, command: ExtendJob, now: float, evidence: dict[str, object]
) -> ExtensionGranted:
    tracking, record = info.timeout_tracking, book.state.workers.get(command.worker) or WorkerRecord()
    seconds = next_grant(info)
    return ExtensionGranted(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        seconds=seconds,
        jobs=(info.id,),
        count=record.extension_count,
        total=record.total_extended,
        bound=job_bound(info.job.submission.grace_s),
        progress=record.last_progress,
        counter=record.last_counter,
        deadline=record.deadline,
        job_count=tracking.extension_count + 1,
        job_total=tracking.total_extensions_granted + seconds,
        job_counter=command.counter,
        start=command.start,
        evidence=evidence,
    )


def extension_granted(book: JobBook, event: ExtensionGranted) -> None:
    if event.job_count:
        job_extended(book, event)
        return
    record = worker_record(book, event.worker)
    record.extension_count, record.total_extended = event.count, event.total
    record.last_progress, record.last_counter = event.progress, event.counter
    record.deadline = event.deadline
    for job_id in () if event.own else event.jobs:
        info = book.jobs.get(job_id)
        if info is None or info.state.terminal:
            continue
        tracking = info.timeout_tracking
        given = tracking.extensions_by_worker
        given[event.worker] = min(event.bound, given.get(event.worker, 0.0) + event.seconds)
        tracking.total_extensions_granted = max(given.values())
        progressed(info, event.at)


def job_extended(book: JobBook, event: ExtensionGranted) -> None:
    """Moves the job's deadline. A grant is no progress: the stuck clock goes on (RULINGS, 23)."""
    info = book.jobs.get(event.jobs[0])
    if info is None or info.state.terminal:
        return
    tracking = info.timeout_tracking
    tracking.extension_count, tracking.total_extensions_granted = event.job_count, event.job_total
    tracking.extended_by, tracking.extended_counter = event.start, event.job_counter
    tracking.denied = ""


def extension_denied(book: JobBook, event: ExtensionDenied) -> None:
    if not event.denial:
        worker_record(book, event.worker)
    elif (info := book.jobs.get(event.jobs[0])) is not None:
        info.timeout_tracking.denied = event.denial


def extensions_reset(book: JobBook, event: ExtensionsReset) -> None:
    record = worker_record(book, event.worker)
    record.extension_count, record.total_extended = 0, 0.0
    record.last_progress, record.last_counter = 0.0, None


def worker_record(book: JobBook, worker: str) -> WorkerRecord:
    record = book.state.workers.get(worker)
    if record is None:
        record = book.state.workers[worker] = WorkerRecord()
    return record


DECIDE: Decides = {
    GrantExtension: grant_extension,
    DenyExtension: deny_extension,
    ResetExtensions: reset_extensions,
    ExtendJob: extend_job,
}
FOLD: Folds = {
    ExtensionGranted: extension_granted,
    ExtensionDenied: extension_denied,
    ExtensionsReset: extensions_reset,
}
