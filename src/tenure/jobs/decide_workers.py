"""Decides about workers, as far as it concerns jobs: verdicts, earned time, and evictions with their failed attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tenure.errors import LimitError
from tenure.jobs import budget
from tenure.jobs import commands as c
from tenure.jobs import events as e
from tenure.jobs.book import JobBook, WorkflowKey
from tenure.jobs.commands import Decision, Outcome
from tenure.jobs.decide_attempts import consequence, failed_attempt
from tenure.jobs.events import Rule
from tenure.jobs.model import EVICTED
from tenure.jobs.rules import Rules
from tenure.jobs.states import AttemptCause


def jobs_on(book: JobBook, worker: str) -> tuple[str, ...]:
    """Returns the jobs with an attempt on this worker, each once."""
    return tuple(dict.fromkeys(job_id for job_id, _ in book.on_worker.get(worker, ())))


def evict(book: JobBook, command: c.EvictWorker, now: float, rules: Rules) -> Decision:
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
    evicted = e.WorkerEvicted(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        incarnation=command.incarnation,
        reason=command.reason,
        jobs=tuple(dict.fromkeys(job_id for job_id, _ in held)),
        evidence=command.evidence,
    )
    events: list[e.Event] = [evicted, *failed_with_it(book, command, held, now)]
    return Decision(events, Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def failed_with_it(
    book: JobBook, command: c.EvictWorker, held: list[WorkflowKey], now: float
) -> Iterator[e.AttemptFailed | e.JobEnded]:
    """Yields the failure of each attempt that the worker had, and the end of each job that it ends. A job ends at most once."""
    ended: set[str] = set()
    failed_here: Counter[str] = Counter()
    for job_id, name in held:
        if job_id in ended:
            continue  # the end of its job has cancelled it
        info = book.jobs[job_id]
        workflow = info.workflows[name]
        evicted = c.RecordFailure(
            by=command.by,
            job_id=job_id,
            workflow=name,
            attempt=workflow.attempt,
            cause=AttemptCause.EVICTED,
            worker=command.worker,
            error=command.reason,
        )
        failed = failed_attempt(book, workflow, evicted, now)
        yield failed
        outcome = consequence(
            info,
            workflow,
            failed,
            completed=info.completed_workflows,
            failed_before=info.failed_workflows + failed_here[job_id],
            open_before=info.open_workflows - failed_here[job_id],
        )
        failed_here[job_id] += not failed.next_attempt
        if outcome:
            ended.add(job_id)
            yield outcome


def judge(book: JobBook, command: c.JudgeWorker, now: float, rules: Rules) -> Decision:
    record = book.state.workers.get(command.worker)
    same_start = record is not None and command.incarnation in ("", record.incarnation)
    if record is not None and same_start and record.verdict == command.verdict:
        return Decision([], Outcome.ALREADY, Rule.HEALTH, "the verdict has not changed")
    judged = e.WorkerJudged(
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


def grant(book: JobBook, command: c.GrantExtension, now: float, rules: Rules) -> Decision:
    if not 0 < command.seconds <= command.bound < float("inf"):
        raise LimitError("seconds", command.seconds, f"above 0 and at most the bound ({command.bound:g} s)")
    live = tuple(
        job_id
        for job_id in dict.fromkeys(command.advanced)
        if (info := book.jobs.get(job_id)) is not None and not info.state.terminal
    )
    granted = e.ExtensionGranted(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        seconds=command.seconds,
        jobs=live,
        count=command.count,
        total=command.total,
        bound=command.bound,
        progress=command.progress,
        counter=command.counter,
        deadline=command.deadline,
        evidence={"reason": command.reason, **command.evidence},
    )
    return Decision([granted], Outcome.ACCEPTED, Rule.HEALTH)


def deny(book: JobBook, command: c.DenyExtension, now: float, rules: Rules) -> Decision:
    denied = e.ExtensionDenied(
        at=now,
        by=command.by,
        rule=Rule.HEALTH,
        worker=command.worker,
        reason=command.reason,
        jobs=jobs_on(book, command.worker),
        evidence=command.evidence,
    )
    return Decision([denied], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def reset(book: JobBook, command: c.ResetExtensions, now: float, rules: Rules) -> Decision:
    record = book.state.workers.get(command.worker)
    if record is None or record.extension_count == 0:
        return Decision([], Outcome.NOTHING, Rule.HEALTH, "it has used none")
    event = e.ExtensionsReset(
        at=now, by=command.by, rule=Rule.HEALTH, worker=command.worker, evidence={"reason": command.reason}
    )
    return Decision([event], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def forget(book: JobBook, command: c.ForgetWorker, now: float, rules: Rules) -> Decision:
    """Forgets a worker, but never while attempts count as running there: the worker has to be evicted first."""
    if command.worker not in book.state.workers:
        return Decision([], Outcome.NOTHING, Rule.HEALTH, "it is not known")
    if book.on_worker.get(command.worker):
        return Decision([], Outcome.REFUSED, Rule.HEALTH, "attempts of jobs run there")
    event = e.WorkerForgotten(at=now, by=command.by, rule=Rule.HEALTH, worker=command.worker, reason=command.reason)
    return Decision([event], Outcome.ACCEPTED, Rule.HEALTH, command.reason)


def drain(book: JobBook, command: c.DrainWorker, now: float, rules: Rules) -> Decision:
    """Records that an operator drained a worker, or undid it. The worker need not be known: it may be about to start."""
    name = command.worker
    if command.drained == (name in book.state.drained):
        word = "it is drained already" if command.drained else "it is not drained"
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, word)
    if command.drained:
        budget.check_room(book)
    drained = e.WorkerDrained(
        at=now, by=command.by, rule=Rule.ASKED, worker=name, drained=command.drained, reason=command.reason[:1_000]
    )
    return Decision([drained], Outcome.ACCEPTED, Rule.ASKED)
