"""Decides everything about jobs: their attempts, their deadlines and their end. Pure: it reads no clock and does no I/O.

A shell calls `decide(book, command, now)`, appends the events to its journal, folds them with `book.apply`, and then
performs what `outbox` and `gate_exchange` return. A gate does the same with `decide_gate` and `GateJobTracker`. This file exports the names
of document 002 and the way in; everything else is imported from its topic (`topics.py` lists them).
"""

from tenure.jobs.book import JobBook
from tenure.jobs.decisions import Command, Decision, Event, Outcome, Rule
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.messages import (
    JobGlobalTimeout,
    JobLeaderTransfer,
    JobProgressReport,
    JobTimeoutReport,
)
from tenure.jobs.model import (
    GateJobTrackingInfo,
    JobInfo,
    JobSubmission,
    TimeoutTrackingState,
    WorkflowSpec,
)
from tenure.jobs.settings import GateSettings, JobSettings
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.timeout import GateCoordinatedTimeout, LocalAuthorityTimeout, TimeoutStrategy
from tenure.jobs.topics import decide, decide_gate

__all__ = [
    "Command",
    "Decision",
    "Event",
    "GateCoordinatedTimeout",
    "GateJobTracker",
    "GateJobTrackingInfo",
    "GateSettings",
    "JobBook",
    "JobGlobalTimeout",
    "JobInfo",
    "JobLeaderTransfer",
    "JobProgressReport",
    "JobSettings",
    "JobState",
    "JobSubmission",
    "JobTimeoutReport",
    "LocalAuthorityTimeout",
    "Outcome",
    "Rule",
    "TimeoutStrategy",
    "TimeoutTrackingState",
    "WorkflowSpec",
    "WorkflowState",
    "decide",
    "decide_gate",
]
