"""Decides about whole jobs: each is accepted once, ends once, is archived, and stays known for long after."""

from __future__ import annotations

from itertools import islice

from tenure.errors import StaleEpochError, SubmissionConflictError
from tenure.jobs import budget
from tenure.jobs import commands as c
from tenure.jobs import events as e
from tenure.jobs.book import JobBook, results_expire_at
from tenure.jobs.commands import Decision, Outcome
from tenure.jobs.events import Rule
from tenure.jobs.model import JobInfo
from tenure.jobs.rules import Rules
from tenure.jobs.settings import JobLimits
from tenure.jobs.states import JobState
from tenure.jobs.submission import digest, encoded_size, settled, validate

LIMITS = JobLimits()
ARCHIVED_BYTES = 512
"""The bytes that an archived id takes at most, about."""
MOST_TRACE_CHARS = 4_000
"""The characters of a traceback that are kept as evidence: its end, because that names the place."""


def take_lead(book: JobBook, command: c.TakeLead, now: float, rules: Rules) -> Decision:
    # Epochs only grow: a leader with an epoch that the journal has seen was replaced.
    if command.epoch <= book.epoch:
        raise StaleEpochError(command.epoch, book.epoch)
    elected = e.LeaderElected(
        at=now,
        by=command.leader,
        rule=Rule.TAKEOVER,
        epoch=command.epoch,
        leader=command.leader,
        evidence={"previous_leader": book.state.leader, "previous_epoch": book.epoch},
    )
    return Decision([elected], Outcome.ACCEPTED, Rule.TAKEOVER)


def submit(book: JobBook, command: c.SubmitJob, now: float, rules: Rules) -> Decision:
    submission = command.submission
    validate(submission, LIMITS)
    job_id, contents = submission.job_id, digest(submission)
    known = known_digest(book, job_id)
    if known is not None:
        if known != contents:
            raise SubmissionConflictError("job id", job_id, job_id)
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "this job was submitted before", job_id)
    key = submission.idempotency_key
    if key and (other := book.keys.get(key)):
        if known_digest(book, other) != contents:
            raise SubmissionConflictError("idempotency key", key, other)
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "its idempotency key was used before", other)
    # The state holds each workflow twice (in the submission and in its record), and its outcome.
    budget.check_room(book, budget.SMALL_RECORD_BYTES + 2 * encoded_size(submission))
    submitted = e.JobSubmitted(
        at=now,
        by=command.by or submission.submitted_by,
        rule=Rule.ASKED,
        job_id=job_id,
        submission=settled(submission, book.settings),
        digest=contents,
    )
    stone = book.state.tombstones.get(job_id)
    # A cancel or a timeout may have come before the submission: then the job ends in the append that accepts it.
    if stone is None:
        return Decision([submitted], Outcome.ACCEPTED, Rule.ASKED, "", job_id)
    ended = e.JobEnded(
        at=now,
        by=stone.by,
        rule=Rule.TOMBSTONE,
        job_id=job_id,
        state=stone.state,
        reason=stone.reason,
        gate_epoch=stone.gate_epoch,
        evidence={"decided_at": stone.at},
    )
    return Decision([submitted, ended], Outcome.ACCEPTED, Rule.TOMBSTONE, stone.reason, job_id)


def known_digest(book: JobBook, job_id: str) -> str | None:
    if info := book.jobs.get(job_id):
        return info.digest
    archived = book.state.archive.get(job_id)
    return archived.digest if archived else None


def cancel(book: JobBook, command: c.CancelJob, now: float, rules: Rules) -> Decision:
    job_id, reason = command.job_id, command.reason or "cancelled"
    if archived := book.state.archive.get(job_id):
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {archived.state}", job_id)
    info = book.jobs.get(job_id)
    if info is None:
        if job_id in book.state.tombstones:
            return Decision([], Outcome.ALREADY, Rule.TOMBSTONE, "it was cancelled before it was known", job_id)
        budget.check_tombstones(book)
        stone = e.TombstoneSet(
            at=now, by=command.by, rule=Rule.ASKED, job_id=job_id, state=JobState.CANCELLED, reason=reason
        )
        return Decision([stone], Outcome.ACCEPTED, Rule.TOMBSTONE, "not known here yet; it will not run", job_id)
    if rules.is_final(info.state):
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {info.state}", job_id)
    ended = end(info, now, JobState.CANCELLED, Rule.ASKED, reason, by=command.by)
    return Decision([ended], Outcome.ACCEPTED, Rule.ASKED, reason, job_id)


def fail(book: JobBook, command: c.FailJob, now: float, rules: Rules) -> Decision:
    """Ends a job on which our own code raised. Deliberately plain: it must succeed for a job on which other rules raise."""
    info = book.jobs.get(command.job_id)
    if info is None:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not in memory", command.job_id)
    if rules.is_final(info.state):
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {info.state}", command.job_id)
    reason = f"Tenure itself failed on it while {command.doing}: {command.error}"[: LIMITS.max_error_chars]
    evidence: e.Evidence = {"doing": command.doing, "traceback": command.trace[-MOST_TRACE_CHARS:]}
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
    evidence: e.Evidence | None = None,
    gate_epoch: int = 0,
) -> e.JobEnded:
    """Returns the terminal event, with the counts of workflows at that moment as evidence."""
    stood = {
        "completed": info.completed_workflows,
        "failed": info.failed_workflows,
        "running": info.running_workflows,
        "total": len(info.workflows),
    }
    return e.JobEnded(
        at=now,
        by=by,
        rule=rule,
        job_id=info.id,
        state=state,
        reason=reason,
        gate_epoch=gate_epoch,
        evidence={**stood, **(evidence or {})},
    )


def confirm_cleaned(book: JobBook, command: c.ConfirmCleaned, now: float, rules: Rules) -> Decision:
    if command.job_id not in book.uncleaned:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "nothing was left to revoke", command.job_id)
    cleaned = e.JobCleaned(at=now, by=command.by, job_id=command.job_id)
    return Decision([cleaned], Outcome.ACCEPTED, Rule.FOLLOWED, "", command.job_id)


def expire_results(book: JobBook, command: c.ExpireResults, now: float, rules: Rules) -> Decision:
    info = book.jobs.get(command.job_id)
    if info is None or info.results_expired:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it has none", command.job_id)
    if now < results_expire_at(info):
        return Decision([], Outcome.NOTHING, Rule.RETENTION, "its time has not come", command.job_id)
    expired = e.ResultsExpired(at=now, by=command.by, rule=Rule.RETENTION, job_id=info.id)
    return Decision([expired], Outcome.ACCEPTED, Rule.RETENTION, "", info.id)


def archive(book: JobBook, command: c.ArchiveJob, now: float, rules: Rules) -> Decision:
    info = book.jobs.get(command.job_id)
    if info is None:
        return Decision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not in memory", command.job_id)
    held = why_not_archived(book, info, now)
    if held:
        return Decision([], Outcome.NOTHING, Rule.RETENTION, held, command.job_id)
    archived = e.JobArchived(
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
    return tuple(islice(archive, surplus))


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
    return ""


def forget_old(book: JobBook, command: c.ForgetOld, now: float, rules: Rules) -> Decision:
    until = now - book.settings.id_memory
    oldest = next(iter(book.state.archive.values()), None)
    stone = next(iter(book.state.tombstones.values()), None)
    if (oldest is None or oldest.archived_at > until) and (stone is None or stone.at > until):
        return Decision([], Outcome.NOTHING, Rule.RETENTION)
    return Decision(
        [e.Forgotten(at=now, by=command.by, rule=Rule.RETENTION, until=until)], Outcome.ACCEPTED, Rule.RETENTION
    )
