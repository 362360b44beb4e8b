"""Finds in a job's history which worker ran which attempt, from when to when, and how it ended. Pure: it reads events."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenure.jobs.attempt_results import AttemptFailed, WorkflowCompleted
from tenure.jobs.attempts import WorkflowStarted
from tenure.jobs.decisions import Event
from tenure.jobs.endings import JobEnded
from tenure.jobs.waits import Suspended
from tenure.jobs.why_answer import AttemptRun

LOST_LEASE, JOB_ENDED = "lost its lease", "ended with its job"


def runs_of(history: Iterable[Event]) -> tuple[AttemptRun, ...]:
    """Returns the runs in the order in which they started. A long history has lost its middle: then runs are missing, too."""
    ended: list[AttemptRun] = []
    running: dict[str, AttemptRun] = {}

    def end(workflow: str, at: float, outcome: str, before: AttemptRun | None = None) -> None:
        one = running.pop(workflow, before)
        if one is not None:
            ended.append(msgspec.structs.replace(one, ended_at=at, outcome=outcome))

    for event in history:
        if isinstance(event, WorkflowStarted):
            end(event.workflow, event.at, LOST_LEASE)
            running[event.workflow] = AttemptRun(
                workflow=event.workflow,
                attempt=event.attempt,
                worker=event.worker,
                started_at=event.at,
                delivery=event.delivery,
            )
        elif isinstance(event, (WorkflowCompleted, AttemptFailed, Suspended)):
            end(event.workflow, event.at, _outcome(event), _unreported(event))
        elif isinstance(event, JobEnded):
            for workflow in list(running):
                end(workflow, event.at, JOB_ENDED)
    return tuple(sorted([*ended, *running.values()], key=lambda one: one.started_at))


def _outcome(event: WorkflowCompleted | AttemptFailed | Suspended) -> str:
    if isinstance(event, AttemptFailed):
        return str(event.evidence.get("cause", "")) or event.cause.value
    return "completed" if isinstance(event, WorkflowCompleted) else "suspended"


def _unreported(event: WorkflowCompleted | AttemptFailed | Suspended) -> AttemptRun | None:
    """Returns the run of an attempt that ended before its worker first reported it: its start is known only by how long it took."""
    if not event.worker:
        return None
    took = event.evidence.get("seconds", 0.0)
    begun = event.at - took if isinstance(took, (int, float)) else event.at
    return AttemptRun(workflow=event.workflow, attempt=event.attempt, worker=event.worker, started_at=begun)
