"""Defines the commands about a gate's jobs that `decide_gate` takes, and the decision that it returns."""

from __future__ import annotations

from typing import NamedTuple

from tenure.jobs.commands import Command, Outcome
from tenure.jobs.events import Event, Rule
from tenure.jobs.messages import (
    JobLeaderTransfer,
    JobProgressReport,
    JobReportAck,
    JobStatusCorrection,
    JobTimeoutReport,
)
from tenure.jobs.model import JobSubmission


class GateDecision(NamedTuple):
    """The events to append, all in one append, and the answer with its reason."""

    events: list[Event]
    outcome: Outcome
    rule: Rule
    reason: str = ""
    job_id: str = ""
    ack: JobReportAck | None = None
    """The answer to the manager that reported. The gate sends it once the append has returned."""
    campaign_above: int = 0
    """Above 0 when a datacenter has seen this gate epoch, which is above ours. The gate must lead with a higher one before it decides anything."""


class GateTakeLead(Command, frozen=True, kw_only=True):
    epoch: int
    gate: str


class GateSubmit(Command, frozen=True, kw_only=True):
    """A job that has been placed: `target_datacenters` are those in which it is to run."""

    submission: JobSubmission
    target_datacenters: tuple[str, ...]


class HearProgress(Command, frozen=True, kw_only=True):
    report: JobProgressReport


class HearTimeout(Command, frozen=True, kw_only=True):
    report: JobTimeoutReport


class HearCorrection(Command, frozen=True, kw_only=True):
    correction: JobStatusCorrection


class HearTransfer(Command, frozen=True, kw_only=True):
    transfer: JobLeaderTransfer


class CheckGlobal(Command, frozen=True, kw_only=True):
    """Asks for the periodic check of one job. While `link_suspect`, the gate takes its own link for broken, so silence proves nothing."""

    job_id: str
    link_suspect: bool = False


class GateCancel(Command, frozen=True, kw_only=True):
    job_id: str
    reason: str = ""


class GateFailJob(Command, frozen=True, kw_only=True):
    """The leading gate's own code raised while it handled this job: the job is withdrawn everywhere, and everything else goes on."""

    job_id: str
    doing: str
    error: str
    trace: str = ""


class GateArchive(Command, frozen=True, kw_only=True):
    job_id: str


class GateForgetOld(Command, frozen=True, kw_only=True):
    pass
