"""Defines the closed choices of jobs, their state machines as tables, and the records of a paused job and of an attempt that was asked to end.

A transition that is not in a table is an error, wherever it comes from. Terminal states have no way out, so each job
and each workflow gets one only once. `steering.py` makes the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum

import msgspec

from tenure.errors import IllegalTransitionError


class JobState(StrEnum):
    """The state of a job, in one datacenter or, at a gate, in all of them."""

    PENDING = "pending"  # accepted; nothing of it has run yet
    RUNNING = "running"  # at least one attempt was started
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    terminal: bool
    """True for a state that has no way out: those of `JOB_TERMINAL`."""


class WorkflowState(StrEnum):
    """The state of one workflow of a job."""

    WAITING = "waiting"  # for the workflows that it comes after
    PENDING = "pending"  # an attempt is decided, and not yet known to be in the engine
    QUEUED = "queued"  # the attempt is in the engine, and no worker has started it
    RUNNING = "running"  # a worker has started the attempt
    SUSPENDED = "suspended"  # it waits for a time, a signal or its children, and no worker has it
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    terminal: bool
    """True for a state that has no way out: those of `WORKFLOW_TERMINAL`."""


class StrategyType(StrEnum):
    """Names the authority that may end a job for its time (document 002, part 1)."""

    LOCAL_AUTHORITY = "local_authority"
    GATE_COORDINATED = "gate_coordinated"


class TimeoutReason(StrEnum):
    """The reason for which time ran out, as `JobTimeoutReport.reason` carries it."""

    TIMEOUT = "timeout"
    STUCK = "stuck"


class OnFailure(StrEnum):
    """Sets what the final failure of a workflow does to its job."""

    FAIL = "fail"  # the job fails, the rest is cancelled
    CONTINUE = "continue"  # the other workflows go on, and those that come after this one run


class Undoes(IntEnum):
    """Tells whether a workflow has compensations in the store. It only grows."""

    NONE = 0  # each attempt ended with its own word, and registered none
    UNKNOWN = 1  # an attempt ended without its own word: it was killed, or its worker died
    REGISTERED = 2


class AttemptCause(StrEnum):
    """The way in which an attempt ended without a result."""

    ERROR = "error"  # the workflow raised
    STALL = "stall"  # no beat within its threshold: its slot was killed
    CRASH = "crash"  # its process died
    LOST_LEASE = "lost_lease"  # its lease ran out, or a newer delivery has it
    EVICTED = "evicted"  # its worker was evicted
    DEAD_LETTER = "dead_letter"  # the engine gave up on the message
    PAUSED = "paused"  # somebody paused its job; the next attempt goes on from its checkpoint
    MOVED = "moved"  # somebody moved it to another worker, from its checkpoint
    PREEMPTED = "preempted"  # urgent work took its slot; it goes on from its checkpoint


MADE_WAY = frozenset({AttemptCause.PAUSED, AttemptCause.MOVED, AttemptCause.PREEMPTED})
"""The causes of attempts that were asked to end: they are not charged, and go on from their checkpoint."""
JOB_TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})
WORKFLOW_TERMINAL = frozenset({WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED})
# Written down at each state, and not looked up by a property: folds and views ask for it several times for each event.
for job_state in JobState:
    job_state.terminal = job_state in JOB_TERMINAL
for workflow_state in WorkflowState:
    workflow_state.terminal = workflow_state in WORKFLOW_TERMINAL

JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.PENDING: JOB_TERMINAL | {JobState.RUNNING},
    JobState.RUNNING: JOB_TERMINAL,
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.TIMED_OUT: frozenset(),
}

# A result may overtake the record of its dispatch and of its start: both are written after the fact, by a leader that
# may die in between. So every state with an attempt can end. RUNNING to RUNNING is a later delivery of one attempt.
WORKFLOW_TRANSITIONS: Mapping[WorkflowState, frozenset[WorkflowState]] = {
    WorkflowState.WAITING: frozenset({WorkflowState.PENDING, WorkflowState.CANCELLED}),
    WorkflowState.PENDING: WORKFLOW_TERMINAL
    | {WorkflowState.PENDING, WorkflowState.QUEUED, WorkflowState.RUNNING, WorkflowState.SUSPENDED},
    WorkflowState.QUEUED: WORKFLOW_TERMINAL | {WorkflowState.PENDING, WorkflowState.RUNNING, WorkflowState.SUSPENDED},
    WorkflowState.RUNNING: WORKFLOW_TERMINAL | {WorkflowState.PENDING, WorkflowState.RUNNING, WorkflowState.SUSPENDED},
    WorkflowState.SUSPENDED: frozenset({WorkflowState.PENDING, WorkflowState.CANCELLED}),
    WorkflowState.COMPLETED: frozenset(),
    WorkflowState.FAILED: frozenset(),
    WorkflowState.CANCELLED: frozenset(),
}


def check_job_transition(job_id: str, old: JobState, new: JobState) -> None:
    """Raise `IllegalTransitionError` unless the table allows it."""
    if new not in JOB_TRANSITIONS[old]:
        raise IllegalTransitionError(f"job {job_id!r}", old, new)


def check_workflow_transition(job_id: str, name: str, old: WorkflowState, new: WorkflowState) -> None:
    """Raise `IllegalTransitionError` unless the table allows it."""
    if new not in WORKFLOW_TRANSITIONS[old]:
        raise IllegalTransitionError(f"workflow {name!r} of job {job_id!r}", old, new)


class PauseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Records that somebody paused a job."""

    at: float
    by: str = ""
    reason: str = ""


class AttemptStop(msgspec.Struct, frozen=True, kw_only=True):
    """Records that somebody wants the present attempt of a workflow to end, and the next one to go on from its checkpoint."""

    cause: AttemptCause
    """`paused`, `moved` or `preempted`."""
    worker: str = ""
    """Where the attempt is to end: that of a move, or for urgent work, ends on this worker only."""
    by: str = ""
    reason: str = ""
    saved_at: float = 0.0
    """When it had saved last, as far as the leader knew; 0 where nobody watched."""
    mark: int = 0
    """Names what it had saved then."""
    for_work: str = ""
    """The urgent work that gets its slot, as `job/workflow`; empty where nothing does."""

    def lost_s(self, mark: int | None, now: float) -> float:
        """Returns the seconds of work that end with it: none where it saved once more, or nobody knows."""
        return max(0.0, now - self.saved_at) if self.saved_at and mark in (None, self.mark) else 0.0
