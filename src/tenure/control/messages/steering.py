"""Requests that act on a job while it runs: pause, resume, another deadline, another worker, a signal."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from tenure import bounds as b
from tenure.control.messages.wire import Placed


class PauseRunningJob(Placed, frozen=True, kw_only=True, tag="pause_job"):
    """Start nothing more of this job, and have what runs end with its checkpoint. None of its clocks runs until it is resumed. Leader only."""

    job_id: b.JobId
    reason: b.GivenReason
    by: b.Person = ""


class ResumePausedJob(Placed, frozen=True, kw_only=True, tag="resume_job"):
    """Let a paused job go on from its checkpoints. Its deadline moves by the time of the pause. Leader only."""

    job_id: b.JobId
    reason: b.GivenReason
    by: b.Person = ""


class RetimeRunningJob(Placed, frozen=True, kw_only=True, tag="retime_job"):
    """Give a job that has not ended another deadline: so many seconds from its start, null for none; or so many more. Leader only."""

    job_id: b.JobId
    reason: b.GivenReason
    timeout_seconds: b.PositiveSeconds | UnsetType | None = UNSET
    """The whole time that it may take. Left out: `add_s` counts."""
    add_s: b.Seconds = 0.0
    by: b.Person = ""


class MoveRunningJob(Placed, frozen=True, kw_only=True, tag="move_job"):
    """Have what runs of this job end with its checkpoint, and go on from there on another worker. It is not charged as an attempt. Leader only."""

    job_id: b.JobId
    reason: b.GivenReason
    workflow: b.AnyPath = ""
    """Left out: everything of it that runs."""
    by: b.Person = ""


class SignalJob(Placed, frozen=True, kw_only=True, tag="signal_job"):
    """Send a signal to this job. It is kept until a workflow of it waits for it. The same id again is the same signal. Leader only."""

    job_id: b.JobId
    name: b.AnyName
    signal_id: b.AnyName
    payload: Annotated[Any, b.CHECKED_WHERE_DECIDED] = None
    by: b.Person = ""


SteeringRequest = PauseRunningJob | ResumePausedJob | RetimeRunningJob | MoveRunningJob | SignalJob
