"""Computes when a job's time is over: the arithmetic of document 002, parts 3, 4 and 8. Numbers in, numbers and reasons out."""

from __future__ import annotations

import math
from typing import NamedTuple

from tenure.jobs.events import Evidence, Rule
from tenure.jobs.model import JobInfo, TimeoutTrackingState
from tenure.jobs.rules import RULES, Rules
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import StrategyType, TimeoutReason

NEVER = math.inf


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
