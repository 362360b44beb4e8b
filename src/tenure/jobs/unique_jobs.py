"""Unique jobs: which job an equal submission finds, and what then becomes of either.

A job is equal to another when both have the same queue, functions and arguments, or the same queue and key; and, where their callers are bound to
labels, the same of those. The job that was accepted last counts,
for as long as the new submission says, unless it failed, timed out or was cancelled: then the work was not done.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.errors import DuplicateJobError
from tenure.jobs.model import ArchivedJob, JobSubmission
from tenure.jobs.states import JobState
from tenure.served_workflow import OnDuplicate

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

RETRY_OF = "tenure.retry_of"
"""The label that links a retry to the job that it repeats. A retry is no duplicate of it."""
_RETRIED = re.compile(r"(.*)~([1-9][0-9]{0,5})", re.DOTALL)
_encode = msgspec.json.Encoder(order="sorted").encode


class UniqueJobs:
    """An index over jobs in memory and archived ones: the newest job of each name that equal jobs share."""

    def __init__(self, archive: Mapping[str, ArchivedJob]) -> None:
        self._newest: dict[str, tuple[float, str]] = {}
        self.admit(archive)

    def admit(self, archived: Mapping[str, ArchivedJob]) -> None:
        for job_id, one in archived.items():
            self.note(one.unique, job_id, one.submitted_at)

    def note(self, name: str, job_id: str, submitted_at: float) -> None:
        # Records that are read back come in any order, so the time decides which is the newest.
        if name and self._newest.get(name, (-1.0, "")) < (submitted_at, job_id):
            self._newest[name] = (submitted_at, job_id)

    def drop(self, name: str, job_id: str) -> None:
        if self.newest(name) == job_id:
            del self._newest[name]

    def newest(self, name: str) -> str:
        """Returns the newest job of this name, or nothing."""
        return self._newest.get(name, (0.0, ""))[1]


class Duplicate(NamedTuple):
    """The answer to a submission while an equal job is there."""

    kept: str = ""
    """The equal job, where it stands for the new one."""
    replaced: str = ""
    """The equal job, where the new one takes its place."""


def unique_name(submission: JobSubmission) -> str:
    """Returns a name that equal jobs share; empty for a job that is not unique."""
    unique = submission.unique
    if unique is None or submission.gate_addr is not None:
        return ""  # the same job of a gate runs in several datacenters
    same: Any = unique.key or [(one.called, one.version, one.arguments) for one in submission.workflows]
    # A caller that is bound to labels must neither learn of jobs of others nor replace them, and they share its queue.
    own = (submission.among,) if submission.among else ()
    return hashlib.blake2b(_encode((submission.queue, same, *own)), digest_size=16).hexdigest()


def find_duplicate(book: JobBook, submission: JobSubmission, now: float) -> Duplicate:
    """Returns what an equal job means for this submission. Raises `DuplicateJobError` where it says so."""
    unique, job_id = submission.unique, book.unique.newest(unique_name(submission))
    if (
        unique is None
        or submission.retry_of
        or RETRY_OF in submission.labels
        or not job_id
        or not _counts(book, job_id, now - unique.for_s)
    ):
        return Duplicate()
    if unique.on_duplicate is OnDuplicate.KEEP:
        return Duplicate(kept=job_id)
    if unique.on_duplicate is OnDuplicate.REJECT:
        raise DuplicateJobError(job_id, unique.for_s)
    info = book.jobs.get(job_id)
    if info is None or info.state is not JobState.PENDING:
        return Duplicate()  # work that runs goes on: the new job may bring what it does not know
    return Duplicate(replaced=job_id)


def _counts(book: JobBook, job_id: str, since: float) -> bool:
    info, archived = book.jobs.get(job_id), book.state.archive.get(job_id)
    if info is not None:
        accepted, state = info.job.submitted_at, info.state
    elif archived is not None:
        accepted, state = archived.submitted_at, archived.state
    else:
        return False
    return accepted > since and (not state.terminal or state is JobState.COMPLETED)


def next_id(job_id: str) -> str:
    """Returns the id of a retry: that of `encode` is `encode~2`, and the retry of that is `encode~3`."""
    numbered = _RETRIED.fullmatch(job_id)
    return f"{numbered[1]}~{int(numbered[2]) + 1}" if numbered else f"{job_id}~2"
