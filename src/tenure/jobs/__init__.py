"""Decides everything about jobs: their attempts, their deadlines and their end. Pure: it reads no clock and does no I/O.

A shell calls `decide(book, command, now)`, appends the events to its journal, folds them with `book.apply`, and then
performs what `outbox` and `gate_exchange` return. A gate does the same with `decide_gate` and `GateJobTracker`. This file exports the names
of document 002 and the way in; everything else is imported from its topic (`topics.py` lists them).
"""

from typing import TYPE_CHECKING

from tenure import lazy_names

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook as JobBook
    from tenure.jobs.decisions import Command as Command
    from tenure.jobs.decisions import Decision as Decision
    from tenure.jobs.decisions import Event as Event
    from tenure.jobs.decisions import Outcome as Outcome
    from tenure.jobs.decisions import Rule as Rule
    from tenure.jobs.gate_tracker import GateJobTracker as GateJobTracker
    from tenure.jobs.messages import JobGlobalTimeout as JobGlobalTimeout
    from tenure.jobs.messages import JobLeaderTransfer as JobLeaderTransfer
    from tenure.jobs.messages import JobProgressReport as JobProgressReport
    from tenure.jobs.messages import JobTimeoutReport as JobTimeoutReport
    from tenure.jobs.model import GateJobTrackingInfo as GateJobTrackingInfo
    from tenure.jobs.model import JobInfo as JobInfo
    from tenure.jobs.model import JobSubmission as JobSubmission
    from tenure.jobs.model import TimeoutTrackingState as TimeoutTrackingState
    from tenure.jobs.model import WorkflowSpec as WorkflowSpec
    from tenure.jobs.settings import GateSettings as GateSettings
    from tenure.jobs.settings import JobSettings as JobSettings
    from tenure.jobs.states import JobState as JobState
    from tenure.jobs.states import WorkflowState as WorkflowState
    from tenure.jobs.timeout import GateCoordinatedTimeout as GateCoordinatedTimeout
    from tenure.jobs.timeout import LocalAuthorityTimeout as LocalAuthorityTimeout
    from tenure.jobs.timeout import TimeoutStrategy as TimeoutStrategy
    from tenure.jobs.topics import decide as decide
    from tenure.jobs.topics import decide_gate as decide_gate

__getattr__ = lazy_names(
    __name__,
    {
        "book": "JobBook",
        "decisions": "Command Decision Event Outcome Rule",
        "gate_tracker": "GateJobTracker",
        "messages": "JobGlobalTimeout JobLeaderTransfer JobProgressReport JobTimeoutReport",
        "model": "GateJobTrackingInfo JobInfo JobSubmission TimeoutTrackingState WorkflowSpec",
        "settings": "GateSettings JobSettings",
        "states": "JobState WorkflowState",
        "timeout": "GateCoordinatedTimeout LocalAuthorityTimeout TimeoutStrategy",
        "topics": "decide decide_gate",
    },
)
