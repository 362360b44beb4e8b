"""Decides for a gate about its jobs: `decide_gate(tracker, command, now)` returns events and changes nothing.

This module has the three conditions of document 002, part 5, submissions, cancels and takeovers; `gate_hear` has the messages of
datacenters. A journaled decision is final; only `gate_outbox` knows which datacenters it still has to be sent to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tenure.errors import ConfigurationError, StaleEpochError, SubmissionConflictError
from tenure.jobs import gate_commands as gc
from tenure.jobs import gate_events as g
from tenure.jobs import gate_hear
from tenure.jobs.commands import Command, Outcome
from tenure.jobs.decide_jobs import LIMITS, MOST_TRACE_CHARS
from tenure.jobs.events import Evidence, Rule
from tenure.jobs.gate_commands import GateDecision
from tenure.jobs.gate_tracker import GateJobTracker, GateJobTrackingInfo
from tenure.jobs.rules import RULES, Rules
from tenure.jobs.states import JobState
from tenure.jobs.submission import digest, validate


def take_lead(tracker: GateJobTracker, command: gc.GateTakeLead, now: float, rules: Rules) -> GateDecision:
    # Epochs only grow: a gate with an epoch that the journal has seen was replaced.
    if command.epoch <= tracker.epoch:
        raise StaleEpochError(command.epoch, tracker.epoch)
    elected = g.GateElected(
        at=now,
        by=command.gate,
        rule=Rule.TAKEOVER,
        epoch=command.epoch,
        gate=command.gate,
        evidence={"previous_gate": tracker.state.gate, "previous_epoch": tracker.epoch},
    )
    return GateDecision([elected], Outcome.ACCEPTED, Rule.TAKEOVER)


def submit(tracker: GateJobTracker, command: gc.GateSubmit, now: float, rules: Rules) -> GateDecision:
    submission, targets = command.submission, command.target_datacenters
    validate(submission, LIMITS)
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
    known = known_digest(tracker, job_id)
    if known is not None:
        # A job rebuilt from reports has no digest: its contents were lost with the journal.
        if known not in ("", contents):
            raise SubmissionConflictError("job id", job_id, job_id)
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "this job was submitted before", job_id)
    key = submission.idempotency_key
    if key and (other := tracker.keys.get(key)):
        if known_digest(tracker, other) not in ("", contents):
            raise SubmissionConflictError("idempotency key", key, other)
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "its idempotency key was used before", other)
    accepted = g.GateJobAccepted(
        at=now,
        by=command.by or submission.submitted_by,
        rule=Rule.ASKED,
        job_id=job_id,
        submission=submission,
        target_datacenters=targets,
        digest=contents,
    )
    stone = tracker.state.tombstones.get(job_id)
    if stone is None:
        return GateDecision([accepted], Outcome.ACCEPTED, Rule.ASKED, "", job_id)
    decided = g.GlobalDecisionMade(
        at=now, by=stone.by, rule=Rule.TOMBSTONE, job_id=job_id, state=stone.state, reason=stone.reason
    )
    return GateDecision([accepted, decided], Outcome.ACCEPTED, Rule.TOMBSTONE, stone.reason, job_id)


def known_digest(tracker: GateJobTracker, job_id: str) -> str | None:
    if info := tracker.jobs.get(job_id):
        return info.digest
    archived = tracker.state.archive.get(job_id)
    return archived.digest if archived else None


class Condition(NamedTuple):
    """One of the three conditions, when it holds."""

    rule: Rule
    reason: str
    from_reports: bool
    evidence: Evidence


def conditions(tracker: GateJobTracker, info: GateJobTrackingInfo, now: float, link_suspect: bool) -> Condition | None:
    """Returns the first that holds: global timeout exceeded, any datacenter timed out, all datacenters stuck (document 002, part 5)."""
    elapsed = now - info.submitted_at
    due = tracker.deadline(info)
    if now > due:
        allowed = due - info.submitted_at
        return Condition(
            Rule.OVERALL_TIMEOUT,
            f"global timeout: {elapsed:.0f} s elapsed of {allowed:.0f} s allowed",
            False,
            {
                "elapsed": elapsed,
                "timeout_seconds": info.timeout_seconds,
                "extensions": max(info.dc_extensions.values(), default=0.0),
            },
        )
    over = [dc for dc in info.target_datacenters if info.dc_status[dc] is JobState.TIMED_OUT or dc in info.dc_timeouts]
    if over:
        tokens = {dc: info.dc_timeouts.get(dc, info.dc_fence_tokens[dc]) for dc in over}
        return Condition(
            Rule.ANY_DATACENTER,
            f"datacenter {', '.join(over)} timed out",
            True,
            {"datacenters": over, "tokens": tokens, "highest_tokens": dict(info.dc_fence_tokens)},
        )
    running = info.running
    # While the gate doubts its own link, the silence of the datacenters proves nothing.
    if running and not link_suspect and now > tracker.all_stuck_at(info):
        silent = {dc: round(now - tracker.last_progress(info, dc), 3) for dc in running}
        return Condition(
            Rule.ALL_STUCK,
            f"no progress in any datacenter for {min(silent.values()):.0f} s",
            True,
            {"silent": silent, "stuck_threshold": tracker.settings.stuck_threshold},
        )
    return None


def check(tracker: GateJobTracker, command: gc.CheckGlobal, now: float, rules: Rules) -> GateDecision:
    """Decides when one of the conditions holds. Idempotent: a decision is made once."""
    info = tracker.job(command.job_id)
    if info.state.terminal or info.decided is not None:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, info.decided_reason or info.reason, info.job_id)
    found = conditions(tracker, info, now, command.link_suspect)
    if found is None:
        return GateDecision([], Outcome.NOTHING, Rule.FOLLOWED, "", info.job_id)
    decided = declare(tracker, info, found, now)
    return GateDecision([decided], Outcome.ACCEPTED, found.rule, found.reason, info.job_id)


def declare(tracker: GateJobTracker, info: GateJobTrackingInfo, found: Condition, now: float) -> g.GlobalDecisionMade:
    return g.GlobalDecisionMade(
        at=now,
        by=tracker.state.gate,
        rule=found.rule,
        job_id=info.job_id,
        state=JobState.TIMED_OUT,
        reason=found.reason,
        from_reports=found.from_reports,
        evidence={"epoch": tracker.epoch, **found.evidence},
    )


def cancel(tracker: GateJobTracker, command: gc.GateCancel, now: float, rules: Rules) -> GateDecision:
    job_id, reason = command.job_id, command.reason or "cancelled"
    if archived := tracker.state.archive.get(job_id):
        return GateDecision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {archived.state}", job_id)
    info = tracker.jobs.get(job_id)
    if info is None:
        if job_id in tracker.state.tombstones:
            return GateDecision([], Outcome.ALREADY, Rule.TOMBSTONE, "it was cancelled before it was known", job_id)
        stone = g.GateTombstoneSet(at=now, by=command.by, rule=Rule.ASKED, job_id=job_id, reason=reason)
        return GateDecision([stone], Outcome.ACCEPTED, Rule.TOMBSTONE, "not known here yet; it will not run", job_id)
    if info.state.terminal:
        return GateDecision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {info.state}", job_id)
    if info.decided is not None:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"already decided: {info.decided}", job_id)
    decided = g.GlobalDecisionMade(
        at=now,
        by=command.by,
        rule=Rule.ASKED,
        job_id=job_id,
        state=JobState.CANCELLED,
        reason=reason,
        evidence={"epoch": tracker.epoch},
    )
    return GateDecision([decided], Outcome.ACCEPTED, Rule.ASKED, reason, job_id)


def fail(tracker: GateJobTracker, command: gc.GateFailJob, now: float, rules: Rules) -> GateDecision:
    """Ends a job on which our own code raised. Datacenters get a cancel, which every version of them obeys; rule and reason state the fault."""
    info = tracker.jobs.get(command.job_id)
    if info is None or info.state.terminal or info.decided is not None:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is decided, or not known", command.job_id)
    reason = f"Tenure itself failed on it while {command.doing}: {command.error}"[: LIMITS.max_error_chars]
    decided = g.GlobalDecisionMade(
        at=now,
        by=command.by,
        rule=Rule.PRODUCT_FAILED,
        job_id=command.job_id,
        state=JobState.CANCELLED,
        reason=reason,
        evidence={"epoch": tracker.epoch, "doing": command.doing, "traceback": command.trace[-MOST_TRACE_CHARS:]},
    )
    return GateDecision([decided], Outcome.ACCEPTED, Rule.PRODUCT_FAILED, reason, command.job_id)


def archive(tracker: GateJobTracker, command: gc.GateArchive, now: float, rules: Rules) -> GateDecision:
    info = tracker.jobs.get(command.job_id)
    if info is None:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is not in memory", command.job_id)
    if not info.state.terminal or now < info.ended_at + tracker.settings.archive_after:
        return GateDecision([], Outcome.NOTHING, Rule.RETENTION, f"it is {info.state}", info.job_id)
    surplus = max(0, len(tracker.state.archive) + 1 - tracker.settings.max_remembered)
    oldest = iter(tracker.state.archive)
    event = g.GateJobArchived(
        at=now,
        by=command.by,
        rule=Rule.RETENTION,
        job_id=info.job_id,
        forget=tuple(next(oldest) for _ in range(surplus)),
    )
    return GateDecision([event], Outcome.ACCEPTED, Rule.RETENTION, "", info.job_id)


def forget_old(tracker: GateJobTracker, command: gc.GateForgetOld, now: float, rules: Rules) -> GateDecision:
    until = now - tracker.settings.id_memory
    oldest = next(iter(tracker.state.archive.values()), None)
    stone = next(iter(tracker.state.tombstones.values()), None)
    if (oldest is None or oldest.archived_at > until) and (stone is None or stone.at > until):
        return GateDecision([], Outcome.NOTHING, Rule.RETENTION)
    gone = g.GateForgotten(at=now, by=command.by, rule=Rule.RETENTION, until=until)
    return GateDecision([gone], Outcome.ACCEPTED, Rule.RETENTION)


GateDecider = Callable[[GateJobTracker, Any, float, Rules], GateDecision]

DECIDE_GATE: Mapping[type[Command], GateDecider] = {
    gc.GateTakeLead: take_lead,
    gc.GateSubmit: submit,
    gc.HearProgress: gate_hear.progress,
    gc.HearTimeout: gate_hear.timeout,
    gc.HearCorrection: gate_hear.correction,
    gc.HearTransfer: gate_hear.transfer,
    gc.CheckGlobal: check,
    gc.GateCancel: cancel,
    gc.GateFailJob: fail,
    gc.GateArchive: archive,
    gc.GateForgetOld: forget_old,
}


def decide_gate(tracker: GateJobTracker, command: Command, now: float, rules: Rules = RULES) -> GateDecision:
    """Returns the decision that follows from `command` at `now`, the gate's engine time. Raises for a mistake of the caller."""
    return DECIDE_GATE[type(command)](tracker, command, now, rules)
