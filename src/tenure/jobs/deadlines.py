"""Deadlines: when a job's time is over (document 002, parts 3, 4 and 8, with the rulings of `rules.py`). A new leader goes on with the same deadlines.

What a leader does then depends on who decides, and that only the strategies know (`timeout`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tenure.attempt_data import PARENT
from tenure.errors import StaleEpochError
from tenure.health.extension import extension_bound, grant_seconds
from tenure.jobs.budget import text_bytes
from tenure.jobs.decisions import Command, Decides, Decision, Event, Evidence, Folds, JobEvent, Outcome, Rule, Rules
from tenure.jobs.model import JobInfo, TimeoutTrackingState, wall
from tenure.jobs.settings import MOST_EXTENSIONS, NEAR_SHARE, JobSettings
from tenure.jobs.states import TimeoutReason

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

NEVER = math.inf


class TakeLead(Command, frozen=True, kw_only=True):
    epoch: int
    leader: str


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
    """Returns `started_at + timeout_seconds + total_extensions_granted` (document 002, part 8), and the time of its pauses; `NEVER` for a job
    without a deadline, and for one that is paused now."""
    if tracking.pause is not None:
        return NEVER
    return tracking.started_at + wall(tracking.timeout_seconds) + tracking.total_extensions_granted + tracking.paused_s


def job_bound(grace_s: float) -> float:
    """Returns all that a job can earn past its deadline in its life: 1.9375 x its grace."""
    return extension_bound(base_deadline=grace_s, min_grant=0.0, max_extensions=MOST_EXTENSIONS)


def next_grant(info: JobInfo) -> float:
    """Returns the extension that the job could earn next; 0 where its series is used up."""
    tracking, grace_s = info.timeout_tracking, info.job.submission.grace_s
    if tracking.extension_count >= MOST_EXTENSIONS:
        return 0.0
    full = grant_seconds(tracking.extension_count, base_deadline=grace_s, min_grant=0.0)
    return max(0.0, min(full, job_bound(grace_s) - tracking.total_extensions_granted))


def near_s(info: JobInfo) -> float:
    """Returns the seconds for which its deadline is near before it ends; 0 for a job that can earn none."""
    return info.job.submission.grace_s * NEAR_SHARE


def ends_at(info: JobInfo) -> float:
    """Returns when the leader acts on the deadline.

    A new leader waits for as long as a deadline is near: the job's workers had nobody to ask for the time that it could earn.
    """
    tracking = info.timeout_tracking
    due = deadline(tracking)
    if tracking.resumed_at and info.running_workflows and due < tracking.resumed_at + near_s(info):
        seconds = next_grant(info)
        if seconds and due + seconds > tracking.resumed_at:
            return tracking.resumed_at + near_s(info)
    return due


def may_earn(info: JobInfo, now: float) -> bool:
    """Returns True while workers may be granted time past a deadline that is near, or that a new leader does not act on yet."""
    if not info.running_workflows or not next_grant(info):
        return False
    return deadline(info.timeout_tracking) - near_s(info) <= now <= ends_at(info)


def progress_since(tracking: TimeoutTrackingState, progress_at: float = 0.0) -> float:
    """Returns where the stuck clock starts: the newest progress, but not before the present leader took over."""
    return max(tracking.last_progress_at, tracking.resumed_at, progress_at)


def stuck_at(info: JobInfo, progress_at: float = 0.0) -> float:
    """Returns when the job is stuck unless something advances. `NEVER` while nothing of it runs, or it is paused: work that waits is not stuck."""
    tracking = info.timeout_tracking
    if not info.running_workflows or tracking.pause is not None:
        return NEVER
    return progress_since(tracking, progress_at) + tracking.stuck_threshold


def fallback_at(tracking: TimeoutTrackingState, settings: JobSettings) -> float:
    """Returns when the leader executes a local timeout that no gate has answered. It counts from the first report, under any leader."""
    return tracking.first_reported_at + settings.fallback_after


def expiry(info: JobInfo, now: float, progress_at: float = 0.0) -> Expiry | None:
    """Applies check 1, overall timeout, then check 2, stuck detection (document 002, part 3). Both compare strictly."""
    tracking = info.timeout_tracking
    due = deadline(tracking)
    elapsed = now - tracking.started_at
    if now > (ends := ends_at(info)):
        allowed = due - tracking.started_at
        return Expiry(
            TimeoutReason.TIMEOUT,
            Rule.OVERALL_TIMEOUT,
            ends,
            f"timeout: {elapsed:.0f} s elapsed of {allowed:.0f} s allowed",
            {
                "elapsed": elapsed,
                "timeout_seconds": tracking.timeout_seconds,
                "total_extensions_granted": tracking.total_extensions_granted,
                **({"paused": tracking.paused_s} if tracking.paused_s else {}),
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


def leader_elected(book: JobBook, event: LeaderElected) -> None:
    state = book.state
    state.epoch, state.leader, state.elected_at = event.epoch, event.leader, event.at


def see_election(info: JobInfo, at: float) -> None:
    if not info.state.terminal:
        tracking = info.timeout_tracking
        # The higher token fences decisions of the gate that answer the last leader. The stuck clock starts at the takeover,
        # because progress that the last leader did not journal is lost.
        tracking.timeout_fence_token += 1
        tracking.resumed_at = at


def local_timeout_reported(book: JobBook, event: LocalTimeoutReported) -> None:
    tracking = book.job(event.job_id).timeout_tracking
    if not tracking.locally_timed_out:
        tracking.locally_timed_out = True
        tracking.first_reported_at = event.at
        tracking.timeout_reason = event.reason
        tracking.reported_reason = event.reason
    tracking.reported_token = event.token
    tracking.last_report_at = event.at


def needs_its_leader(info: JobInfo) -> bool:
    """Returns True for a job of which a new leader has to arm a timer, tell a gate or find the parent, although nothing of it may run."""
    if info.job.submission.gate_addr is not None:
        return True
    if info.state.terminal:
        return False
    return wall(info.timeout_tracking.timeout_seconds) < NEVER or PARENT in info.job.submission.labels


DECIDE: Decides = {TakeLead: take_lead}
FOLD: Folds = {LeaderElected: leader_elected, LocalTimeoutReported: local_timeout_reported}
