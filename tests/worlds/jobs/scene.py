"""The scene of the small world: one job, two datacenters, abstract time, and the messages between them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tenure.jobs.decisions import Command, Decision, GateDecision
from tenure.jobs.gate_exchange import AnswerQuery, HearGate, ObeyGlobalCancel, ObeyGlobalTimeout
from tenure.jobs.gate_reports import HearCorrection, HearProgress, HearTimeout
from tenure.jobs.messages import (
    Identity,
    JobGlobalCancel,
    JobGlobalTimeout,
    JobOrder,
    JobProgressReport,
    JobReportAck,
    JobStatusCorrection,
    JobStatusQuery,
    JobTimeoutReport,
)
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import GateSettings, JobSettings
from tenure.jobs.states import TimeoutReason
from tenure.jobs.steering import ObeyOrder
from tenure.jobs.submission import SubmitJob

JOB = "j"
DATACENTERS = ("dc-a", "dc-b")
# Abstract time: at the start; silent for longer than stuck allows; past the deadline, and past the fallback of a
# timeout that was reported at the tick before.
TICKS = (0.0, 200.0, 1_100.0)
DEADLINE_TICK = 2
# The gate begins at 2, so that a successor that lost its counter begins below it; either kind of successor reaches 3.
FIRST_EPOCH, HIGHEST_EPOCH = 2, 3
SUBMISSION = JobSubmission(
    job_id=JOB,
    workflows=(WorkflowSpec(name="w"),),
    timeout_seconds=1_000.0,
    stuck_threshold=120.0,
    grace=0.0,
    gate_addr=("gate", 1),
    target_datacenters=DATACENTERS,
)
MANAGER_SETTINGS = JobSettings(history_limit=0)
GATE_SETTINGS = GateSettings(history_limit=0)

Message = (
    JobSubmission
    | JobGlobalTimeout
    | JobGlobalCancel
    | JobStatusQuery
    | JobOrder
    | JobReportAck
    | JobProgressReport
    | JobTimeoutReport
    | JobStatusCorrection
)


class Letter(NamedTuple):
    """A message on its way: to a datacenter, or from one to the gate."""

    datacenter: str
    to_gate: bool
    message: Message


def manager_command(letter: Letter) -> Command:
    """What a manager is asked by a message."""
    message, identity = letter.message, Identity(letter.datacenter, "m")
    if isinstance(message, JobSubmission):
        return SubmitJob(submission=message)
    if isinstance(message, JobGlobalTimeout):
        return ObeyGlobalTimeout(message=message, identity=identity)
    if isinstance(message, JobGlobalCancel):
        return ObeyGlobalCancel(message=message, identity=identity)
    if isinstance(message, JobStatusQuery):
        return AnswerQuery(message=message, identity=identity)
    if isinstance(message, JobOrder):
        return ObeyOrder(message=message, identity=identity)
    assert isinstance(message, JobReportAck), message
    return HearGate(message=message)


def gate_command(letter: Letter) -> Command:
    """What a gate is told by a message."""
    message = letter.message
    if isinstance(message, JobProgressReport):
        return HearProgress(report=message)
    if isinstance(message, JobTimeoutReport):
        return HearTimeout(report=message)
    assert isinstance(message, JobStatusCorrection), message
    return HearCorrection(correction=message)


def worth_sending(ack: JobReportAck, letter: Letter) -> bool:
    """An acknowledgement that tells the manager nothing new need not be explored."""
    report = letter.message
    assert isinstance(report, JobProgressReport | JobTimeoutReport), report
    return ack.status.terminal or ack.gate_epoch > report.gate_epoch


def plain(message: Message) -> Message:
    """Without the words and moments that no rule reads: they differ where nothing else does."""
    if isinstance(message, JobProgressReport):
        return msgspec.structs.replace(
            message,
            reason="",
            timestamp=0.0,
            elapsed_seconds=0.0,
            workflows_completed=0,
            workflows_running=1,
            has_recent_progress=False,
        )
    if isinstance(message, JobReportAck):
        return msgspec.structs.replace(message, fence_token=0)
    if isinstance(message, JobTimeoutReport):
        return msgspec.structs.replace(message, elapsed_seconds=0.0, reason=TimeoutReason.TIMEOUT)
    if isinstance(message, JobStatusCorrection):
        return msgspec.structs.replace(message, reason="")
    return message


def words_of(decision: Decision | GateDecision) -> str:
    """What a node made of an input, for the story."""
    made = ", ".join(type(event).__name__ for event in decision.events)
    reason = f" ({decision.reason})" if decision.reason else ""
    return f"{decision.outcome}{reason}{': ' + made if made else ''}"


def letter_words(letter: Letter) -> str:
    """A message, for the story."""
    message = letter.message
    name = type(message).__name__
    shown = [
        f"{field}={value}"
        for field in ("status", "reason", "fence_token", "gate_epoch", "accepted")
        if (value := getattr(message, field, None)) not in (None, "")
    ]
    return f"{name}({', '.join(shown)})"
