"""A gate's jobs: each is accepted once, may be cancelled, is archived, and stays known for long after. A gate takes the lead here, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenure.errors import ConfigurationError, StaleEpochError
from tenure.jobs.decisions import Command, Decides, Event, Folds, GateDecision, JobEvent, Outcome, Rule, Rules
from tenure.jobs.gate_decisions import GlobalDecisionMade, decided_before
from tenure.jobs.messages import JobProgressReport, JobTimeoutReport
from tenure.jobs.model import ArchivedJob, GateJobTrackingInfo, JobSubmission, Tombstone, as_recorded
from tenure.jobs.settings import LIMITS, MOST_TRACE_CHARS
from tenure.jobs.states import JobState, PauseRecord
from tenure.jobs.submission import submitted_before, validate
from tenure.jobs.unique_jobs import digest

if TYPE_CHECKING:
    from tenure.jobs.gate_tracker import GateJobTracker


class GateTakeLead(Command, frozen=True, kw_only=True):
    epoch: int
    gate: str


class GateSubmit(Command, frozen=True, kw_only=True):
    """A job that has been placed: `target_datacenters` are those in which it is to run."""

    submission: JobSubmission
    target_datacenters: tuple[str, ...]


class GateCancel(Command, frozen=True, kw_only=True):
    job_id: str
    reason: str = ""


class GateFailJob(Command, frozen=True, kw_only=True):
    """The leading gate's own code raised while it handled this job: the job is withdrawn everywhere, and everything else goes on."""

    job_id: str
    doing: str
    error: str
    trace: str = ""


class GateArchive(Command, frozen=True, kw_only=True):
    job_id: str


class GateForgetOld(Command, frozen=True, kw_only=True):
    pass


class GateElected(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The first event of a gate that leads its cluster. Stuck clocks restart with it."""

    epoch: int
    gate: str


class GateJobAccepted(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A gate accepted and placed a job."""

    submission: JobSubmission
    target_datacenters: tuple[str, ...]
    digest: str


class GateJobRebuilt(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A report came for a job that this gate does not know, because its journal was lost. The event holds what the report states."""

    submitted_at: float
    """By the gate's own clock: now, less the elapsed seconds that the report states."""
    timeout_seconds: float | None
    target_datacenters: tuple[str, ...]
    steered: int = 0
    paused: bool = False
    paused_s: float = 0.0


class GateTombstoneSet(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A job that this gate does not know was cancelled."""

    reason: str


class GateJobArchived(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An ended job left the gate's memory; its id and key stay known."""

    forget: tuple[str, ...] = ()


class GateForgotten(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Archived ids and tombstones up to this time are past their memory."""

    until: float


def gate_take_lead(tracker: GateJobTracker, command: GateTakeLead, now: float, rules: Rules) -> GateDecision:
    # Epochs only grow: a gate with an epoch that the journal has seen was replaced.
    if command.epoch <= tracker.epoch:
        raise StaleEpochError(command.epoch, tracker.epoch)
    elected = GateElected(
        at=now,
        by=command.gate,
        rule=Rule.TAKEOVER,
        epoch=command.epoch,
        gate=command.gate,
        evidence={"previous_gate": tracker.state.leader, "previous_epoch": tracker.epoch},
    )
    return GateDecision([elected], Outcome.ACCEPTED, Rule.TAKEOVER)


def gate_submit(tracker: GateJobTracker, command: GateSubmit, now: float, rules: Rules) -> GateDecision:
    submission, targets = command.submission, command.target_datacenters
    validate(submission, LIMITS)
    if submission.unique is not None:
        raise ConfigurationError(
            f"job {submission.job_id!r} is unique, and a gate cannot tell which jobs are the same in its datacenters",
            remedy="Submit it to the managers of one datacenter, or give it an idempotency_key",
        )
    if submission.undo_of:
        raise ConfigurationError(
            f"job {submission.job_id!r} runs compensations, which its datacenter does by itself",
            remedy="Ask the managers of the datacenter in which some of them failed: tenure retry JOB~undo",
        )
    if not targets or len(set(targets)) != len(targets):
        raise ConfigurationError(
            f"job {submission.job_id!r} needs at least one datacenter, each once, and has {list(targets)}",
            remedy="Name target_datacenters, or let the gate place the job",
        )
    if submission.gate_addr is None:
        raise ConfigurationError(
            f"job {submission.job_id!r} has no gate_addr, so its managers would not report",
            remedy="A gate submits with its own address",
        )
    job_id, contents = submission.job_id, digest(submission)
    if known := submitted_before(tracker, submission, contents):
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, known.how, known.job_id)
    accepted = GateJobAccepted(
        at=now,
        by=command.by or submission.submitted_by,
        rule=Rule.ASKED,
        job_id=job_id,
        submission=as_recorded(submission),
        target_datacenters=targets,
        digest=contents,
    )
    stone = tracker.state.tombstones.get(job_id)
    if stone is None:
        return GateDecision([accepted], Outcome.ACCEPTED, Rule.ASKED, "", job_id)
    decided = decided_before(stone, job_id, now)
    return GateDecision([accepted, decided], Outcome.ACCEPTED, Rule.TOMBSTONE, stone.reason, job_id)


def gate_cancel(tracker: GateJobTracker, command: GateCancel, now: float, rules: Rules) -> GateDecision:
    job_id, reason = command.job_id, command.reason or "cancelled"
    if archived := tracker.state.archive.get(job_id):
        return GateDecision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {archived.state}", job_id)
    info = tracker.jobs.get(job_id)
    if info is None:
        if job_id in tracker.state.tombstones:
            return GateDecision([], Outcome.ALREADY, Rule.TOMBSTONE, "it was cancelled before it was known", job_id)
        stone = GateTombstoneSet(at=now, by=command.by, rule=Rule.ASKED, job_id=job_id, reason=reason)
        return GateDecision([stone], Outcome.ACCEPTED, Rule.TOMBSTONE, "not known here yet; it will not run", job_id)
    if info.state.terminal:
        return GateDecision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {info.state}", job_id)
    if info.decided is not None:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"already decided: {info.decided}", job_id)
    decided = GlobalDecisionMade(
        at=now,
        by=command.by,
        rule=Rule.ASKED,
        job_id=job_id,
        state=JobState.CANCELLED,
        reason=reason,
        evidence={"epoch": tracker.epoch},
    )
    return GateDecision([decided], Outcome.ACCEPTED, Rule.ASKED, reason, job_id)


def gate_fail_job(tracker: GateJobTracker, command: GateFailJob, now: float, rules: Rules) -> GateDecision:
    """Ends a job on which our own code raised. Datacenters get a cancel, which every version of them obeys; rule and reason state the fault."""
    info = tracker.jobs.get(command.job_id)
    if info is None or info.state.terminal or info.decided is not None:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is decided, or not known", command.job_id)
    reason = f"Tenure itself failed on it while {command.doing}: {command.error}"[: LIMITS.max_error_chars]
    decided = GlobalDecisionMade(
        at=now,
        by=command.by,
        rule=Rule.PRODUCT_FAILED,
        job_id=command.job_id,
        state=JobState.CANCELLED,
        reason=reason,
        evidence={"epoch": tracker.epoch, "doing": command.doing, "traceback": command.trace[-MOST_TRACE_CHARS:]},
    )
    return GateDecision([decided], Outcome.ACCEPTED, Rule.PRODUCT_FAILED, reason, command.job_id)


def gate_archive(tracker: GateJobTracker, command: GateArchive, now: float, rules: Rules) -> GateDecision:
    info = tracker.jobs.get(command.job_id)
    if info is None:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not in memory", command.job_id)
    if not info.state.terminal or now < info.ended_at + tracker.settings.archive_after:
        return GateDecision([], Outcome.NOTHING, Rule.RETENTION, f"it is {info.state}", info.job_id)
    surplus = max(0, len(tracker.state.archive) + 1 - tracker.settings.max_remembered)
    event = GateJobArchived(
        at=now,
        by=command.by,
        rule=Rule.RETENTION,
        job_id=info.job_id,
        forget=tuple(tracker.oldest_archived(surplus)),
    )
    return GateDecision([event], Outcome.ACCEPTED, Rule.RETENTION, "", info.job_id)


def gate_forget_old(tracker: GateJobTracker, command: GateForgetOld, now: float, rules: Rules) -> GateDecision:
    until = now - tracker.settings.id_memory
    if not tracker.holds_older_than(until):
        return GateDecision([], Outcome.NOTHING, Rule.RETENTION)
    gone = GateForgotten(at=now, by=command.by, rule=Rule.RETENTION, until=until)
    return GateDecision([gone], Outcome.ACCEPTED, Rule.RETENTION)


def rebuilt_from(report: JobProgressReport | JobTimeoutReport, now: float) -> GateJobRebuilt:
    dc = report.datacenter
    return GateJobRebuilt(
        at=now,
        by=dc,
        rule=Rule.REBUILT,
        job_id=report.job_id,
        submitted_at=now - report.elapsed_seconds,
        timeout_seconds=report.timeout_seconds,
        target_datacenters=tuple(dict.fromkeys((*report.target_datacenters, dc))),
        steered=report.steered,
        paused=isinstance(report, JobProgressReport) and report.paused,
        paused_s=report.paused_s,
        evidence={"datacenter": dc, "elapsed": report.elapsed_seconds, "submitted_at": report.submitted_at},
    )


def gate_elected(tracker: GateJobTracker, event: GateElected) -> None:
    tracker.state.epoch, tracker.state.leader = event.epoch, event.gate
    for info in tracker.jobs.values():
        if not info.state.terminal:
            # The progress that the last gate held in `fresh` is lost, so the stuck clocks start at the takeover.
            info.resumed_at = event.at


def open_job(
    job_id: str, at: float, timeout_seconds: float | None, targets: Iterable[str], *, submitted_at: float
) -> GateJobTrackingInfo:
    datacenters = list(targets)
    return GateJobTrackingInfo(
        job_id=job_id,
        submitted_at=submitted_at,
        timeout_seconds=timeout_seconds,
        target_datacenters=datacenters,
        dc_status=dict.fromkeys(datacenters, JobState.RUNNING),
        dc_last_progress=dict.fromkeys(datacenters, at),
        dc_fence_tokens=dict.fromkeys(datacenters, 0),
        dc_heard=dict.fromkeys(datacenters, False),
    )


def gate_job_accepted(tracker: GateJobTracker, event: GateJobAccepted) -> None:
    submission = event.submission
    info = open_job(event.job_id, event.at, submission.timeout_seconds, event.target_datacenters, submitted_at=event.at)
    info.submission, info.digest = submission, event.digest
    tracker.jobs[event.job_id] = info
    tracker.drop_tombstone(event.job_id)
    if submission.idempotency_key:
        tracker.keys[submission.idempotency_key] = event.job_id


def gate_job_rebuilt(tracker: GateJobTracker, event: GateJobRebuilt) -> None:
    info = tracker.jobs[event.job_id] = open_job(
        event.job_id, event.at, event.timeout_seconds, event.target_datacenters, submitted_at=event.submitted_at
    )
    # Every datacenter is sent the order that this one obeyed: some may have missed it.
    info.steered, info.paused_s = event.steered, event.paused_s
    info.pause = PauseRecord(at=event.at, by=event.by) if event.paused else None
    tracker.drop_tombstone(event.job_id)


def gate_tombstone_set(tracker: GateJobTracker, event: GateTombstoneSet) -> None:
    tracker.state.tombstones[event.job_id] = Tombstone(
        at=event.at, state=JobState.CANCELLED, reason=event.reason, by=event.by
    )


def gate_job_archived(tracker: GateJobTracker, event: GateJobArchived) -> None:
    info = tracker.jobs.pop(event.job_id)
    tracker.note_archived(info)
    tracker.ended.pop(event.job_id, None)
    tracker.forget_fresh(event.job_id, info.target_datacenters)
    archived = ArchivedJob(
        state=info.state,
        ended_at=info.ended_at,
        archived_at=event.at,
        digest=info.digest,
        idempotency_key=info.submission.idempotency_key if info.submission else "",
    )
    tracker.archive(event.job_id, archived, event.forget)


def gate_forgotten(tracker: GateJobTracker, event: GateForgotten) -> None:
    tracker.forget_until(event.until)


DECIDE: Decides = {
    GateTakeLead: gate_take_lead,
    GateSubmit: gate_submit,
    GateCancel: gate_cancel,
    GateFailJob: gate_fail_job,
    GateArchive: gate_archive,
    GateForgetOld: gate_forget_old,
}
FOLD: Folds = {
    GateElected: gate_elected,
    GateJobAccepted: gate_job_accepted,
    GateJobRebuilt: gate_job_rebuilt,
    GateTombstoneSet: gate_tombstone_set,
    GateJobArchived: gate_job_archived,
    GateForgotten: gate_forgotten,
}
