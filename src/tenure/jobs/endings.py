"""Decides how a job ends, once, and what stays of it: its messages are revoked, its results expire, it is archived, and its id is forgotten last."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tenure.attempt_data import PARENT
from tenure.jobs import budget
from tenure.jobs.attempts import DONE, move
from tenure.jobs.budget import text_bytes
from tenure.jobs.decisions import Command, Decides, Decision, Event, Evidence, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.model import ArchivedJob, JobInfo, Tombstone, WorkflowRecord
from tenure.jobs.settings import LIMITS, MOST_TRACE_CHARS
from tenure.jobs.states import AttemptCause, JobState, WorkflowState, check_job_transition
from tenure.jobs.undo_rules import may_have_compensations, note_undo
from tenure.jobs.unique_jobs import unique_name

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

ARCHIVED_BYTES = 512
"""The bytes that an archived id takes at most, about."""


class CancelJob(Command, frozen=True, kw_only=True):
    job_id: str
    reason: str = ""


class FailJob(Command, frozen=True, kw_only=True):
    """The leader's own code raised while it handled this job: the job ends, and everything else goes on."""

    job_id: str
    doing: str
    error: str
    trace: str = ""


class ConfirmCleaned(Command, frozen=True, kw_only=True):
    """The messages of an ended job are revoked."""

    job_id: str


class ExpireResults(Command, frozen=True, kw_only=True):
    """The time for which the job's results were kept is over. Those of them that are in the store are deleted, too."""

    job_id: str


class ArchiveJob(Command, frozen=True, kw_only=True):
    """The record of an ended job is in the store: let it leave memory."""

    job_id: str


class ForgetOld(Command, frozen=True, kw_only=True):
    """Asks to drop the ids and tombstones that are older than `id_memory`."""


class JobEnded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The one terminal transition of a job. It cancels every workflow that has not ended."""

    state: JobState
    reason: str
    gate_epoch: int = 0
    """The epoch of the gate that decided; 0 when no gate did."""

    @property
    def by_gate(self) -> bool:
        return self.gate_epoch > 0

    def growth(self) -> int:
        return text_bytes(self.reason, self.reason)  # it is the reason of the job, and of its timeout


class JobCleaned(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The messages of an ended job are revoked."""


class TombstoneSet(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A job that is not known was cancelled or timed out."""

    state: JobState
    reason: str
    gate_epoch: int = 0


class ResultsExpired(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The job's results are dropped: they were kept for as long as its submission asked."""


class JobArchived(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The whole record is in the store; its id and key stay known."""

    forget: tuple[str, ...] = ()
    """Older archived ids that have to go because there are too many."""

    def growth(self) -> int:
        return 9


class Forgotten(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Archived ids and tombstones up to this time are past their memory."""

    until: float


def cancel_job(book: JobBook, command: CancelJob, now: float, rules: Rules) -> Decision:
    job_id, reason = command.job_id, command.reason or "cancelled"
    if archived := book.state.archive.get(job_id):
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {archived.state}", job_id)
    info = book.jobs.get(job_id)
    if info is None:
        if job_id in book.state.tombstones:
            return Decision([], Outcome.ALREADY, Rule.TOMBSTONE, "it was cancelled before it was known", job_id)
        budget.check_tombstones(book)
        stone = TombstoneSet(
            at=now, by=command.by, rule=Rule.ASKED, job_id=job_id, state=JobState.CANCELLED, reason=reason
        )
        return Decision([stone], Outcome.ACCEPTED, Rule.TOMBSTONE, "not known here yet; it will not run", job_id)
    if rules.is_final(info.state):
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {info.state}", job_id)
    ended = end(info, now, JobState.CANCELLED, Rule.ASKED, reason, by=command.by)
    return Decision([ended], Outcome.ACCEPTED, Rule.ASKED, reason, job_id)


def fail_job(book: JobBook, command: FailJob, now: float, rules: Rules) -> Decision:
    """Ends a job on which our own code raised. Deliberately plain: it must succeed for a job on which other rules raise."""
    info = book.jobs.get(command.job_id)
    if info is None:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not in memory", command.job_id)
    if rules.is_final(info.state):
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {info.state}", command.job_id)
    reason = f"Tenure itself failed on it while {command.doing}: {command.error}"[: LIMITS.max_error_chars]
    evidence: Evidence = {"doing": command.doing, "traceback": command.trace[-MOST_TRACE_CHARS:]}
    ended = end(info, now, JobState.FAILED, Rule.PRODUCT_FAILED, reason, by=command.by, evidence=evidence)
    return Decision([ended], Outcome.ACCEPTED, Rule.PRODUCT_FAILED, reason, command.job_id)


def end(
    info: JobInfo,
    now: float,
    state: JobState,
    rule: Rule,
    reason: str,
    *,
    by: str = "",
    evidence: Evidence | None = None,
    gate_epoch: int = 0,
) -> JobEnded:
    """Returns the terminal event, with the counts of workflows at that moment as evidence."""
    stood = {
        "completed": info.completed_workflows,
        "failed": info.failed_workflows,
        "running": info.running_workflows,
        "total": len(info.workflows),
    }
    return JobEnded(
        at=now,
        by=by,
        rule=rule,
        job_id=info.id,
        state=state,
        reason=reason,
        gate_epoch=gate_epoch,
        evidence={**stood, **(evidence or {})},
    )


def confirm_cleaned(book: JobBook, command: ConfirmCleaned, now: float, rules: Rules) -> Decision:
    if command.job_id not in book.uncleaned:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "nothing was left to revoke", command.job_id)
    cleaned = JobCleaned(at=now, by=command.by, job_id=command.job_id)
    return Decision([cleaned], Outcome.ACCEPTED, Rule.FOLLOWED, "", command.job_id)


def results_expire_at(info: JobInfo) -> float:
    """Returns when the job's results expire. Infinity: they are kept as long as the job's record, or are gone."""
    ttl = info.job.submission.result_ttl
    return math.inf if ttl is None or info.results_expired else info.ended_at + ttl


def has_live_parent(book: JobBook, info: JobInfo) -> bool:
    """Returns True for a job that a workflow of another job submitted which has not ended."""
    parent = book.jobs.get(info.job.submission.labels.get(PARENT, ""))
    return parent is not None and not parent.state.terminal


def expire_results(book: JobBook, command: ExpireResults, now: float, rules: Rules) -> Decision:
    info = book.jobs.get(command.job_id)
    if info is None or info.results_expired:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it has none", command.job_id)
    if now < results_expire_at(info):
        return Decision([], Outcome.NOTHING, Rule.RETENTION, "its time has not come", command.job_id)
    expired = ResultsExpired(at=now, by=command.by, rule=Rule.RETENTION, job_id=info.id)
    return Decision([expired], Outcome.ACCEPTED, Rule.RETENTION, "", info.id)


def archive_job(book: JobBook, command: ArchiveJob, now: float, rules: Rules) -> Decision:
    info = book.jobs.get(command.job_id)
    if info is None:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not in memory", command.job_id)
    held = why_not_archived(book, info, now)
    if held:
        return Decision([], Outcome.NOTHING, Rule.RETENTION, held, command.job_id)
    archived = JobArchived(
        at=now,
        by=command.by,
        rule=Rule.RETENTION,
        job_id=info.id,
        forget=no_longer_remembered(book),
        evidence={"ended_at": info.ended_at},
    )
    return Decision([archived], Outcome.ACCEPTED, Rule.RETENTION, "", info.id)


def no_longer_remembered(book: JobBook) -> tuple[str, ...]:
    """Returns the oldest archived ids that make way for one more: those beyond `max_remembered`, or two while ids are beyond their share."""
    archive = book.state.archive
    surplus = max(0, len(archive) + 1 - book.settings.max_remembered)
    if not surplus and archive and budget.archive_is_full(book, ARCHIVED_BYTES):
        surplus = 2  # two leave for one that comes, so that the archive shrinks to a budget that was lowered
    return tuple(book.oldest_archived(surplus))


def why_not_archived(book: JobBook, info: JobInfo, now: float) -> str:
    """Returns why the job must stay in memory; empty when it may leave."""
    if not info.state.terminal:
        return f"it is {info.state}"
    if now < info.ended_at + budget.keep_finished(book):
        return "it ended a short while ago"
    if not info.cleaned:
        return "its messages are not revoked yet"
    # A gate that never comes back must not hold memory for ever.
    if not info.gate_acked and now < info.ended_at + book.settings.id_memory:
        return "its gate does not know yet how it ended"
    if info.id in book.failed_undos and now < info.ended_at + book.settings.id_memory:
        return "its compensations failed, and somebody has to look after them"
    return ""


def forget_old(book: JobBook, command: ForgetOld, now: float, rules: Rules) -> Decision:
    until = now - book.settings.id_memory
    if not book.holds_older_than(until):
        return Decision([], Outcome.NOTHING, Rule.RETENTION)
    return Decision(
        [Forgotten(at=now, by=command.by, rule=Rule.RETENTION, until=until)], Outcome.ACCEPTED, Rule.RETENTION
    )


def job_ended(book: JobBook, event: JobEnded) -> None:
    info = book.job(event.job_id)
    check_job_transition(event.job_id, info.state, event.state)
    info.state, info.reason, info.ended_at = event.state, event.reason, event.at
    see_gate_epoch(info, event.gate_epoch)
    info.ended_by_gate = event.by_gate
    tracking = info.timeout_tracking
    if event.state is JobState.TIMED_OUT:
        tracking.timeout_reason = tracking.timeout_reason or event.reason
        tracking.globally_timed_out = event.rule is Rule.GLOBAL_TIMEOUT
        if not tracking.globally_timed_out:
            tracking.locally_timed_out = True
    if tracking.gate_addr is None:
        info.gate_acked = True
    for workflow in info.workflows.values():
        if workflow.state not in DONE:
            if workflow.state is not WorkflowState.WAITING:
                info.cleaned = False  # it may have a live message in the engine
            move(book, info, workflow, WorkflowState.CANCELLED)
            workflow.ended_at = event.at
        elif left_a_message(workflow) or has_kept_steps(info, workflow):
            info.cleaned = False
    if may_have_compensations(info):
        info.cleaned = False  # until the leader has looked into the store
    note_undo(book, info)
    book.ended[event.job_id] = None
    book.paused.pop(event.job_id, None)
    if submission_ttl := info.job.submission.result_ttl:
        book.expiring.set(event.job_id, event.at + submission_ttl)
    if not info.cleaned:
        book.uncleaned[event.job_id] = None


def see_gate_epoch(info: JobInfo, epoch: int) -> None:
    tracking = info.timeout_tracking
    tracking.gate_epoch = max(tracking.gate_epoch, epoch)


def job_cleaned(book: JobBook, event: JobCleaned) -> None:
    book.job(event.job_id).cleaned = True
    book.uncleaned.pop(event.job_id, None)


def tombstone_set(book: JobBook, event: TombstoneSet) -> None:
    stone = Tombstone(at=event.at, state=event.state, reason=event.reason, by=event.by, gate_epoch=event.gate_epoch)
    book.state.tombstones[event.job_id] = stone
    book.came("tombstones", event.job_id, stone)


def results_expired(book: JobBook, event: ResultsExpired) -> None:
    info = book.job(event.job_id)
    info.results_expired = True
    book.expiring.cancel(event.job_id)
    for workflow in info.workflows.values():
        workflow.result, workflow.result_key = None, ""


def job_archived(book: JobBook, event: JobArchived) -> None:
    info = book.jobs.pop(event.job_id)
    book.job_left(info)
    book.ended.pop(event.job_id, None)
    book.uncleaned.pop(event.job_id, None)
    book.failed_undos.pop(event.job_id, None)
    book.expiring.cancel(event.job_id)
    tracking = info.timeout_tracking
    archived = ArchivedJob(
        state=info.state,
        ended_at=info.ended_at,
        archived_at=event.at,
        digest=info.digest,
        idempotency_key=info.job.submission.idempotency_key,
        fence_token=tracking.timeout_fence_token,
        gate_epoch=tracking.gate_epoch,
        ended_by_gate=info.ended_by_gate,
        unique=named if book.unique.newest(named := unique_name(info.job.submission)) == event.job_id else "",
        submitted_at=info.job.submitted_at,
    )
    book.came("archive", event.job_id, archived)
    book.archive(event.job_id, archived, event.forget)


def forgotten(book: JobBook, event: Forgotten) -> None:
    book.forget_until(event.until)


def has_kept_steps(info: JobInfo, workflow: WorkflowRecord) -> bool:
    """Returns True when the store has steps of a workflow: it was suspended, an attempt that recorded some has failed, or it began with those of another job."""
    return bool(workflow.suspensions or workflow.mark >> 32 or info.job.submission.retry_from)


def left_a_message(workflow: WorkflowRecord) -> bool:
    """Returns True when an ended workflow may have a live message in the engine.

    A result or a dead letter settles the message. An eviction does not: the leader decided it, and the engine would deliver the message again for ever.
    """
    if workflow.state is WorkflowState.CANCELLED:
        return True
    return workflow.state is WorkflowState.FAILED and workflow.cause is AttemptCause.EVICTED


DECIDE: Decides = {
    CancelJob: cancel_job,
    FailJob: fail_job,
    ConfirmCleaned: confirm_cleaned,
    ExpireResults: expire_results,
    ArchiveJob: archive_job,
    ForgetOld: forget_old,
}
FOLD: Folds = {
    JobEnded: job_ended,
    JobCleaned: job_cleaned,
    TombstoneSet: tombstone_set,
    ResultsExpired: results_expired,
    JobArchived: job_archived,
    Forgotten: forgotten,
}
