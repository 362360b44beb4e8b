"""Which submissions are one job: those that repeat an id, and unique jobs, which an equal submission finds.

A digest names the contents of a submission, so that a retry is told from a conflict, also over an upgrade (RULINGS 13).

A unique job is equal to another when both have the same queue, functions and arguments, or the same queue and key; and, where their callers are
bound to labels, the same of those. The job that was accepted last counts, for as long as the new submission says, unless it failed, timed out or was
cancelled: then the work was not done.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.errors import DuplicateJobError
from tenure.jobs.door import DEFAULT_QUEUE
from tenure.jobs.model import ArchivedJob, JobSubmission, WorkflowSpec, wall
from tenure.jobs.states import JobState
from tenure.served_workflow import OnDuplicate

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


_encode = msgspec.json.Encoder(order="sorted").encode
_EMPTIED: dict[str, Any] = {
    "job_id": "",
    "submitted_by": "",
    "gate_addr": None,
    "gate_addrs": (),
    "gate_epoch": 0,
    "global_submitted_at": 0.0,
}
"""The fields that may differ where the same job is submitted again. They stand in the digest with their defaults, as in the first release."""


_LATER = ("park", "grace", "retry_of", "unique", "among", "undo_of", "retry_from")
"""The fields that came after the first release. `park` and `among` say nothing about the work; the others count where they are set."""
_COUNT_WHERE_GIVEN = ("grace", "unique")
_COUNT_WHERE_NOT_EMPTY = ("retry_of", "undo_of", "retry_from")


_OF_SPEC_ALONE = ("max_attempts", "concurrency", "arguments_at")
"""The fields of a workflow that came later. The place of large arguments says nothing about them: the marks that stand for them have their hashes."""


def digest(submission: JobSubmission) -> str:
    """Returns a name of the contents. It is equal for a retry, also through another client or a gate's successor.

    It is that of the first release wherever the submission could have been made there: what was left out counts as the default of then, and a
    field that came later counts only where it is set.
    """
    # A retry may belong to another trace, and is still the same job.
    labels = {key: value for key, value in submission.labels.items() if key != "traceparent"}
    contents = msgspec.structs.asdict(submission)
    later = {name: contents.pop(name) for name in _LATER}
    contents |= _EMPTIED
    contents["labels"] = labels
    contents["queue"] = submission.queue or DEFAULT_QUEUE
    contents["priority"] = submission.priority or 0
    contents["workflows"] = [_spec_contents(spec) for spec in submission.workflows]
    if wall(submission.timeout_seconds) == math.inf:
        contents["timeout_seconds"] = None
    contents |= {name: later[name] for name in _COUNT_WHERE_GIVEN if later[name] is not None}
    contents |= {name: later[name] for name in _COUNT_WHERE_NOT_EMPTY if later[name]}
    return hashlib.blake2b(_encode(contents), digest_size=16).hexdigest()


def _spec_contents(spec: WorkflowSpec) -> dict[str, Any]:
    contents = msgspec.structs.asdict(spec)
    for name in _OF_SPEC_ALONE:
        del contents[name]
    if spec.concurrency is not None:
        contents["concurrency"] = spec.concurrency
    most = {} if spec.max_attempts is None else {"max_attempts": spec.max_attempts}
    contents["retry"] = msgspec.structs.replace(spec.policy, **most) if most else spec.policy
    return contents


RETRY_OF = "tenure.retry_of"
"""The label that links a retry to the job that it repeats. A retry is no duplicate of it."""
_RETRIED = re.compile(r"(.*)~([1-9][0-9]{0,5})", re.DOTALL)


class UniqueJobs:
    """An index over jobs in memory and archived ones: the newest job of each name that equal jobs share."""

    def __init__(self, archive: Mapping[str, ArchivedJob]) -> None:
        self.by_name: dict[str, tuple[float, str]] = {}
        self.admit(archive)

    def admit(self, archived: Mapping[str, ArchivedJob]) -> None:
        for job_id, one in archived.items():
            self.note(one.unique, job_id, one.submitted_at)

    def note(self, name: str, job_id: str, submitted_at: float) -> None:
        # Records that are read back come in any order, so the time decides which is the newest.
        if name and self.by_name.get(name, (-1.0, "")) < (submitted_at, job_id):
            self.by_name[name] = (submitted_at, job_id)

    def drop(self, name: str, job_id: str) -> None:
        if self.newest(name) == job_id:
            del self.by_name[name]

    def newest(self, name: str) -> str:
        """Returns the newest job of this name, or nothing."""
        return self.by_name.get(name, (0.0, ""))[1]


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
