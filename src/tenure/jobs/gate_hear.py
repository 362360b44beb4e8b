"""Decides for a gate about the messages of datacenters: progress, timeouts, corrections, transfers.

Reports may come late, twice, out of order, from a leader long gone, or for a job that this gate has lost. None of that
may move a datacenter out of a terminal state, or count as a timeout that the present leader did not report.
"""

from __future__ import annotations

from tenure.jobs import gate_commands as gc
from tenure.jobs import gate_events as g
from tenure.jobs.commands import Outcome
from tenure.jobs.events import Event, Rule
from tenure.jobs.gate_commands import GateDecision
from tenure.jobs.gate_tracker import GateJobTracker, GateJobTrackingInfo
from tenure.jobs.messages import JobProgressReport, JobReportAck, JobTimeoutReport
from tenure.jobs.model import Address
from tenure.jobs.rules import NO_TOKEN, Rules
from tenure.jobs.states import JobState

PROGRESS_SHARE = 0.25
"""Progress is journaled at most once in this share of the stuck threshold, for each datacenter of a job."""


def progress(tracker: GateJobTracker, command: gc.HearProgress, now: float, rules: Rules) -> GateDecision:
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
        or (report.manager_host != "" and address(report) != info.dc_manager_addrs.get(dc))
        or (progressed(report) and now - info.dc_last_progress[dc] >= tracker.settings.stuck_threshold * PROGRESS_SHARE)
    )


def timeout(tracker: GateJobTracker, command: gc.HearTimeout, now: float, rules: Rules) -> GateDecision:
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
    if info.dc_timeouts.get(dc, NO_TOKEN) >= report.fence_token:
        return acked(tracker, info, dc, [], Outcome.ALREADY, "reported before")
    return acked(tracker, info, dc, [timed_out(report, highest, now)], Outcome.ACCEPTED, "")


def timed_out(report: JobTimeoutReport, highest: int, now: float) -> g.DatacenterTimedOut:
    return g.DatacenterTimedOut(
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


def correction(tracker: GateJobTracker, command: gc.HearCorrection, now: float, rules: Rules) -> GateDecision:
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
    if not said.status.terminal and (news < 0 or (news == 0 and info.dc_heard[dc])):
        return GateDecision([], Outcome.NOTHING, Rule.STALE_TOKEN, "it says nothing new", info.job_id)
    heard = g.DatacenterReported(
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
        evidence={"manager": said.manager_id, "accepted": said.accepted, "answer_to": "decision"},
    )
    return GateDecision(
        closing(tracker, info, [heard], now), Outcome.ACCEPTED, Rule.DATACENTER_SAID, said.reason, info.job_id
    )


def transfer(tracker: GateJobTracker, command: gc.HearTransfer, now: float, rules: Rules) -> GateDecision:
    """Records the token and the address of a datacenter's new leader, before its first report."""
    said = command.transfer
    info = tracker.jobs.get(said.job_id)
    if info is None or said.datacenter not in info.dc_status or info.dc_status[said.datacenter].terminal:
        return GateDecision([], Outcome.NOTHING, Rule.DATACENTER_SAID, "nothing runs there for us", said.job_id)
    if said.fence_token <= info.dc_fence_tokens[said.datacenter]:
        return GateDecision([], Outcome.ALREADY, Rule.STALE_TOKEN, "it says nothing new", info.job_id)
    heard = g.DatacenterReported(
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
        ack = JobReportAck(
            job_id=job_id,
            datacenter=dc,
            status=archived.state,
            fence_token=report.fence_token,
            gate_epoch=tracker.epoch,
        )
        return GateDecision([], Outcome.ALREADY, Rule.JOB_ENDED, f"it had ended before: {archived.state}", job_id, ack)
    if report.timeout_seconds <= 0:
        return GateDecision([], Outcome.REFUSED, Rule.REBUILT, "it does not say what the job may take", job_id)
    rebuilt = g.GateJobRebuilt(
        at=now,
        by=dc,
        rule=Rule.REBUILT,
        job_id=job_id,
        submitted_at=now - report.elapsed_seconds,
        timeout_seconds=report.timeout_seconds,
        target_datacenters=tuple(dict.fromkeys((*report.target_datacenters, dc))),
        evidence={"datacenter": dc, "elapsed": report.elapsed_seconds, "submitted_at": report.submitted_at},
    )
    events: list[Event] = [rebuilt]
    if isinstance(report, JobTimeoutReport):
        events.append(timed_out(report, NO_TOKEN, now))
        status = JobState.RUNNING
    else:
        events.append(word(report, now))
        status = report.status
    if stone := tracker.state.tombstones.get(job_id):
        events.append(
            g.GlobalDecisionMade(
                at=now, by=stone.by, rule=Rule.TOMBSTONE, job_id=job_id, state=stone.state, reason=stone.reason
            )
        )
    elif isinstance(report, JobProgressReport) and report.ended_by_gate:
        events.append(remembered(word(report, now), tracker.state.gate, now))
    if status.terminal and len(rebuilt.target_datacenters) == 1:
        decided = any(isinstance(event, g.GlobalDecisionMade) for event in events)
        events += ending(rebuilt.job_id, {dc: status}, now, decided=decided, by=tracker.state.gate)
    ack = JobReportAck(
        job_id=job_id, datacenter=dc, status=status, fence_token=report.fence_token, gate_epoch=tracker.epoch
    )
    return GateDecision(events, Outcome.ACCEPTED, Rule.REBUILT, "rebuilt from a report", job_id, ack)


def word(report: JobProgressReport, now: float) -> g.DatacenterReported:
    return g.DatacenterReported(
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
    statuses, decided, by = dict(info.dc_status), info.decided is not None, tracker.state.gate
    for event in events:
        if isinstance(event, g.DatacenterReported) and event.status.terminal:
            statuses[event.datacenter] = event.status
            if event.ended_by_gate and not decided:
                events = [*events, remembered(event, by, now)]
                decided = True
    if not all(status.terminal for status in statuses.values()):
        return events
    return events + ending(info.job_id, statuses, now, decided=decided, by=by)


def remembered(event: g.DatacenterReported, by: str, now: float) -> g.GlobalDecisionMade:
    """Returns the decision of an earlier gate whose journal was lost. It stands, for every datacenter."""
    return g.GlobalDecisionMade(
        at=now,
        by=by,
        rule=Rule.REBUILT,
        job_id=event.job_id,
        state=event.status,
        reason=event.reason or f"{event.datacenter} was told by a gate before us",
        evidence={"datacenter": event.datacenter, "status": event.status},
    )


def ending(job_id: str, statuses: dict[str, JobState], now: float, *, decided: bool, by: str) -> list[Event]:
    """Returns the end of a job that has ended everywhere. When a datacenter timed out on its own, a global timeout comes before it."""
    ranked = (JobState.TIMED_OUT, JobState.CANCELLED, JobState.FAILED)
    state = next((state for state in ranked if state in statuses.values()), JobState.COMPLETED)
    said = ", ".join(f"{dc} {status}" for dc, status in sorted(statuses.items()))
    events: list[Event] = []
    if state is JobState.TIMED_OUT and not decided:
        events.append(
            g.GlobalDecisionMade(
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
    ended = g.GateJobEnded(
        at=now,
        by=by,
        rule=Rule.ALL_DONE,
        job_id=job_id,
        state=state,
        reason=said,
        evidence={"statuses": dict(statuses)},
    )
    return [*events, ended]


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
        if isinstance(event, g.DatacenterReported) and event.status.terminal:
            status = event.status
    ack = JobReportAck(
        job_id=info.job_id,
        datacenter=dc,
        status=status,
        fence_token=info.dc_fence_tokens[dc],
        gate_epoch=tracker.epoch,
    )
    return GateDecision(events, outcome, rule, reason, info.job_id, ack)
