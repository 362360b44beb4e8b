"""A manager's exchange with the gate of a job: the gate's decisions are obeyed or refused as stale, and reports go back (document 002, parts 4, 6 and 7).

Reports are best effort, and it is safe to repeat them. The leader reports a local timeout until the gate has decided, and an end
until the gate has acknowledged it. Both survive the leader because they are in the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tenure.jobs import budget
from tenure.jobs.deadlines import may_earn
from tenure.jobs.decisions import NO_TOKEN, Command, Decides, Decision, Event, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.endings import TombstoneSet, end, see_gate_epoch
from tenure.jobs.messages import (
    Identity,
    JobGlobalCancel,
    JobGlobalTimeout,
    JobLeaderTransfer,
    JobProgressReport,
    JobReportAck,
    JobStatusCorrection,
    JobStatusQuery,
    JobTimeoutReport,
)
from tenure.jobs.model import JobInfo
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import JobState
from tenure.jobs.timeout import rules_for

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


class ObeyGlobalTimeout(Command, frozen=True, kw_only=True):
    message: JobGlobalTimeout
    identity: Identity


class ObeyGlobalCancel(Command, frozen=True, kw_only=True):
    message: JobGlobalCancel
    identity: Identity


class AnswerQuery(Command, frozen=True, kw_only=True):
    """A gate that lost its journal asks for the state of a job."""

    message: JobStatusQuery
    identity: Identity


class HearGate(Command, frozen=True, kw_only=True):
    """The gate answered a report."""

    message: JobReportAck


class GlobalDecisionRefused(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A decision of the gate was stale. The leader answered with a correction."""

    fence_token: int
    gate_epoch: int


class GateEpochSeen(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A newer gate is in charge: the leader refuses decisions of lower epochs from now on."""

    gate_epoch: int


class GateAcknowledged(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The gate knows how the job ended here."""

    gate_epoch: int = 0


class GlobalWord(NamedTuple):
    """A decision of the gate, in one form for all messages that carry one."""

    job_id: str
    state: JobState
    rule: Rule
    reason: str
    fence_token: int
    gate_epoch: int


def obey_global_timeout(book: JobBook, command: ObeyGlobalTimeout, now: float, rules: Rules) -> Decision:
    said = command.message
    reason = f"the gate declared a global timeout: {said.reason.removeprefix('global timeout: ')}"
    word = GlobalWord(said.job_id, JobState.TIMED_OUT, Rule.GLOBAL_TIMEOUT, reason, said.fence_token, said.gate_epoch)
    return obey(book, command.identity, word, now, rules)


def obey_global_cancel(book: JobBook, command: ObeyGlobalCancel, now: float, rules: Rules) -> Decision:
    said = command.message
    word = GlobalWord(said.job_id, JobState.CANCELLED, Rule.GLOBAL_CANCEL, said.reason, NO_TOKEN, said.gate_epoch)
    return obey(book, command.identity, word, now, rules)


def obey(book: JobBook, identity: Identity, word: GlobalWord, now: float, rules: Rules) -> Decision:
    """Obeys the decision, answers with the final status, or refuses it as stale with a correction."""
    info = book.jobs.get(word.job_id)
    if info is None:
        return obey_unknown(book, identity, word, now)
    tracking = info.timeout_tracking
    token, epoch = tracking.timeout_fence_token, max(tracking.gate_epoch, word.gate_epoch)
    if rules.is_final(info.state):
        # The end that came first stands: the reply carries it, and the gate keeps it for this datacenter.
        words = f"it had ended before: {info.state}"
        reply = correction(identity, word.job_id, info.state, token, epoch, reason=words, by_gate=info.ended_by_gate)
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, words, info.id, reply)
    stale = why_stale(info, word, rules)
    if stale is not None:
        why, words = stale
        reply = correction(identity, word.job_id, info.state, token, epoch, reason=words)
        events: list[Event] = [] if refused_before(info, word) else [refusal(info, word, why, now)]
        return Decision(events, Outcome.REFUSED, why, words, info.id, reply)
    evidence = {"fence_token": word.fence_token, "own_token": token, "highest_gate_epoch": tracking.gate_epoch}
    ended = end(info, now, word.state, word.rule, word.reason, by="gate", evidence=evidence, gate_epoch=word.gate_epoch)
    reply = correction(identity, word.job_id, word.state, token, epoch, accepted=True, by_gate=True)
    return Decision([ended], Outcome.ACCEPTED, word.rule, word.reason, info.id, reply)


def why_stale(info: JobInfo, word: GlobalWord, rules: Rules) -> tuple[Rule, str] | None:
    tracking = info.timeout_tracking
    if alone := rules_for(info).why_not_obey():
        return Rule.STALE_GATE, alone
    if rules.gate_is_stale(word.gate_epoch, tracking.gate_epoch):
        return Rule.STALE_GATE, f"gate epoch {word.gate_epoch} is over: {tracking.gate_epoch} was seen"
    if rules.token_is_stale(word.fence_token, tracking.timeout_fence_token):
        own = tracking.timeout_fence_token
        return Rule.STALE_TOKEN, f"it echoes token {word.fence_token}, and the leader's is {own}"
    return None


def refused_before(info: JobInfo, word: GlobalWord) -> bool:
    return info.timeout_tracking.last_refused == (word.fence_token, word.gate_epoch)


def refusal(info: JobInfo, word: GlobalWord, why: Rule, now: float) -> GlobalDecisionRefused:
    tracking = info.timeout_tracking
    return GlobalDecisionRefused(
        at=now,
        by="gate",
        rule=why,
        job_id=info.id,
        fence_token=word.fence_token,
        gate_epoch=word.gate_epoch,
        evidence={
            "own_token": tracking.timeout_fence_token,
            "highest_gate_epoch": tracking.gate_epoch,
            "decision": word.reason,
        },
    )


def obey_unknown(book: JobBook, identity: Identity, word: GlobalWord, now: float) -> Decision:
    """Answers for an archived job with its final status. An unknown one gets a tombstone, so that a late submission does not run."""
    job_id = word.job_id
    if archived := book.state.archive.get(job_id):
        words = f"it had ended before: {archived.state}"
        epoch = max(archived.gate_epoch, word.gate_epoch)
        reply = correction(
            identity,
            job_id,
            archived.state,
            archived.fence_token,
            epoch,
            reason=words,
            by_gate=archived.ended_by_gate,
        )
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, words, job_id, reply)
    stone = book.state.tombstones.get(job_id)
    if stone is not None:
        reply = correction(
            identity,
            job_id,
            stone.state,
            NO_TOKEN,
            word.gate_epoch,
            reason=stone.reason,
            by_gate=stone.gate_epoch > 0,
        )
        return Decision([], Outcome.ALREADY, Rule.TOMBSTONE, stone.reason, job_id, reply)
    # No share of its own limits the tombstones of a gate: the gate would send a refused decision again and again.
    budget.check_room(book)
    event = TombstoneSet(
        at=now,
        by="gate",
        rule=word.rule,
        job_id=job_id,
        state=word.state,
        reason=word.reason,
        gate_epoch=word.gate_epoch,
    )
    reply = correction(identity, job_id, word.state, NO_TOKEN, word.gate_epoch, accepted=True, by_gate=True)
    return Decision([event], Outcome.ACCEPTED, Rule.TOMBSTONE, word.reason, job_id, reply)


def answer_query(book: JobBook, command: AnswerQuery, now: float, rules: Rules) -> Decision:
    """Answers with the job's state here. A job that never arrived gets a tombstone: the gate that could send it has lost it."""
    asked = command.message
    info = book.jobs.get(asked.job_id)
    if info is None:
        reason = "the gate lost it before it arrived here"
        word = GlobalWord(asked.job_id, JobState.CANCELLED, Rule.GLOBAL_CANCEL, reason, NO_TOKEN, asked.gate_epoch)
        return obey_unknown(book, command.identity, word, now)
    tracking = info.timeout_tracking
    epoch = max(tracking.gate_epoch, asked.gate_epoch)
    reply = correction(
        command.identity,
        info.id,
        info.state,
        tracking.timeout_fence_token,
        epoch,
        reason=info.reason,
        by_gate=info.ended_by_gate,
    )
    events: list[Event] = []
    if asked.gate_epoch > tracking.gate_epoch:
        events.append(GateEpochSeen(at=now, by="gate", job_id=info.id, gate_epoch=asked.gate_epoch))
    return Decision(events, Outcome.ALREADY, Rule.FOLLOWED, f"it is {info.state}", info.id, reply)


def correction(
    identity: Identity,
    job_id: str,
    status: JobState,
    token: int,
    epoch: int,
    *,
    accepted: bool = False,
    reason: str = "",
    by_gate: bool = False,
) -> JobStatusCorrection:
    return JobStatusCorrection(
        job_id=job_id,
        datacenter=identity.datacenter,
        manager_id=identity.manager_id,
        status=status,
        fence_token=token,
        gate_epoch=epoch,
        accepted=accepted,
        reason=reason,
        manager_host=identity.host,
        manager_port=identity.port,
        ended_by_gate=by_gate,
    )


def hear_gate(book: JobBook, command: HearGate, now: float, rules: Rules) -> Decision:
    """Handles the gate's answer to a report: the gate knows how the job ended here, or it shows a newer epoch."""
    ack = command.message
    info = book.jobs.get(ack.job_id)
    if info is None:
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, "the job is not in memory", ack.job_id)
    tracking = info.timeout_tracking
    if rules.gate_is_stale(ack.gate_epoch, tracking.gate_epoch):
        return Decision([], Outcome.REFUSED, Rule.STALE_GATE, f"gate epoch {ack.gate_epoch} is over", info.id)
    if info.state.terminal and ack.status.terminal and not info.gate_acked:
        known = GateAcknowledged(at=now, by="gate", job_id=info.id, gate_epoch=ack.gate_epoch)
        return Decision([known], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)
    if ack.gate_epoch > tracking.gate_epoch:
        seen = GateEpochSeen(at=now, by="gate", job_id=info.id, gate_epoch=ack.gate_epoch)
        return Decision([seen], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)
    return Decision([], Outcome.NOTHING, Rule.FOLLOWED, "", info.id)


def global_decision_refused(book: JobBook, event: GlobalDecisionRefused) -> None:
    info = book.job(event.job_id)
    info.timeout_tracking.last_refused = (event.fence_token, event.gate_epoch)
    see_gate_epoch(info, event.gate_epoch)


def gate_epoch_seen(book: JobBook, event: GateEpochSeen) -> None:
    see_gate_epoch(book.job(event.job_id), event.gate_epoch)


def gate_acknowledged(book: JobBook, event: GateAcknowledged) -> None:
    info = book.job(event.job_id)
    info.gate_acked = True
    see_gate_epoch(info, event.gate_epoch)


def report_for(
    info: JobInfo, identity: Identity, now: float, settings: JobSettings, progress_at: float = 0.0
) -> JobProgressReport | JobTimeoutReport | None:
    """Returns the report that is due for this job every `report_interval`; None when the gate needs none."""
    tracking = info.timeout_tracking
    if tracking.gate_addr is None or (info.state.terminal and info.gate_acked):
        return None
    if is_timed_out(info) and not info.state.terminal:
        return timeout_report(info, identity, now)
    return progress_report(info, identity, now, settings, progress_at)


def is_timed_out(info: JobInfo) -> bool:
    """Returns True when the leader reports a local timeout. A new leader first journals it with its own token; until then it reports progress."""
    tracking = info.timeout_tracking
    return tracking.locally_timed_out and tracking.reported_token == tracking.timeout_fence_token


def progress_report(
    info: JobInfo, identity: Identity, now: float, settings: JobSettings, progress_at: float = 0.0
) -> JobProgressReport:
    tracking, submission = info.timeout_tracking, info.job.submission
    newest = max(tracking.last_progress_at, progress_at)
    return JobProgressReport(
        job_id=info.id,
        datacenter=identity.datacenter,
        manager_id=identity.manager_id,
        manager_host=identity.host,
        manager_port=identity.port,
        workflows_total=len(info.workflows),
        workflows_completed=info.completed_workflows,
        workflows_failed=info.failed_workflows,
        has_recent_progress=now - newest <= settings.report_interval,
        timestamp=now,
        fence_token=tracking.timeout_fence_token,
        status=info.state if info.state.terminal else JobState.RUNNING,
        workflows_running=info.running_workflows,
        elapsed_seconds=max(0.0, now - tracking.started_at),
        total_extensions_granted=tracking.total_extensions_granted,
        reason=info.reason,
        ended_by_gate=info.ended_by_gate,
        gate_epoch=tracking.gate_epoch,
        submitted_at=submission.global_submitted_at,
        timeout_seconds=tracking.timeout_seconds,
        target_datacenters=submission.target_datacenters,
        attempts=info.attempts,
        steered=tracking.steered,
        paused=tracking.pause is not None,
        paused_s=tracking.paused_s,
        may_earn=may_earn(info, now),
    )


def timeout_report(info: JobInfo, identity: Identity, now: float) -> JobTimeoutReport:
    tracking, submission = info.timeout_tracking, info.job.submission
    assert tracking.reported_reason is not None, "a local timeout has a reason"
    return JobTimeoutReport(
        job_id=info.id,
        datacenter=identity.datacenter,
        manager_id=identity.manager_id,
        manager_host=identity.host,
        manager_port=identity.port,
        reason=tracking.reported_reason,
        elapsed_seconds=max(0.0, now - tracking.started_at),
        fence_token=tracking.reported_token,
        total_extensions_granted=tracking.total_extensions_granted,
        gate_epoch=tracking.gate_epoch,
        submitted_at=submission.global_submitted_at,
        timeout_seconds=tracking.timeout_seconds,
        target_datacenters=submission.target_datacenters,
        steered=tracking.steered,
        paused_s=tracking.paused_s,
    )


def leader_transfer(info: JobInfo, identity: Identity, epoch: int, old_manager_id: str) -> JobLeaderTransfer:
    """Returns the message that a new leader sends once, so that the gate learns its address and token before the next report."""
    return JobLeaderTransfer(
        job_id=info.id,
        datacenter=identity.datacenter,
        new_manager_id=identity.manager_id,
        new_manager_host=identity.host,
        new_manager_port=identity.port,
        fence_token=info.timeout_tracking.timeout_fence_token,
        epoch=epoch,
        old_manager_id=old_manager_id,
    )


DECIDE: Decides = {
    ObeyGlobalTimeout: obey_global_timeout,
    ObeyGlobalCancel: obey_global_cancel,
    AnswerQuery: answer_query,
    HearGate: hear_gate,
}
FOLD: Folds = {
    GlobalDecisionRefused: global_decision_refused,
    GateEpochSeen: gate_epoch_seen,
    GateAcknowledged: gate_acknowledged,
}
