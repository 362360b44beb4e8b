"""Jobs that run compensations, as other rules see them: their ids, who may submit one, which ended jobs may need one, and those that failed.

Such ids are kept for the leader: a job of a user's under one would keep the compensations of another from running.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tenure.errors import ConfigurationError
from tenure.jobs.model import JobInfo, JobSubmission
from tenure.jobs.states import JobState, Undoes, WorkflowState

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

UNDO_OF = "tenure.undo_of"
"""The label that names the job whose compensations a job runs."""
SUFFIX = "~undo"
MOST_CHARS = 200
"""The most characters of a job's id (`bounds.JobId`)."""


def undo_id(job_id: str) -> str:
    """Returns the id of the job that runs the compensations of this one. A digest stands for what does not fit into an id."""
    if len(job_id) + len(SUFFIX) <= MOST_CHARS:
        return job_id + SUFFIX
    named = hashlib.blake2b(job_id.encode(), digest_size=8).hexdigest()
    return f"{job_id[: MOST_CHARS - len(SUFFIX) - 1 - len(named)]}~{named}{SUFFIX}"


def check_not_kept(job_id: str) -> None:
    """Raises `ConfigurationError` for an id that is kept: for compensations, or for namespaces, where schedules have their stored arguments."""
    if job_id.startswith("//"):
        raise ConfigurationError(
            f"the job id {job_id[:60]!r} begins with //, which is kept for namespaces",
            remedy="Begin it with anything else",
        )
    if job_id.endswith(SUFFIX):
        raise ConfigurationError(
            f"the job id {job_id[-60:]!r} ends with {SUFFIX}, which is kept for the compensations of a job",
            remedy="End it with anything else",
        )


def check_undo(book: JobBook, submission: JobSubmission) -> None:
    """Raises for a submission from outside that wants to run compensations, unless it repeats the job that ran them."""
    if not submission.undo_of:
        return
    known = book.jobs.get(submission.retry_of)
    if known is None or known.job.submission.undo_of != submission.undo_of:
        raise ConfigurationError(
            f"job {submission.job_id!r} cannot run the compensations of {submission.undo_of!r}: only the leader begins that",
            remedy=f"Where some of them failed: tenure retry {undo_id(submission.undo_of)}",
        )


def may_have_compensations(info: JobInfo) -> bool:
    """Returns True when the store has to be looked at for an ended job: to run what is there, or to delete what is not needed."""
    if info.job.submission.undo_of:
        return True
    if info.state is JobState.COMPLETED:
        return any(one.undoes is Undoes.REGISTERED for one in info.workflows.values())
    # Work that was cancelled may have run without a word to the leader.
    return any(one.undoes or one.state is WorkflowState.CANCELLED for one in info.workflows.values())


def note_undo(book: JobBook, info: JobInfo) -> None:
    """Keeps the indexes of jobs that run compensations right, when one came, was read back, or has ended. Alarms are read off them."""
    origin = info.job.submission.undo_of
    if not origin:
        return
    book.failed_undos.pop(info.job.submission.retry_of, None)  # this one tells how it goes on
    if not info.state.terminal:
        book.undoing[info.id] = origin
        return
    book.undoing.pop(info.id, None)
    if info.failed_workflows or info.state is not JobState.COMPLETED:
        book.failed_undos[info.id] = info.ended_at
