"""Workers, as far as it concerns jobs: verdicts, drains, and evictions with their failed attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tenure.jobs import budget
from tenure.jobs.attempt_results import AttemptFailed, RecordFailure, consequence, failed_attempt
from tenure.jobs.budget import WORKER_BYTES, text_bytes
from tenure.jobs.catalogue import drop_registration, worker_came_or_went
from tenure.jobs.decisions import Command, Decides, Decision, Event, Folds, Outcome, Rule, Rules
from tenure.jobs.endings import JobEnded
from tenure.jobs.extensions import jobs_on, worker_record
from tenure.jobs.state_records import EVICTED, DrainRecord, WorkerRecord
from tenure.jobs.states import AttemptCause

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.work_indexes import WorkflowKey


class EvictWorker(Command, frozen=True, kw_only=True):
    """The health rules evict a worker: its attempts fail, and the leader issues them anew."""

    worker: str
    reason: str
    incarnation: str = ""
    marks: Mapping[str, int] = {}
    """The saved work of its attempts by `job/workflow`, as it last reported it: an attempt that saved something new is not charged."""


SILENT_S = 10.0
"""A worker reports every few seconds. One that was not heard for this long is said to be silent, whatever else is wrong with it."""


def words_of_eviction(rule: str, silent_s: float) -> str:
    """Returns why a worker is evicted, for people: they look for a machine that is silent, and not for the rule that found it."""
    return f"nothing was heard of it for {silent_s:.0f} s" if silent_s >= SILENT_S else rule


class JudgeWorker(Command, frozen=True, kw_only=True):
    worker: str
    verdict: str
    reason: str
    incarnation: str = ""


class ForgetWorker(Command, frozen=True, kw_only=True):
    """The worker left, or was evicted long ago and never came back."""

    worker: str
    reason: str


class DrainWorker(Command, frozen=True, kw_only=True):
    """An operator wants a worker to get no more work, or to get work again."""

    worker: str
    drained: bool = True
    reason: str = ""
    within_s: float | None = None
    """The seconds within which what runs there has to leave; None where it may run to its end."""


class WorkerJudged(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The verdict on a worker changed."""

    worker: str
    verdict: str
    reason: str
    incarnation: str = ""
    jobs: tuple[str, ...] = ()

    def growth(self) -> int:
        return text_bytes(self.worker, self.verdict, self.reason, self.incarnation) + WORKER_BYTES


class WorkerEvicted(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A worker was evicted. Its attempts fail in the same append, and are issued anew elsewhere."""

    worker: str
    reason: str
    incarnation: str = ""
    jobs: tuple[str, ...] = ()

    def growth(self) -> int:
        return text_bytes(self.worker, self.reason, self.incarnation) + WORKER_BYTES


class WorkerForgotten(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The leader expects nothing more of a worker. A worker that comes under its name later is new."""

    worker: str
    reason: str = ""


class WorkerDrained(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An operator drained a worker, or undid it. It holds over restarts of the worker, and whatever its health is."""

    worker: str
    drained: bool = True
    reason: str = ""
    until: float = 0.0
    """The time by which what runs there has to leave; 0 where it may run to its end."""

    def growth(self) -> int:
        return text_bytes(self.worker, self.by, self.reason) + 100


def evict_worker(book: JobBook, command: EvictWorker, now: float, rules: Rules) -> Decision:
    """Evicts a worker. Its attempts fail and are issued anew elsewhere, with a higher attempt, all in one append."""
    # Attempts that another incarnation of the worker started are not concerned.
    held = [
        (job_id, name)
        for job_id, name in book.on_worker.get(command.worker, ())
        if not command.incarnation or book.jobs[job_id].workflows[name].incarnation in ("", command.incarnation)
    ]
    record = book.state.workers.get(command.worker)
    if not held and record is None:
        return Decision([], Outcome.NOTHING, Rule.HEALTH, "the worker has nothing and is not known")
    if not held and record and record.verdict == EVICTED and command.incarnation in ("", record.incarnation):
        return Decision([], Outcome.ALREADY, Rule.HEALTH, "it was evicted before")
    evicted = WorkerEvicted(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        incarnation=command.incarnation,
        reason=command.reason,
        jobs=tuple(dict.fromkeys(job_id for job_id, _ in held)),
        evidence=command.evidence,
    )
    events: list[Event] = [evicted, *failed_with_it(book, command, held, now)]
    return Decision(events, Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def failed_with_it(
    book: JobBook, command: EvictWorker, held: list[WorkflowKey], now: float
) -> Iterator[AttemptFailed | JobEnded]:
    """Yields the failure of each attempt that the worker had, and the end of each job that it ends. A job ends at most once."""
    ended: set[str] = set()
    failed_here: Counter[str] = Counter()
    for job_id, name in held:
        if job_id in ended:
            continue  # the end of its job has cancelled it
        info = book.jobs[job_id]
        workflow = info.workflows[name]
        evicted = RecordFailure(
            by=command.by,
            job_id=job_id,
            workflow=name,
            attempt=workflow.attempt,
            cause=AttemptCause.EVICTED,
            worker=command.worker,
            error=command.reason,
            mark=command.marks.get(f"{job_id}/{name}"),
        )
        failed = failed_attempt(book, workflow, evicted, now)
        yield failed
        outcome = consequence(info, workflow, failed, failed_here[job_id])
        failed_here[job_id] += not failed.next_attempt
        if outcome:
            ended.add(job_id)
            yield outcome


def judge_worker(book: JobBook, command: JudgeWorker, now: float, rules: Rules) -> Decision:
    record = book.state.workers.get(command.worker)
    same_start = record is not None and command.incarnation in ("", record.incarnation)
    if record is not None and same_start and record.verdict == command.verdict:
        return Decision([], Outcome.ALREADY, Rule.HEALTH, "the verdict has not changed")
    judged = WorkerJudged(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        verdict=command.verdict,
        reason=command.reason,
        incarnation=command.incarnation,
        jobs=jobs_on(book, command.worker),
        evidence={"previous": record.verdict if record else "unknown", **command.evidence},
    )
    return Decision([judged], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def forget_worker(book: JobBook, command: ForgetWorker, now: float, rules: Rules) -> Decision:
    """Forgets a worker, but never while attempts count as running there: the worker has to be evicted first."""
    if command.worker not in book.state.workers:
        return Decision([], Outcome.NOTHING, Rule.HEALTH, "it is not known")
    if book.on_worker.get(command.worker):
        return Decision([], Outcome.REFUSED, Rule.HEALTH, "attempts of jobs run there")
    event = WorkerForgotten(at=now, by=command.by, rule=Rule.HEALTH, worker=command.worker, reason=command.reason)
    return Decision([event], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def drain_worker(book: JobBook, command: DrainWorker, now: float, rules: Rules) -> Decision:
    """Records that an operator drained a worker, or undid it. The worker need not be known: it may be about to start."""
    name = command.worker
    if command.drained == (name in book.state.drained) and command.within_s is None:
        word = "it is drained already" if command.drained else "it is not drained"
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, word)
    if command.drained:
        budget.check_reserve(book)
    drained = WorkerDrained(
        at=now,
        by=command.by,
        rule=Rule.ASKED,
        worker=name,
        drained=command.drained,
        reason=command.reason[:1_000],
        until=now + command.within_s if command.within_s is not None else 0.0,
    )
    return Decision([drained], Outcome.ACCEPTED, Rule.ASKED)


def worker_judged(book: JobBook, event: WorkerJudged) -> None:
    record = worker_record(book, event.worker)
    if event.incarnation and event.incarnation != record.incarnation:
        # A new incarnation inherits neither the verdict nor the series of extensions of the one before it.
        record = book.state.workers[event.worker] = WorkerRecord(incarnation=event.incarnation)
    record.verdict, record.reason, record.since = event.verdict, event.reason, event.at
    worker_came_or_went(book, event.worker, event.at)


def worker_evicted(book: JobBook, event: WorkerEvicted) -> None:
    record = book.state.workers.get(event.worker)
    if record is not None and event.incarnation and record.incarnation not in ("", event.incarnation):
        return  # the record is of another incarnation, which this eviction does not concern
    # The record stays, so that a new leader, too, tells this incarnation that it was evicted if it ever reports again.
    book.state.workers[event.worker] = WorkerRecord(
        incarnation=event.incarnation, verdict=EVICTED, reason=event.reason, since=event.at
    )
    drop_registration(book, event.worker, event.at, event.incarnation)


def worker_forgotten(book: JobBook, event: WorkerForgotten) -> None:
    book.state.workers.pop(event.worker, None)
    drop_registration(book, event.worker, event.at)


def worker_drained(book: JobBook, event: WorkerDrained) -> None:
    if event.drained:
        book.state.drained[event.worker] = DrainRecord(at=event.at, by=event.by, reason=event.reason, until=event.until)
    else:
        book.state.drained.pop(event.worker, None)


DECIDE: Decides = {
    EvictWorker: evict_worker,
    JudgeWorker: judge_worker,
    ForgetWorker: forget_worker,
    DrainWorker: drain_worker,
}
FOLD: Folds = {
    WorkerJudged: worker_judged,
    WorkerEvicted: worker_evicted,
    WorkerForgotten: worker_forgotten,
    WorkerDrained: worker_drained,
}
