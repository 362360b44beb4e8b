"""What managers and gates say to each other (document 002, part 6), as plain data.

The document's fields come first, under its names. What follows them is ours: a gate's epoch fences stale gates, and
reports carry enough for a successor that lost its journal to rebuild. Times are Unix seconds and only for people:
a gate reckons with its own receive time and with elapsed seconds, never with a report's timestamp.
"""

from __future__ import annotations

import msgspec

from tenure.jobs.states import JobState, TimeoutReason


class JobProgressReport(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Manager -> Gate: where the job stands here, every 10 s; and how it ended, until the gate has acknowledged."""

    job_id: str
    datacenter: str
    manager_id: str
    manager_host: str
    manager_port: int
    workflows_total: int
    workflows_completed: int
    workflows_failed: int
    has_recent_progress: bool
    """Any workflow progressed in the last interval. False does not reset the gate's stuck clock."""
    timestamp: float
    fence_token: int

    status: JobState = JobState.RUNNING
    workflows_running: int = 0
    """0 while everything waits in the queue: then the stuck clock does not run."""
    elapsed_seconds: float = 0.0
    total_extensions_granted: float = 0.0
    reason: str = ""
    ended_by_gate: bool = False
    """It ended by a gate's decision: a gate that lost its journal takes the same decision again."""
    gate_epoch: int = 0
    """The highest gate epoch that this datacenter has seen."""
    submitted_at: float = 0.0
    timeout_seconds: float = 0.0
    target_datacenters: tuple[str, ...] = ()


class JobTimeoutReport(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Manager -> Gate: time ran out in this datacenter. Sent again until the gate decides."""

    job_id: str
    datacenter: str
    manager_id: str
    manager_host: str
    manager_port: int
    reason: TimeoutReason
    elapsed_seconds: float
    fence_token: int

    total_extensions_granted: float = 0.0
    gate_epoch: int = 0
    submitted_at: float = 0.0
    timeout_seconds: float = 0.0
    target_datacenters: tuple[str, ...] = ()


class JobGlobalTimeout(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: the job's time is over everywhere. Sent again until the datacenter's status is terminal."""

    job_id: str
    reason: str
    timed_out_at: float
    fence_token: int
    """The highest token seen from that datacenter, when the decision was made from reports; 0 otherwise."""

    gate_epoch: int = 0


class JobGlobalCancel(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: a user cancelled the job everywhere. Carries no manager token: a user's word is never stale."""

    job_id: str
    reason: str
    cancelled_at: float
    gate_epoch: int = 0


class JobStatusQuery(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: a gate that lost its journal asks how a job stands; the answer is a report."""

    job_id: str
    gate_epoch: int = 0


class JobReportAck(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: the answer to a report; `status` is what the gate now has for that datacenter."""

    job_id: str
    datacenter: str
    status: JobState
    fence_token: int
    gate_epoch: int = 0


class JobStatusCorrection(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Manager -> Gate: the answer to a global decision.

    A terminal status acknowledges it: obeyed now, or ended before. Otherwise the decision was stale, and the token and
    the gate epoch say how it has to look.
    """

    job_id: str
    datacenter: str
    manager_id: str
    status: JobState
    fence_token: int
    gate_epoch: int
    accepted: bool
    reason: str = ""
    manager_host: str = ""
    manager_port: int = 0
    ended_by_gate: bool = False


class JobLeaderTransfer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Manager -> Gate, and between managers: somebody else leads this job's datacenter now."""

    job_id: str
    datacenter: str
    new_manager_id: str
    new_manager_host: str
    new_manager_port: int
    fence_token: int
    epoch: int
    old_manager_id: str = ""


GateBound = JobProgressReport | JobTimeoutReport | JobStatusCorrection | JobLeaderTransfer
ManagerBound = JobGlobalTimeout | JobGlobalCancel | JobReportAck | JobStatusQuery
