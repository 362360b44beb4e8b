"""Deadlines: when a job's time is over, and what its leader then does (document 002, parts 3, 4 and 8, with the rulings of `rules.py`).

A leader ends the job itself, or reports to the gate where a gate decides. A new leader goes on with the same deadlines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tenure.errors import (
    StaleEpochError,
)
from tenure.jobs.budget import text_bytes
from tenure.jobs.decisions import (
    Command,
    Decides,
    Decision,
    Event,
    Evidence,
    Folds,
    JobEvent,
    Outcome,
    Rule,
)
from tenure.jobs.endings import end
from tenure.jobs.model import (
    JobInfo,
    TimeoutTrackingState,
)
from tenure.jobs.rules import RULES, Rules
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import (
    JobState,
    StrategyType,
    TimeoutReason,
)

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

NEVER = math.inf


class TakeLead(Command, frozen=True, kw_only=True):
    epoch: int
    leader: str


class CheckJob(Command, frozen=True, kw_only=True):
    """Asks whether the job's time has run out. Results that were enqueued up to `drained_until` are recorded; None means up to now."""

    job_id: str
    drained_until: float | None = None
    progress_at: float = 0.0
    """The newest progress that the leader has seen; it may be newer than what is journaled."""


class LeaderElected(Event, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The first event of a leader. Tokens rise and stuck clocks restart with it."""

    epoch: int
    leader: str

    def growth(self) -> int:
        return text_bytes(self.leader) + 20


class LocalTimeoutReported(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Time ran out here. The leader reports it to the gate, with its own token."""

    reason: TimeoutReason
    token: int

    def growth(self) -> int:
        return text_bytes(self.reason)


class Expiry(NamedTuple):
    """States that time ran out: by which rule, since when, and from which numbers."""

    reason: TimeoutReason
    rule: Rule
    since: float
    words: str
    evidence: Evidence


def deadline(tracking: TimeoutTrackingState) -> float:
    """Returns `started_at + timeout_seconds + total_extensions_granted` (document 002, part 8)."""
    return tracking.started_at + tracking.timeout_seconds + tracking.total_extensions_granted


def progress_since(tracking: TimeoutTrackingState, progress_at: float = 0.0) -> float:
    """Returns where the stuck clock starts: the newest progress, but not before the present leader took over."""
    return max(tracking.last_progress_at, tracking.resumed_at, progress_at)


def stuck_at(info: JobInfo, progress_at: float = 0.0) -> float:
    """Returns when the job is stuck unless something advances. `NEVER` while nothing of it runs: work that waits in a queue is not stuck."""
    if not info.running_workflows:
        return NEVER
    tracking = info.timeout_tracking
    return progress_since(tracking, progress_at) + tracking.stuck_threshold


def fallback_at(tracking: TimeoutTrackingState, settings: JobSettings) -> float:
    """Returns when the leader executes a local timeout that no gate has answered. It counts from the first report, under any leader."""
    return tracking.first_reported_at + settings.fallback_after


def expiry(info: JobInfo, now: float, progress_at: float = 0.0) -> Expiry | None:
    """Applies check 1, overall timeout, then check 2, stuck detection (document 002, part 3). Both compare strictly."""
    tracking = info.timeout_tracking
    due = deadline(tracking)
    elapsed = now - tracking.started_at
    if now > due:
        allowed = due - tracking.started_at
        return Expiry(
            TimeoutReason.TIMEOUT,
            Rule.OVERALL_TIMEOUT,
            due,
            f"timeout: {elapsed:.0f} s elapsed of {allowed:.0f} s allowed",
            {
                "elapsed": elapsed,
                "timeout_seconds": tracking.timeout_seconds,
                "total_extensions_granted": tracking.total_extensions_granted,
            },
        )
    stuck = stuck_at(info, progress_at)
    if now > stuck:
        silent = now - progress_since(tracking, progress_at)
        return Expiry(
            TimeoutReason.STUCK,
            Rule.STUCK,
            stuck,
            f"stuck: no progress for {silent:.0f} s, {tracking.stuck_threshold:.0f} s allowed",
            {
                "silent": silent,
                "stuck_threshold": tracking.stuck_threshold,
                "running": info.running_workflows,
                "elapsed": elapsed,
            },
        )
    return None


def next_due(info: JobInfo, settings: JobSettings, progress_at: float = 0.0, rules: Rules = RULES) -> float:
    """Returns the next time at which checking this job can matter. `NEVER` for one that has ended.

    The checks compare strictly, so this is the first instant after the deadline. A timer that fires at it finds the deadline passed.
    """
    if info.state.terminal:
        return NEVER
    tracking = info.timeout_tracking
    if tracking.strategy_type is StrategyType.GATE_COORDINATED and tracking.locally_timed_out:
        if rules.must_report_again(tracking):
            return 0.0
        return math.nextafter(fallback_at(tracking, settings), NEVER)
    return math.nextafter(min(deadline(tracking), stuck_at(info, progress_at)), NEVER)


def take_lead(book: JobBook, command: TakeLead, now: float, rules: Rules) -> Decision:
    # Epochs only grow: a leader with an epoch that the journal has seen was replaced.
    if command.epoch <= book.epoch:
        raise StaleEpochError(command.epoch, book.epoch)
    elected = LeaderElected(
        at=now,
        by=command.leader,
        rule=Rule.TAKEOVER,
        epoch=command.epoch,
        leader=command.leader,
        evidence={"previous_leader": book.state.leader, "previous_epoch": book.epoch},
    )
    return Decision([elected], Outcome.ACCEPTED, Rule.TAKEOVER)


def check_job(book: JobBook, command: CheckJob, now: float, rules: Rules) -> Decision:
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
    return Decision([local_timeout(book, info, over, now)], Outcome.ACCEPTED, over.rule, over.words, info.id)


def local_timeout(book: JobBook, info: JobInfo, over: Expiry, now: float) -> LocalTimeoutReported:
    return LocalTimeoutReported(
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
        again = LocalTimeoutReported(
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


def leader_elected(book: JobBook, event: LeaderElected) -> None:
    state = book.state
    state.epoch, state.leader, state.elected_at = event.epoch, event.leader, event.at
    for info in state.jobs.values():
        if not info.state.terminal:
            tracking = info.timeout_tracking
            # The higher token fences decisions of the gate that answer the last leader. The stuck clock starts at the takeover,
            # because progress that the last leader did not journal is lost.
            tracking.timeout_fence_token += 1
            tracking.resumed_at = event.at


def local_timeout_reported(book: JobBook, event: LocalTimeoutReported) -> None:
    tracking = book.job(event.job_id).timeout_tracking
    if not tracking.locally_timed_out:
        tracking.locally_timed_out = True
        tracking.first_reported_at = event.at
        tracking.timeout_reason = event.reason
        tracking.reported_reason = event.reason
    tracking.reported_token = event.token
    tracking.last_report_at = event.at


DECIDE: Decides = {TakeLead: take_lead, CheckJob: check_job}
FOLD: Folds = {LeaderElected: leader_elected, LocalTimeoutReported: local_timeout_reported}
