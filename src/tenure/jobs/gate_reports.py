"""The messages of datacenters to a gate: progress, timeouts, corrections, transfers.

Reports may come late, twice, out of order, from a leader long gone, or for a job that this gate has lost. None of that
may move a datacenter out of a terminal state, or count as a timeout that the present leader did not report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.jobs.decisions import NO_TOKEN, Command, Decides, Event, Folds, GateDecision, JobEvent, Outcome, Rule, Rules
from tenure.jobs.gate_decisions import GlobalDecisionMade, decided_before, ending
from tenure.jobs.gate_jobs import rebuilt_from
from tenure.jobs.messages import (
    JobLeaderTransfer,
    JobProgressReport,
    JobReportAck,
    JobStatusCorrection,
    JobTimeoutReport,
)
from tenure.jobs.model import Address, GateJobTrackingInfo
from tenure.jobs.states import JobState, TimeoutReason, check_job_transition

if TYPE_CHECKING:
    from tenure.jobs.gate_tracker import GateJobTracker

PROGRESS_SHARE = 0.25
"""Progress is journaled at most once in this share of the stuck threshold, for each datacenter of a job."""


class HearProgress(Command, frozen=True, kw_only=True):
    report: JobProgressReport


class HearTimeout(Command, frozen=True, kw_only=True):
    report: JobTimeoutReport


class HearCorrection(Command, frozen=True, kw_only=True):
    correction: JobStatusCorrection


class HearTransfer(Command, frozen=True, kw_only=True):
    transfer: JobLeaderTransfer


class DatacenterReported(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A datacenter's report, as far as it changes what the gate knows."""

    datacenter: str
    token: int
    status: JobState
    progressed: bool = False
    extensions: float = 0.0
    manager_addr: Address | None = None
    reason: str = ""
    ended_by_gate: bool = False
    gate_epoch: int = 0
    """The highest gate epoch that the datacenter had seen when it sent this."""
    steered: int = 0
    """The number of the last order that the datacenter has obeyed."""


class DatacenterTimedOut(JobEvent, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A timeout report that counts: its token is not stale, and the datacenter was not terminal."""

    datacenter: str
    token: int
    reason: TimeoutReason
    extensions: float = 0.0
    manager_addr: Address | None = None
    gate_epoch: int = 0


def hear_progress(tracker: GateJobTracker, command: HearProgress, now: float, rules: Rules) -> GateDecision:
    report = command.report
    if deposed := behind(tracker, report.job_id, report.gate_epoch):
        return deposed
    info = tracker.jobs.get(report.job_id)
    if info is None:
        return hear_unknown(tracker, report, now)
    dc = report.datacenter
    if dc not in info.dc_status:
        return GateDecision([], Outcome.REFUSED, Rule.DATACENTER_SAID, f"{dc} is no target of this job", info.job_id)
    if info.dc_status[dc].terminal:
        return acked(tracker, info, dc, [], Outcome.ALREADY, f"{dc} is {info.dc_status[dc]}")
    # The end of a job is true from any leader, because it was journaled there. Any other report from a replaced leader is stale.
    if report.fence_token < info.dc_fence_tokens[dc] and not report.status.terminal:
        return GateDecision([], Outcome.REFUSED, Rule.STALE_TOKEN, f"{dc} has a newer leader", info.job_id)
    events: list[Event] = [word(report, now)] if worth_journaling(tracker, info, report, now) else []
    return acked(tracker, info, dc, closing(tracker, info, events, now) if events else [], Outcome.ACCEPTED, "")


def progressed(report: JobProgressReport) -> bool:
    """Returns True when the report moves the stuck clock: it shows progress, or nothing of the job runs there."""
    return not report.status.terminal and (report.has_recent_progress or report.workflows_running == 0)


def address(report: JobProgressReport | JobTimeoutReport) -> Address | None:
    return (report.manager_host, report.manager_port) if report.manager_host else None


def worth_journaling(tracker: GateJobTracker, info: GateJobTrackingInfo, report: JobProgressReport, now: float) -> bool:
    """Returns True when the report changes what the journal knows. Most reports show only that the job goes on, and leave no event."""
    dc = report.datacenter
    return (
        report.status.terminal
        or not info.dc_heard[dc]
        or report.fence_token > info.dc_fence_tokens[dc]
        or report.total_extensions_granted > info.dc_extensions.get(dc, 0.0)
        or report.steered > info.dc_steered.get(dc, 0)
        or (report.manager_host != "" and address(report) != info.dc_manager_addrs.get(dc))
        or (progressed(report) and now - info.dc_last_progress[dc] >= tracker.settings.stuck_threshold * PROGRESS_SHARE)
    )


def hear_timeout(tracker: GateJobTracker, command: HearTimeout, now: float, rules: Rules) -> GateDecision:
    report = command.report
    if deposed := behind(tracker, report.job_id, report.gate_epoch):
        return deposed
    info = tracker.jobs.get(report.job_id)
    if info is None:
        return hear_unknown(tracker, report, now)
    dc = report.datacenter
    if dc not in info.dc_status:
        return GateDecision([], Outcome.REFUSED, Rule.DATACENTER_SAID, f"{dc} is no target of this job", info.job_id)
    status, highest = info.dc_status[dc], info.dc_fence_tokens[dc]
    if not rules.report_counts(report.fence_token, highest, status):
        rule = Rule.JOB_ENDED if status.terminal else Rule.STALE_TOKEN
        why = f"{dc} is {status}" if status.terminal else f"token {report.fence_token} is stale: {highest} was seen"
        return acked(tracker, info, dc, [], Outcome.REFUSED, why, rule)
    if report.steered < info.steered:
        return acked(tracker, info, dc, [], Outcome.REFUSED, "a younger order changed its time", Rule.STALE_TOKEN)
    if info.dc_timeouts.get(dc, NO_TOKEN) >= report.fence_token:
        return acked(tracker, info, dc, [], Outcome.ALREADY, "reported before")
    return acked(tracker, info, dc, [timed_out(report, highest, now)], Outcome.ACCEPTED, "")


def timed_out(report: JobTimeoutReport, highest: int, now: float) -> DatacenterTimedOut:
    return DatacenterTimedOut(
        at=now,
        by=report.datacenter,
        rule=Rule.DATACENTER_SAID,
        job_id=report.job_id,
        datacenter=report.datacenter,
        token=report.fence_token,
        reason=report.reason,
        extensions=report.total_extensions_granted,
        manager_addr=address(report),
        gate_epoch=report.gate_epoch,
        evidence={"manager": report.manager_id, "elapsed": report.elapsed_seconds, "highest_token": highest},
    )


def hear_correction(tracker: GateJobTracker, command: HearCorrection, now: float, rules: Rules) -> GateDecision:
    """Handles a datacenter's answer to a decision. A terminal status settles that datacenter; a newer token goes into the next sending.

    The decision itself is final, and stays as it is.
    """
    said = command.correction
    if deposed := behind(tracker, said.job_id, said.gate_epoch):
        return deposed
    info = tracker.jobs.get(said.job_id)
    if info is None or said.datacenter not in info.dc_status:
        return GateDecision([], Outcome.NOTHING, Rule.DATACENTER_SAID, "not a job of ours", said.job_id)
    dc = said.datacenter
    if info.dc_status[dc].terminal:
        return GateDecision([], Outcome.ALREADY, Rule.ALREADY_RECORDED, f"{dc} is {info.dc_status[dc]}", info.job_id)
    news = said.fence_token - info.dc_fence_tokens[dc]
    obeyed = said.steered > info.dc_steered.get(dc, 0)
    if not said.status.terminal and not obeyed and (news < 0 or (news == 0 and info.dc_heard[dc])):
        return GateDecision([], Outcome.NOTHING, Rule.STALE_TOKEN, "it says nothing new", info.job_id)
    heard = DatacenterReported(
        at=now,
        by=dc,
        rule=Rule.DATACENTER_SAID,
        job_id=info.job_id,
        datacenter=dc,
        token=said.fence_token,
        status=said.status if said.status.terminal else JobState.RUNNING,
        manager_addr=(said.manager_host, said.manager_port) if said.manager_host else None,
        reason=said.reason,
        ended_by_gate=said.ended_by_gate,
        gate_epoch=said.gate_epoch,
        steered=said.steered,
        evidence={"manager": said.manager_id, "accepted": said.accepted, "answer_to": "decision"},
    )
    return GateDecision(
        closing(tracker, info, [heard], now), Outcome.ACCEPTED, Rule.DATACENTER_SAID, said.reason, info.job_id
    )


def hear_transfer(tracker: GateJobTracker, command: HearTransfer, now: float, rules: Rules) -> GateDecision:
    """Records the token and the address of a datacenter's new leader, before its first report."""
    said = command.transfer
    info = tracker.jobs.get(said.job_id)
    if info is None or said.datacenter not in info.dc_status or info.dc_status[said.datacenter].terminal:
        return GateDecision([], Outcome.NOTHING, Rule.DATACENTER_SAID, "nothing runs there for us", said.job_id)
    if said.fence_token <= info.dc_fence_tokens[said.datacenter]:
        return GateDecision([], Outcome.ALREADY, Rule.STALE_TOKEN, "it says nothing new", info.job_id)
    heard = DatacenterReported(
        at=now,
        by=said.datacenter,
        rule=Rule.TAKEOVER,
        job_id=info.job_id,
        datacenter=said.datacenter,
        token=said.fence_token,
        status=JobState.RUNNING,
        manager_addr=(said.new_manager_host, said.new_manager_port),
        evidence={"manager": said.new_manager_id, "previous_manager": said.old_manager_id, "epoch": said.epoch},
    )
    return GateDecision([heard], Outcome.ACCEPTED, Rule.TAKEOVER, "", info.job_id)


def behind(tracker: GateJobTracker, job_id: str, seen: int) -> GateDecision | None:
    """Returns a refusal when a datacenter has seen a gate of a higher epoch: this gate was deposed, or lost its counter, and must not decide."""
    if seen <= tracker.epoch:
        return None
    why = f"a datacenter has seen gate epoch {seen}, and ours is {tracker.epoch}"
    return GateDecision([], Outcome.REFUSED, Rule.STALE_GATE, why, job_id, campaign_above=seen)


def hear_unknown(tracker: GateJobTracker, report: JobProgressReport | JobTimeoutReport, now: float) -> GateDecision:
    """Answers for an archived job with its end. Otherwise the gate's journal was lost, and the gate rebuilds the job from the report."""
    job_id, dc = report.job_id, report.datacenter
    if archived := tracker.state.archive.get(job_id):
        why = f"it had ended before: {archived.state}"
        ack = ack_for(tracker, report, archived.state)
        return GateDecision([], Outcome.ALREADY, Rule.JOB_ENDED, why, job_id, ack)
    if report.timeout_seconds == 0:
        return GateDecision([], Outcome.REFUSED, Rule.REBUILT, "it does not say what the job may take", job_id)
    rebuilt = rebuilt_from(report, now)
    events: list[Event] = [rebuilt]
    if isinstance(report, JobTimeoutReport):
        events.append(timed_out(report, NO_TOKEN, now))
        status = JobState.RUNNING
    else:
        events.append(word(report, now))
        status = report.status
    if stone := tracker.state.tombstones.get(job_id):
        events.append(decided_before(stone, job_id, now))
    elif isinstance(report, JobProgressReport) and report.ended_by_gate:
        events.append(remembered(word(report, now), tracker.state.leader, now))
    if status.terminal and len(rebuilt.target_datacenters) == 1:
        decided = any(isinstance(event, GlobalDecisionMade) for event in events)
        events += ending(rebuilt.job_id, {dc: status}, now, decided=decided, by=tracker.state.leader)
    ack = ack_for(tracker, report, status)
    return GateDecision(events, Outcome.ACCEPTED, Rule.REBUILT, "rebuilt from a report", job_id, ack)


def ack_for(tracker: GateJobTracker, report: JobProgressReport | JobTimeoutReport, status: JobState) -> JobReportAck:
    return JobReportAck(
        job_id=report.job_id,
        datacenter=report.datacenter,
        status=status,
        fence_token=report.fence_token,
        gate_epoch=tracker.epoch,
    )


def word(report: JobProgressReport, now: float) -> DatacenterReported:
    return DatacenterReported(
        at=now,
        by=report.datacenter,
        rule=Rule.DATACENTER_SAID,
        job_id=report.job_id,
        datacenter=report.datacenter,
        token=report.fence_token,
        status=report.status,
        progressed=progressed(report),
        extensions=report.total_extensions_granted,
        manager_addr=address(report),
        reason=report.reason,
        ended_by_gate=report.ended_by_gate,
        gate_epoch=report.gate_epoch,
        steered=report.steered,
        evidence={
            "manager": report.manager_id,
            "completed": report.workflows_completed,
            "failed": report.workflows_failed,
            "running": report.workflows_running,
            "total": report.workflows_total,
        },
    )


def closing(tracker: GateJobTracker, info: GateJobTrackingInfo, events: list[Event], now: float) -> list[Event]:
    """Adds the events that follow from a report: a gate's decision that was lost with its journal, or the end of the job everywhere."""
    statuses, decided, by = dict(info.dc_status), info.decided is not None, tracker.state.leader
    for event in events:
        if isinstance(event, DatacenterReported) and event.status.terminal:
            statuses[event.datacenter] = event.status
            if event.ended_by_gate and not decided:
                events = [*events, remembered(event, by, now)]
                decided = True
    if not all(status.terminal for status in statuses.values()):
        return events
    return events + ending(info.job_id, statuses, now, decided=decided, by=by)


def remembered(event: DatacenterReported, by: str, now: float) -> GlobalDecisionMade:
    """Returns the decision of an earlier gate whose journal was lost. It stands, for every datacenter."""
    return GlobalDecisionMade(
        at=now,
        by=by,
        rule=Rule.REBUILT,
        job_id=event.job_id,
        state=event.status,
        reason=event.reason or f"{event.datacenter} was told by a gate before us",
        evidence={"datacenter": event.datacenter, "status": event.status},
    )


def acked(
    tracker: GateJobTracker,
    info: GateJobTrackingInfo,
    dc: str,
    events: list[Event],
    outcome: Outcome,
    reason: str,
    rule: Rule = Rule.DATACENTER_SAID,
) -> GateDecision:
    status = info.dc_status[dc]
    for event in events:
        if isinstance(event, DatacenterReported) and event.status.terminal:
            status = event.status
    ack = JobReportAck(
        job_id=info.job_id,
        datacenter=dc,
        status=status,
        fence_token=info.dc_fence_tokens[dc],
        gate_epoch=tracker.epoch,
    )
    return GateDecision(events, outcome, rule, reason, info.job_id, ack)


def note_report(
    tracker: GateJobTracker, info: GateJobTrackingInfo, event: DatacenterReported | DatacenterTimedOut
) -> None:
    """Folds the part that every report of a datacenter has: its token, its extensions and its manager's address."""
    dc = event.datacenter
    # A gate that lost its journal cannot tell an old report from a new one. A report that carries this gate's own epoch was
    # sent under it; until one comes, the gate goes on asking.
    if info.submission is not None or event.gate_epoch >= tracker.epoch:
        info.dc_heard[dc] = True
    info.dc_fence_tokens[dc] = max(info.dc_fence_tokens[dc], event.token)
    if event.extensions > info.dc_extensions.get(dc, 0.0):
        info.dc_extensions[dc] = event.extensions
    if event.manager_addr is not None:
        info.dc_manager_addrs[dc] = event.manager_addr


def datacenter_reported(tracker: GateJobTracker, event: DatacenterReported) -> None:
    info = tracker.job(event.job_id)
    note_report(tracker, info, event)
    dc = event.datacenter
    if event.status.terminal:
        check_job_transition(f"{event.job_id} in {dc}", info.dc_status[dc], event.status)
        info.dc_status[dc] = event.status
        tracker.forget_fresh(event.job_id, [dc])
    if event.steered > info.dc_steered.get(dc, 0):
        info.dc_steered[dc] = event.steered
    if event.progressed:
        info.dc_last_progress[dc] = max(info.dc_last_progress[dc], event.at)


def datacenter_timed_out(tracker: GateJobTracker, event: DatacenterTimedOut) -> None:
    info = tracker.job(event.job_id)
    note_report(tracker, info, event)
    info.dc_timeouts[event.datacenter] = event.token


DECIDE: Decides = {
    HearProgress: hear_progress,
    HearTimeout: hear_timeout,
    HearCorrection: hear_correction,
    HearTransfer: hear_transfer,
}
FOLD: Folds = {
    DatacenterReported: datacenter_reported,
    DatacenterTimedOut: datacenter_timed_out,
}
