"""Defines the messages between managers and gates (document 002, part 6), as plain data.

The document's fields come first, under its names. The fields after them are ours: a gate's epoch fences stale gates, and
reports carry enough for a successor that lost its journal to rebuild. Times are Unix seconds, for people to read:
a gate reckons with its own receive time and with elapsed seconds, never with a report's timestamp.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tenure import bounds as b
from tenure.jobs.states import JobState, TimeoutReason


class Identity(msgspec.Struct, frozen=True):
    """Names the manager that answers for a datacenter, as its messages carry it."""

    datacenter: str
    manager_id: str
    host: str = ""
    port: int = 0


class JobProgressReport(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Manager -> Gate: the state of the job here, every 10 s. The manager repeats its end until the gate has acknowledged it."""

    job_id: b.JobId
    datacenter: b.DatacenterName
    manager_id: b.NodeName
    manager_host: b.HostOrNone
    manager_port: b.PortOrNone
    workflows_total: b.Count
    workflows_completed: b.Count
    workflows_failed: b.Count
    has_recent_progress: bool
    """True when any workflow progressed in the last interval. False does not reset the gate's stuck clock, unless nothing runs."""
    timestamp: b.UnixTime
    fence_token: b.FenceToken

    status: JobState = JobState.RUNNING
    workflows_running: b.Count = 0
    """0 while everything waits in the queue. Such a report holds the gate's stuck clock."""
    elapsed_seconds: b.ElapsedSeconds = 0.0
    total_extensions_granted: b.ElapsedSeconds = 0.0
    reason: b.Told = ""
    ended_by_gate: bool = False
    """True when a gate's decision ended the job. A gate that lost its journal takes the same decision again."""
    gate_epoch: b.Epoch = 0
    """The highest gate epoch that this datacenter has seen."""
    submitted_at: b.UnixTime = 0.0
    timeout_seconds: b.ElapsedSeconds | None = 0.0
    """None for a job without a deadline; 0 where the report does not say."""
    target_datacenters: Annotated[tuple[b.DatacenterName, ...], b.items(0, 1_000)] = ()
    attempts: b.Count = 0
    """All attempts of all its workflows so far. The gate shows their number in lists; nothing is decided by it."""
    steered: b.Count = 0
    """The number of the last order of the gate that this datacenter has obeyed."""
    paused: bool = False
    paused_s: b.ElapsedSeconds = 0.0
    """The seconds of all pauses that are over. A gate that lost its journal rebuilds the job from these, too."""
    may_earn: bool = False
    """True while the job's deadline is near here, or has passed and a new leader still waits for requests: the next report tells how that ended."""


class JobTimeoutReport(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Manager -> Gate: time ran out in this datacenter. The manager sends it again until the gate decides."""

    job_id: b.JobId
    datacenter: b.DatacenterName
    manager_id: b.NodeName
    manager_host: b.HostOrNone
    manager_port: b.PortOrNone
    reason: TimeoutReason
    elapsed_seconds: b.ElapsedSeconds
    fence_token: b.FenceToken

    total_extensions_granted: b.ElapsedSeconds = 0.0
    gate_epoch: b.Epoch = 0
    submitted_at: b.UnixTime = 0.0
    timeout_seconds: b.ElapsedSeconds | None = 0.0
    """None for a job without a deadline; 0 where the report does not say."""
    target_datacenters: Annotated[tuple[b.DatacenterName, ...], b.items(0, 1_000)] = ()
    steered: b.Count = 0
    paused_s: b.ElapsedSeconds = 0.0


class JobGlobalTimeout(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: the job's time is over everywhere. The gate sends it again until the datacenter's status is terminal."""

    job_id: b.JobId
    reason: b.Told
    timed_out_at: b.UnixTime
    fence_token: b.FenceToken
    """The highest token that the gate has seen from that datacenter, when it decided from reports. Otherwise 0."""

    gate_epoch: b.Epoch = 0


class JobGlobalCancel(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: a user cancelled the job everywhere. It carries no manager token, because a user's cancel is never stale."""

    job_id: b.JobId
    reason: b.Told
    cancelled_at: b.UnixTime
    gate_epoch: b.Epoch = 0


class JobOrder(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: the pause and the deadline that the job shall have. The gate sends it again until the datacenter has obeyed it."""

    job_id: b.JobId
    number: b.Count
    """Grows with each order: a datacenter obeys the highest one that it has seen."""
    paused: bool
    timeout_seconds: b.ElapsedSeconds | None
    """None for a job without a deadline."""
    by: b.Person = ""
    reason: b.Told = ""
    gate_epoch: b.Epoch = 0


class JobStatusQuery(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: a gate that lost its journal asks for the state of a job. The manager answers with a `JobStatusCorrection`."""

    job_id: b.JobId
    gate_epoch: b.Epoch = 0


class JobReportAck(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Gate -> Manager: the answer to a report. `status` is the status that the gate now holds for that datacenter."""

    job_id: b.JobId
    datacenter: b.DatacenterName
    status: JobState
    fence_token: b.FenceToken
    gate_epoch: b.Epoch = 0


class JobStatusCorrection(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Manager -> Gate: the answer to a global decision, or to a query.

    A terminal status acknowledges a decision: the manager obeyed it now, or the job had ended before. Otherwise the decision was
    stale, and the gate sends it again with this token and this gate epoch.
    """

    job_id: b.JobId
    datacenter: b.DatacenterName
    manager_id: b.NodeName
    status: JobState
    fence_token: b.FenceToken
    gate_epoch: b.Epoch
    accepted: bool
    reason: b.Told = ""
    manager_host: b.HostOrNone = ""
    manager_port: b.PortOrNone = 0
    ended_by_gate: bool = False
    steered: b.Count = 0
    """The number of the order that was obeyed; 0 in the answer to anything else."""


class JobLeaderTransfer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Manager -> Gate, and between managers: another manager leads this job's datacenter now."""

    job_id: b.JobId
    datacenter: b.DatacenterName
    new_manager_id: b.NodeName
    new_manager_host: b.HostOrNone
    new_manager_port: b.PortOrNone
    fence_token: b.FenceToken
    epoch: b.Epoch
    old_manager_id: b.AnyNameOrNone = ""
