"""Builds the reports of a manager to the gate about one job, from the state (document 002, parts 4 and 6).

Reports are best effort, and it is safe to repeat them. The leader reports a local timeout until the gate has decided, and an end
until the gate has acknowledged it. Both survive the leader because they are in the journal.
"""

from __future__ import annotations

from tenure.jobs.commands import Identity
from tenure.jobs.deadlines import progress_since
from tenure.jobs.messages import JobLeaderTransfer, JobProgressReport, JobTimeoutReport
from tenure.jobs.model import JobInfo
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import JobState


def report_for(
    info: JobInfo, identity: Identity, now: float, settings: JobSettings, progress_at: float = 0.0
) -> JobProgressReport | JobTimeoutReport | None:
    """Returns the report that is due for this job every `report_interval`; None when the gate needs none."""
    tracking = info.timeout_tracking
    if tracking.gate_addr is None or (info.state.terminal and info.gate_acked):
        return None
    # A new leader first journals the timeout with its own token; until then it sends progress reports.
    told = tracking.locally_timed_out and tracking.reported_token == tracking.timeout_fence_token
    if told and not info.state.terminal:
        return timeout_report(info, identity, now)
    return progress_report(info, identity, now, settings, progress_at)


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


def silent_for(info: JobInfo, now: float, progress_at: float = 0.0) -> float:
    """Returns the seconds since the last proof of progress, for people."""
    return max(0.0, now - progress_since(info.timeout_tracking, progress_at))
