"""Gives pending work its place: of attempts that are due at one instant, the one with the lowest goes first (decision 0911).

The record keeps the place, because who reads the state back finds no other trace of the order: indexes are built anew, job by job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.jobs.states import WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook
    from tenure.jobs.model import JobInfo, WorkflowRecord


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
