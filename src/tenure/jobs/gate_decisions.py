"""A gate's decisions about the time of a job: the three conditions of document 002, part 5, its end everywhere, and orders of people (decision 0450).

A journaled decision is final; only `gate_outbox` knows which datacenters it still has to be sent to.

Somebody pauses a job everywhere, lets it go on, or gives it another deadline. The gate stops its own clocks and moves its own deadline first. The order goes
to each datacenter until that has obeyed it. A datacenter's report of a timeout that is older than the order does not count.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, UnsetType

from tenure.errors import UnknownJobError
from tenure.jobs.decisions import Command, Decides, Event, Evidence, Folds, GateDecision, JobEvent, Outcome, Rule, Rules
from tenure.jobs.messages import JobOrder
from tenure.jobs.model import NO_DEADLINE_S, GateJobTrackingInfo, Tombstone, wall
from tenure.jobs.states import JobState, PauseRecord, check_job_transition
from tenure.jobs.steering import new_timeout, over_already

if TYPE_CHECKING:
    from tenure.jobs.gate_tracker import GateJobTracker


class CheckGlobal(Command, frozen=True, kw_only=True):
    """Asks for the periodic check of one job. While `link_suspect`, the gate takes its own link for broken, so silence proves nothing."""

    job_id: str
    link_suspect: bool = False


class GlobalDecisionMade(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A decision of the gate. It is final, and the gate sends it to every datacenter until each is terminal."""

    state: JobState
    reason: str
    from_reports: bool = False


class GateJobEnded(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Every datacenter is terminal."""

    state: JobState
    reason: str


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
    over = [dc for dc in info.target_datacenters if info.dc_status[dc] is JobState.TIMED_OUT or dc in info.dc_timeouts]
    # A datacenter whose time ran out has no more to tell.
    if now > (due if over else tracker.closes_at(info)):
        allowed = due - info.submitted_at
        return Condition(
            Rule.OVERALL_TIMEOUT,
            f"global timeout: {elapsed:.0f} s elapsed of {allowed:.0f} s allowed",
            False,
            {
                "elapsed": elapsed,
                "timeout_seconds": info.timeout_seconds,
                "extensions": tracker.earned(info),
            },
        )
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


def check_global(tracker: GateJobTracker, command: CheckGlobal, now: float, rules: Rules) -> GateDecision:
    """Decides when one of the conditions holds. Idempotent: a decision is made once."""
    info = tracker.job(command.job_id)
    if info.state.terminal or info.decided is not None:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, info.decided_reason or info.reason, info.job_id)
    found = conditions(tracker, info, now, command.link_suspect)
    if found is None:
        return GateDecision([], Outcome.NOTHING, Rule.FOLLOWED, "", info.job_id)
    decided = declare(tracker, info, found, now)
    return GateDecision([decided], Outcome.ACCEPTED, found.rule, found.reason, info.job_id)


def declare(tracker: GateJobTracker, info: GateJobTrackingInfo, found: Condition, now: float) -> GlobalDecisionMade:
    return GlobalDecisionMade(
        at=now,
        by=tracker.state.leader,
        rule=found.rule,
        job_id=info.job_id,
        state=JobState.TIMED_OUT,
        reason=found.reason,
        from_reports=found.from_reports,
        evidence={"epoch": tracker.epoch, **found.evidence},
    )


def decided_before(stone: Tombstone, job_id: str, now: float) -> GlobalDecisionMade:
    """Returns the decision about a job that was cancelled before this gate knew it."""
    return GlobalDecisionMade(
        at=now, by=stone.by, rule=Rule.TOMBSTONE, job_id=job_id, state=stone.state, reason=stone.reason
    )


def ending(job_id: str, statuses: dict[str, JobState], now: float, *, decided: bool, by: str) -> list[Event]:
    """Returns the end of a job that has ended everywhere. When a datacenter timed out on its own, a global timeout comes before it."""
    ranked = (JobState.TIMED_OUT, JobState.CANCELLED, JobState.FAILED)
    state = next((state for state in ranked if state in statuses.values()), JobState.COMPLETED)
    said = ", ".join(f"{dc} {status}" for dc, status in sorted(statuses.items()))
    events: list[Event] = []
    if state is JobState.TIMED_OUT and not decided:
        events.append(
            GlobalDecisionMade(
                at=now,
                by=by,
                rule=Rule.ANY_DATACENTER,
                job_id=job_id,
                state=JobState.TIMED_OUT,
                reason=f"timed out on their own: {said}",
                from_reports=True,
                evidence={"statuses": dict(statuses)},
            )
        )
    ended = GateJobEnded(
        at=now,
        by=by,
        rule=Rule.ALL_DONE,
        job_id=job_id,
        state=state,
        reason=said,
        evidence={"statuses": dict(statuses)},
    )
    return [*events, ended]


def global_decision_made(tracker: GateJobTracker, event: GlobalDecisionMade) -> None:
    info = tracker.job(event.job_id)
    assert info.decided is None, "a global decision is made once"
    info.decided, info.decided_at, info.decided_from_reports = event.state, event.at, event.from_reports
    info.decided_reason = event.reason
    info.timeout_fence_token += 1
    tracker.note_decided()
    if event.state is JobState.TIMED_OUT:
        info.globally_timed_out, info.timeout_reason = True, event.reason


def gate_job_ended(tracker: GateJobTracker, event: GateJobEnded) -> None:
    info = tracker.job(event.job_id)
    check_job_transition(event.job_id, info.state, event.state)
    info.state, info.reason, info.ended_at = event.state, event.reason, event.at
    tracker.ended[event.job_id] = None
    tracker.note_ended(info)


class GateSteer(Command, frozen=True, kw_only=True):
    """Somebody steers a job in all its datacenters. What is not given stays as it is."""

    job_id: str
    paused: bool | None = None
    timeout_seconds: float | UnsetType | None = UNSET
    add_s: float = 0.0
    reason: str = ""


class GateJobSteered(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Somebody paused the job, let it go on, or gave it another deadline, everywhere. It holds the whole wanted state."""

    number: int
    paused: bool
    timeout_seconds: float
    reason: str = ""


def gate_steer(tracker: GateJobTracker, command: GateSteer, now: float, rules: Rules) -> GateDecision:
    job_id = command.job_id
    info = tracker.jobs.get(job_id)
    if info is None:
        if archived := tracker.state.archive.get(job_id):
            return refused(job_id, f"it has ended: {archived.state}")
        raise UnknownJobError(job_id)
    if info.state.terminal or info.decided is not None:
        return refused(
            job_id, f"it has ended: {info.state}" if info.state.terminal else f"it is ending: {info.decided}"
        )
    paused = info.pause is not None if command.paused is None else command.paused
    wanted = wanted_timeout(tracker, info, command, now)
    if isinstance(wanted, str):
        return refused(job_id, wanted)
    if paused is (info.pause is not None) and wall(wanted) == wall(info.timeout_seconds):
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, "it is so already", job_id)
    event = GateJobSteered(
        at=now,
        by=command.by,
        rule=Rule.ASKED,
        job_id=job_id,
        number=info.steered + 1,
        paused=paused,
        timeout_seconds=wanted if wanted < math.inf else NO_DEADLINE_S,
        reason=command.reason,
        evidence=changes(info, paused, wanted, now),
    )
    return GateDecision([event], Outcome.ACCEPTED, Rule.ASKED, words_of(event), job_id)


def wanted_timeout(tracker: GateJobTracker, info: GateJobTrackingInfo, command: GateSteer, now: float) -> float | str:
    """Returns the seconds that the job may take from now on; the reason where they cannot be."""
    had = wall(info.timeout_seconds)
    if not command.add_s and command.timeout_seconds is UNSET:
        return had
    wanted = new_timeout(info.timeout_seconds, command.timeout_seconds, command.add_s)
    begun = tracker.deadline(info, running=True) - had if had < math.inf else info.submitted_at
    if isinstance(wanted, str) or info.pause is not None:
        return wanted
    return over_already(begun, wanted, now) or wanted


def refused(job_id: str, reason: str) -> GateDecision:
    return GateDecision([], Outcome.REFUSED, Rule.JOB_ENDED, reason, job_id)


def changes(info: GateJobTrackingInfo, paused: bool, timeout_seconds: float, now: float) -> dict[str, object]:
    """Returns what the order changes, for the words of the event."""
    found: dict[str, object] = {}
    if paused is not (info.pause is not None):
        found["pause"] = "begins" if paused else "ends"
        if info.pause is not None:
            found["paused_for"] = round(now - info.pause.at, 3)
    if wall(timeout_seconds) != wall(info.timeout_seconds):
        found["before"] = info.timeout_seconds if wall(info.timeout_seconds) < math.inf else NO_DEADLINE_S
    return found


def words_of(event: GateJobSteered) -> str:
    said = {"begins": "paused", "ends": "resumed"}.get(str(event.evidence.get("pause", "")), "")
    return said or "retimed"


def gate_job_steered(tracker: GateJobTracker, event: GateJobSteered) -> None:
    info = tracker.job(event.job_id)
    if event.paused and info.pause is None:
        info.pause = PauseRecord(at=event.at, by=event.by, reason=event.reason)
    elif not event.paused and info.pause is not None:
        info.paused_s += max(0.0, event.at - info.pause.at)
        info.pause = None
        for dc in info.running:  # the stuck clocks stood still, and start anew
            info.dc_last_progress[dc] = max(info.dc_last_progress[dc], event.at)
    info.timeout_seconds, info.steered = event.timeout_seconds, event.number
    info.steered_by, info.steered_reason = event.by, event.reason
    info.dc_timeouts.clear()  # they are about a time that does not hold any more


def order_for(info: GateJobTrackingInfo, gate_epoch: int) -> JobOrder:
    """Returns the newest order about a job, as the gate sends it."""
    return JobOrder(
        job_id=info.job_id,
        number=info.steered,
        paused=info.pause is not None,
        timeout_seconds=info.timeout_seconds,
        by=info.steered_by,
        reason=info.steered_reason,
        gate_epoch=gate_epoch,
    )


def owes_order(info: GateJobTrackingInfo, datacenter: str) -> bool:
    """Returns True when a datacenter has not obeyed the newest order."""
    return info.steered > info.dc_steered.get(datacenter, 0)


DECIDE: Decides = {CheckGlobal: check_global, GateSteer: gate_steer}
FOLD: Folds = {
    GlobalDecisionMade: global_decision_made,
    GateJobEnded: gate_job_ended,
    GateJobSteered: gate_job_steered,
}
