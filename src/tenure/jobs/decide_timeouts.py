"""Decides about a job's time and about the gate's messages: local authority, gate coordination, fallback, stale decisions.

Document 002, parts 3, 4 and 7, with the rulings of DESIGN.md (`rules.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from tenure.jobs import budget
from tenure.jobs import commands as c
from tenure.jobs import events as e
from tenure.jobs.book import JobBook
from tenure.jobs.commands import Decision, Identity, Outcome
from tenure.jobs.deadlines import Expiry, expiry, fallback_at
from tenure.jobs.decide_jobs import end
from tenure.jobs.events import Rule
from tenure.jobs.messages import JobStatusCorrection
from tenure.jobs.model import JobInfo
from tenure.jobs.rules import NO_TOKEN, Rules
from tenure.jobs.states import JobState, StrategyType


def check(book: JobBook, command: c.CheckJob, now: float, rules: Rules) -> Decision:
    """Decides whether the job's time has run out. The leader then ends the job, or reports to the gate where a gate decides. Idempotent."""
    info = book.job(command.job_id)
    if rules.is_final(info.state):
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, info.reason, info.id)
    tracking = info.timeout_tracking
    if tracking.strategy_type is StrategyType.GATE_COORDINATED and tracking.locally_timed_out:
        return await_gate(book, info, now, rules)
    over = expiry(info, now, command.progress_at)
    if over is None:
        return Decision([], Outcome.NOTHING, Rule.FOLLOWED, "", info.id)
    if command.drained_until is not None and command.drained_until < over.since:
        # A result enqueued before the deadline wins over the deadline, so the leader has to read those results first.
        return Decision(
            [], Outcome.NOTHING, over.rule, "results from before the deadline may still be waiting", info.id
        )
    if tracking.strategy_type is StrategyType.LOCAL_AUTHORITY:
        ended = end(info, now, JobState.TIMED_OUT, over.rule, over.words, by=book.state.leader, evidence=over.evidence)
        return Decision([ended], Outcome.ACCEPTED, over.rule, over.words, info.id)
    return Decision([report(book, info, over, now)], Outcome.ACCEPTED, over.rule, over.words, info.id)


def report(book: JobBook, info: JobInfo, over: Expiry, now: float) -> e.LocalTimeoutReported:
    return e.LocalTimeoutReported(
        at=now,
        by=book.state.leader,
        rule=over.rule,
        job_id=info.id,
        reason=over.reason,
        token=info.timeout_tracking.timeout_fence_token,
        evidence={**over.evidence, "gate_epoch": info.timeout_tracking.gate_epoch},
    )


def await_gate(book: JobBook, info: JobInfo, now: float, rules: Rules) -> Decision:
    """Handles a local timeout that the gate has not answered: ends the job after `fallback_after`, or reports again as a new leader."""
    tracking = info.timeout_tracking
    assert tracking.reported_reason is not None, "a local timeout has a reason"
    waited = now - tracking.first_reported_at
    if now > fallback_at(tracking, book.settings):
        reason = f"{tracking.reported_reason}: the gate has not answered for {waited:.0f} s"
        evidence = {"waited": waited, "fallback_after": book.settings.fallback_after, "token": tracking.reported_token}
        ended = end(info, now, JobState.TIMED_OUT, Rule.FALLBACK, reason, by=book.state.leader, evidence=evidence)
        return Decision([ended], Outcome.ACCEPTED, Rule.FALLBACK, reason, info.id)
    if rules.must_report_again(tracking):
        again = e.LocalTimeoutReported(
            at=now,
            by=book.state.leader,
            rule=Rule.REPORT_AGAIN,
            job_id=info.id,
            reason=tracking.reported_reason,
            token=tracking.timeout_fence_token,
            evidence={"reported_token": tracking.reported_token, "first_reported_at": tracking.first_reported_at},
        )
        return Decision([again], Outcome.ACCEPTED, Rule.REPORT_AGAIN, "a new leader reports again", info.id)
    return Decision(
        [], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"reported {waited:.0f} s ago: {tracking.reported_reason}", info.id
    )


class GlobalWord(NamedTuple):
    """A decision of the gate, in one form for all messages that carry one."""

    job_id: str
    state: JobState
    rule: Rule
    reason: str
    fence_token: int
    gate_epoch: int


def obey_timeout(book: JobBook, command: c.ObeyGlobalTimeout, now: float, rules: Rules) -> Decision:
    said = command.message
    reason = f"the gate declared a global timeout: {said.reason.removeprefix('global timeout: ')}"
    word = GlobalWord(said.job_id, JobState.TIMED_OUT, Rule.GLOBAL_TIMEOUT, reason, said.fence_token, said.gate_epoch)
    return obey(book, command.identity, word, now, rules)


def obey_cancel(book: JobBook, command: c.ObeyGlobalCancel, now: float, rules: Rules) -> Decision:
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
        events: list[e.Event] = [] if refused_before(info, word) else [refusal(info, word, why, now)]
        return Decision(events, Outcome.REFUSED, why, words, info.id, reply)
    evidence = {"fence_token": word.fence_token, "own_token": token, "highest_gate_epoch": tracking.gate_epoch}
    ended = end(info, now, word.state, word.rule, word.reason, by="gate", evidence=evidence, gate_epoch=word.gate_epoch)
    reply = correction(identity, word.job_id, word.state, token, epoch, accepted=True, by_gate=True)
    return Decision([ended], Outcome.ACCEPTED, word.rule, word.reason, info.id, reply)


def why_stale(info: JobInfo, word: GlobalWord, rules: Rules) -> tuple[Rule, str] | None:
    tracking = info.timeout_tracking
    if tracking.gate_addr is None:
        return Rule.STALE_GATE, "this job was submitted without a gate: its manager alone decides"
    if rules.gate_is_stale(word.gate_epoch, tracking.gate_epoch):
        return Rule.STALE_GATE, f"gate epoch {word.gate_epoch} is over: {tracking.gate_epoch} was seen"
    if rules.token_is_stale(word.fence_token, tracking.timeout_fence_token):
        own = tracking.timeout_fence_token
        return Rule.STALE_TOKEN, f"it echoes token {word.fence_token}, and the leader's is {own}"
    return None


def refused_before(info: JobInfo, word: GlobalWord) -> bool:
    return info.timeout_tracking.last_refused == (word.fence_token, word.gate_epoch)


def refusal(info: JobInfo, word: GlobalWord, why: Rule, now: float) -> e.GlobalDecisionRefused:
    tracking = info.timeout_tracking
    return e.GlobalDecisionRefused(
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
    event = e.TombstoneSet(
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


def answer_query(book: JobBook, command: c.AnswerQuery, now: float, rules: Rules) -> Decision:
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
    events: list[e.Event] = []
    if asked.gate_epoch > tracking.gate_epoch:
        events.append(e.GateEpochSeen(at=now, by="gate", job_id=info.id, gate_epoch=asked.gate_epoch))
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


def hear_gate(book: JobBook, command: c.HearGate, now: float, rules: Rules) -> Decision:
    """Handles the gate's answer to a report: the gate knows how the job ended here, or it shows a newer epoch."""
    ack = command.message
    info = book.jobs.get(ack.job_id)
    if info is None:
        return Decision([], Outcome.ALREADY, Rule.JOB_ENDED, "the job is not in memory", ack.job_id)
    tracking = info.timeout_tracking
    if rules.gate_is_stale(ack.gate_epoch, tracking.gate_epoch):
        return Decision([], Outcome.REFUSED, Rule.STALE_GATE, f"gate epoch {ack.gate_epoch} is over", info.id)
    if info.state.terminal and ack.status.terminal and not info.gate_acked:
        known = e.GateAcknowledged(at=now, by="gate", job_id=info.id, gate_epoch=ack.gate_epoch)
        return Decision([known], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)
    if ack.gate_epoch > tracking.gate_epoch:
        seen = e.GateEpochSeen(at=now, by="gate", job_id=info.id, gate_epoch=ack.gate_epoch)
        return Decision([seen], Outcome.ACCEPTED, Rule.FOLLOWED, "", info.id)
    return Decision([], Outcome.NOTHING, Rule.FOLLOWED, "", info.id)
