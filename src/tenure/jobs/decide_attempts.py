"""Decides about attempts: their start, progress, result, failure, retry and refusal.

The fence of a delivery is (attempt, delivery). It only grows, so a report with a lower one is about a delivery that was replaced.
"""

from __future__ import annotations

import zlib

import msgspec

from tenure.backoff import Retry
from tenure.errors import LimitError
from tenure.jobs import budget
from tenure.jobs import commands as c
from tenure.jobs import events as e
from tenure.jobs.book import JobBook
from tenure.jobs.commands import Decision, Outcome
from tenure.jobs.decide_jobs import LIMITS, end
from tenure.jobs.events import Rule
from tenure.jobs.model import JobInfo, Workflow
from tenure.jobs.rules import Rules
from tenure.jobs.states import AttemptCause, JobState, OnFailure, WorkflowState

EXCLUDING = frozenset({AttemptCause.STALL, AttemptCause.CRASH, AttemptCause.LOST_LEASE, AttemptCause.EVICTED})
"""The causes for which the worker may be to blame, or by which the work may harm the worker. The next attempt goes elsewhere."""
FINAL = frozenset({AttemptCause.DEAD_LETTER})
"""The causes after which nothing is tried again: the engine has delivered as often as it may."""


def find(book: JobBook, command: c.AttemptCommand) -> tuple[JobInfo, Workflow] | None:
    info = book.jobs.get(command.job_id)
    workflow = info.workflows.get(command.workflow) if info else None
    return (info, workflow) if info and workflow else None


def unknown(book: JobBook, command: c.AttemptCommand) -> Decision:
    archived = book.state.archive.get(command.job_id)
    if archived:
        return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, f"its job is archived as {archived.state}", command.job_id)
    return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, "no such job or workflow", command.job_id)


def dispatched(book: JobBook, command: c.RecordDispatched, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if workflow.attempt != command.attempt or workflow.state is not WorkflowState.PENDING:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"it is {workflow.state}", info.id)
    event = e.Dispatched(at=now, by=command.by, job_id=info.id, workflow=command.workflow, attempt=command.attempt)
    return Decision([event], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)


def stale(info: JobInfo, workflow: Workflow, attempt: int, delivery: int) -> tuple[Rule, str] | None:
    """Returns why a report about this attempt does not count, or None when it does."""
    if workflow.state is WorkflowState.WAITING or attempt > workflow.attempt:
        return Rule.STALE_ATTEMPT, f"attempt {attempt} was never issued"
    if attempt < workflow.attempt:
        return Rule.STALE_ATTEMPT, f"attempt {attempt} was replaced by attempt {workflow.attempt}"
    # Delivery 0: the reporter does not know it, so only the attempt fences.
    if delivery and delivery < workflow.delivery:
        return Rule.STALE_DELIVERY, f"delivery {delivery} was replaced by delivery {workflow.delivery}"
    if info.state.terminal:
        return Rule.JOB_ENDED, f"the job had ended: {info.state}"
    if workflow.state.terminal:
        return Rule.ALREADY_RECORDED, f"the workflow had ended: {workflow.state}"
    return None


def started(book: JobBook, command: c.RecordStarted, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if why := stale(info, workflow, command.attempt, command.delivery):
        return Decision([], Outcome.REFUSED, *why, info.id)
    if workflow.state is WorkflowState.RUNNING and workflow.delivery == command.delivery:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "", info.id)
    return Decision([start_event(command, now)], Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)


def start_event(command: c.RecordStarted | c.RecordProgress, now: float) -> e.WorkflowStarted:
    return e.WorkflowStarted(
        at=now,
        by=command.worker,
        rule=Rule.WORKER_SAID,
        job_id=command.job_id,
        workflow=command.workflow,
        attempt=command.attempt,
        worker=command.worker,
        incarnation=command.incarnation,
        delivery=command.delivery,
    )


def progress(book: JobBook, command: c.RecordProgress, now: float, rules: Rules) -> Decision:
    """Records progress, for each job at most once in a quarter of its stuck threshold. `ProgressWatch` holds the rest."""
    check_progress(command)
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if why := stale(info, workflow, command.attempt, command.delivery):
        return Decision([], Outcome.REFUSED, *why, info.id)
    if workflow.state is not WorkflowState.RUNNING or workflow.delivery != command.delivery:
        # The report of its start was lost. A progress report holds the whole state of the attempt, so it records the start, too.
        return Decision([start_event(command, now)], Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)
    if command.steps <= workflow.steps:
        return Decision([], Outcome.NOTHING, Rule.WORKER_SAID, "the counter has not risen", info.id)
    if not journal_due(book, info, now):
        return Decision([], Outcome.NOTHING, Rule.WORKER_SAID, "progress was journaled a short while ago", info.id)
    event = e.ProgressRecorded(
        at=now,
        by=command.worker,
        rule=Rule.WORKER_SAID,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        worker=command.worker,
        steps=command.steps,
        fraction=command.fraction,
        note=command.note[:200],
    )
    return Decision([event], Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)


def journal_due(book: JobBook, info: JobInfo, now: float) -> bool:
    tracking = info.timeout_tracking
    return now - tracking.last_progress_at >= tracking.stuck_threshold * book.settings.progress_share


def touch(book: JobBook, command: c.TouchProgress, now: float, rules: Rules) -> Decision:
    info = book.job(command.job_id)
    if info.state.terminal:
        return Decision([], Outcome.REFUSED, Rule.JOB_ENDED, f"the job had ended: {info.state}", info.id)
    if not journal_due(book, info, now):
        return Decision([], Outcome.NOTHING, Rule.WORKER_SAID, "progress was journaled a short while ago", info.id)
    event = e.ProgressRecorded(
        at=now, by=command.by, rule=Rule.WORKER_SAID, job_id=info.id, note=command.progress_type[:200]
    )
    return Decision([event], Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)


def check_progress(command: c.RecordProgress) -> None:
    if command.steps < 0:
        raise LimitError("steps", command.steps, "0 or more")
    if command.fraction is not None and not 0 <= command.fraction <= 1:  # NaN fails both comparisons
        raise LimitError("fraction", command.fraction, "between 0 and 1")


def result(book: JobBook, command: c.RecordResult, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if workflow.state is WorkflowState.COMPLETED and workflow.attempt == command.attempt:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "already recorded", info.id)
    if why := stale(info, workflow, command.attempt, command.delivery):
        return refuse(info, workflow, command, command.delivery, command.worker, why, now)
    check_result(command)
    done = e.WorkflowCompleted(
        at=now,
        by=command.worker,
        rule=Rule.WORKER_SAID,
        job_id=info.id,
        workflow=command.workflow,
        attempt=command.attempt,
        worker=command.worker,
        result=command.result,
        result_key=command.result_key,
        evidence={"enqueued_at": command.enqueued_at} if command.enqueued_at else {},
    )
    events: list[e.Event] = [done]
    if info.open_workflows == 1:
        events.append(finish(info, now, completed=info.completed_workflows + 1, failed=info.failed_workflows))
    return Decision(events, Outcome.ACCEPTED, Rule.WORKER_SAID, "", info.id)


def check_result(command: c.RecordResult) -> None:
    """Raises `LimitError` for a result that is too large for the journal. It belongs into the store, and its key into the journal."""
    if command.result is None:
        return
    size = len(msgspec.json.encode(command.result))
    if size > LIMITS.max_result_bytes:
        raise LimitError(
            f"result of {command.workflow!r}",
            f"{size:,} bytes",
            f"at most {LIMITS.max_result_bytes:,} bytes",
            remedy="Put it into the store, and record its key",
        )


def finish(info: JobInfo, now: float, *, completed: int, failed: int) -> e.JobEnded:
    """Returns the end of a job whose workflows have all ended. When none completed the job fails, whatever `on_failure` its workflows have."""
    stood = {"completed": completed, "failed": failed, "running": 0}
    if completed:
        reason = f"all {len(info.workflows)} workflows ended, {failed} failed" if failed else "all workflows completed"
        return end(info, now, JobState.COMPLETED, Rule.ALL_DONE, reason, evidence=stood)
    return end(info, now, JobState.FAILED, Rule.NOTHING_DONE, f"all {failed} workflows failed", evidence=stood)


def refuse(
    info: JobInfo,
    workflow: Workflow,
    command: c.AttemptCommand,
    delivery: int,
    worker: str,
    why: tuple[Rule, str],
    now: float,
) -> Decision:
    """Refuses a result, and records the refusal once for each delivery, however often its message comes."""
    rule, reason = why
    if (command.attempt, delivery, worker) in workflow.refused or len(workflow.refused) >= 20:
        return Decision([], Outcome.REFUSED, rule, reason, info.id)
    event = e.ResultRefused(
        at=now,
        by=worker,
        rule=rule,
        job_id=info.id,
        workflow=workflow.spec.name,
        attempt=command.attempt,
        delivery=delivery,
        worker=worker,
        evidence={"current_attempt": workflow.attempt, "current_delivery": workflow.delivery, "job": info.state},
    )
    return Decision([event], Outcome.REFUSED, rule, reason, info.id)


def failure(book: JobBook, command: c.RecordFailure, now: float, rules: Rules) -> Decision:
    found = find(book, command)
    if found is None:
        return unknown(book, command)
    info, workflow = found
    if workflow.state is WorkflowState.FAILED and workflow.attempt == command.attempt:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "already recorded", info.id)
    if why := stale(info, workflow, command.attempt, command.delivery):
        return refuse(info, workflow, command, command.delivery, command.worker, why, now)
    failed = failed_attempt(book, workflow, command, now)
    events: list[e.Event] = [failed]
    if ended := consequence(
        info,
        workflow,
        failed,
        completed=info.completed_workflows,
        failed_before=info.failed_workflows,
        open_before=info.open_workflows,
    ):
        events.append(ended)
    return Decision(events, Outcome.ACCEPTED, failed.rule, "", info.id)


def failed_attempt(book: JobBook, workflow: Workflow, command: c.RecordFailure, now: float) -> e.AttemptFailed:
    """Returns the end of an attempt, and what comes next: another attempt after its rest, or none."""
    retry = workflow.spec.retry
    # This counts our attempts, and those deliveries of them that ended with their worker, which only the engine saw.
    used = workflow.attempt + workflow.redelivered + command.redelivered
    final = command.cause in FINAL or not command.retryable or used >= retry.max_attempts
    upcoming = 0 if final else workflow.attempt + 1
    rest = 0.0 if command.cause is AttemptCause.EVICTED else backoff(retry, command.job_id, workflow)
    return e.AttemptFailed(
        at=now,
        by=command.by or command.worker,
        rule=Rule.ENGINE_SAID
        if command.cause is AttemptCause.DEAD_LETTER
        else Rule.HEALTH
        if command.cause is AttemptCause.EVICTED
        else Rule.WORKER_SAID,
        job_id=command.job_id,
        workflow=workflow.spec.name,
        attempt=command.attempt,
        cause=command.cause,
        worker=command.worker or workflow.worker,
        error=command.error[: budget.max_error_chars(book)],
        next_attempt=upcoming,
        not_before=now + rest if upcoming else 0.0,
        exclude=command.cause in EXCLUDING,
        dump_key=command.dump_key,
        redelivered=command.redelivered,
        evidence={"max_attempts": retry.max_attempts, "steps": workflow.steps, **command.evidence},
    )


def backoff(retry: Retry, job_id: str, workflow: Workflow) -> float:
    """Returns the rest before the next attempt. Its jitter comes from the attempt's key, so that every replay gives the same."""
    chance = zlib.crc32(f"{job_id}/{workflow.spec.name}/{workflow.attempt}".encode()) / 0xFFFFFFFF
    return retry.delay_s(workflow.attempt, chance)


def consequence(
    info: JobInfo,
    workflow: Workflow,
    failed: e.AttemptFailed,
    *,
    completed: int,
    failed_before: int,
    open_before: int,
) -> e.JobEnded | None:
    """Returns the end of the job when this failed attempt ends it, otherwise None."""
    if failed.next_attempt:
        return None
    if workflow.spec.on_failure is OnFailure.FAIL:
        reason = f"workflow {workflow.spec.name!r} failed for good at attempt {failed.attempt}: {failed.cause}"
        still = info.open_workflows - open_before + 1  # those that failed for good in this decision
        stood = {"failed": failed_before + 1, "running": max(0, info.running_workflows - still)}
        return end(info, failed.at, JobState.FAILED, Rule.FAILED_FOR_GOOD, reason, evidence=stood)
    if open_before == 1:
        return finish(info, failed.at, completed=completed, failed=failed_before + 1)
    return None
