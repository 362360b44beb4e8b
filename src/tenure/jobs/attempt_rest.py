"""Decides how long a workflow rests before its next attempt, in which place it waits for that, what its restarts cost, and compares the marks of saved work.

A mark is one number that names the checkpoint and counts the recorded steps (decisions 0356, 0400).
A place is kept in the record, because who reads the state back finds no other trace of the order: indexes are built anew, job by job (decision 0911).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tenure.backoff import Retry
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.states import AttemptCause, WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.attempt_results import AttemptFailed
    from tenure.jobs.book import JobBook


def rest_before_next(
    job_id: str, workflow: WorkflowRecord, cause: AttemptCause, rest_s: float | None, spent: int
) -> float:
    """Returns the rest that the work asked for, or else that of its retry policy. Work that lost its worker by eviction does not rest."""
    if rest_s is not None:
        return rest_s
    evicted = cause is AttemptCause.EVICTED
    return 0.0 if evicted else backoff(workflow.spec.policy, job_id, workflow, max(1, spent))


def backoff(retry: Retry, job_id: str, workflow: WorkflowRecord, failures: int) -> float:
    """Returns the rest before the next attempt. Its jitter comes from the attempt's key, so that every replay gives the same."""
    chance = zlib.crc32(f"{job_id}/{workflow.spec.name}/{workflow.attempt}".encode()) / 0xFFFFFFFF
    return retry.delay_s(failures, chance)


def note_dependency(workflow: WorkflowRecord, event: AttemptFailed) -> None:
    """Notes the name on which an attempt failed. If that turns out to be down, the attempt is not charged after all."""
    workflow.uncharged += event.uncharged
    charged = workflow.failed_on[0] if event.waits_on == workflow.held_on else 0
    workflow.held_on = event.waits_on
    workflow.failed_on = (charged + (bool(event.waits_on) and not event.uncharged), event.at)


def restarted(workflow: WorkflowRecord) -> int:
    """Returns the starts of a workflow that count against max_restarts."""
    return workflow.attempt - workflow.uncharged + workflow.redelivered


_CHECKPOINT = (1 << 32) - 1
"""The bits of a mark that name the checkpoint; those above count the recorded steps (`work.delivery.mark_of`)."""


def is_new_mark(mark: int | None, before: int) -> bool:
    """Returns True when a mark tells of saved work that the one before does not know: another checkpoint, or more steps."""
    checkpoint = (mark or 0) & _CHECKPOINT
    return (mark or 0) >> 32 > before >> 32 or (checkpoint != 0 and checkpoint != before & _CHECKPOINT)


def joined_marks(mark: int | None, before: int) -> int:
    """Returns the mark of all saved work that is known. An attempt that did not read the steps says nothing about them."""
    found = mark or 0
    steps, checkpoint = max(found >> 32, before >> 32), found & _CHECKPOINT or before & _CHECKPOINT
    return steps << 32 | checkpoint


def queue_up(book: JobBook, workflow: WorkflowRecord) -> None:
    """Gives pending work its place behind all that is pending."""
    book.state.places += 1
    workflow.place = book.state.places


def due_from(book: JobBook, info: JobInfo, at: float) -> None:
    """Makes what is pending of a job that rested due at `at`, or at its own later time: it stands behind what was due before."""
    for workflow in info.workflows.values():
        if workflow.state is WorkflowState.PENDING:
            workflow.not_before = max(workflow.not_before, at)
            queue_up(book, workflow)
