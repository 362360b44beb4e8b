"""Holds the tokens that have quotas to them: the jobs that have not ended, the bytes of their submissions, and the rate.

It is one leader's memory. A new leader counts the live jobs of its book once, when the first such token submits to it; from then on it counts
what it accepts, and looks for jobs that ended only when a quota is used up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from tenure.clock import Clock
from tenure.control.admission import Buckets
from tenure.control.claims import Scope, subject_of
from tenure.control.messages.tokens import CallerBounds
from tenure.errors import QuotaExceededError
from tenure.jobs.arguments import stored_bytes
from tenure.jobs.model import JobSubmission

if TYPE_CHECKING:
    from tenure.nodes.job_handlers import JobHandlers

AGAIN_S = 1.0
"""The seconds after which a caller at its quota of jobs or bytes may ask again. Nobody knows when its jobs end."""
BURST_S = 10.0
"""A token that has rested may submit as many jobs at once as in so many seconds."""


class SubjectQuotas:
    """Part of a node that takes submissions."""

    def __init__(self, jobs: JobHandlers, clock: Clock) -> None:
        self._jobs, self._clock = jobs, clock
        self._epoch = -1
        self._held: dict[str, dict[str, int]] = {}
        """Maps each token's name to its jobs that have not ended as far as this node has looked, each with its bytes."""
        self._pending: set[str] = set()
        """Jobs that are being written: the book does not have them yet."""
        self._rates: dict[float, Buckets] = {}

    def take(self, submission: JobSubmission, within: Scope) -> QuotaExceededError | None:
        """Counts a submission, until `settle`. Returns the refusal where a quota of its token is used up."""
        limits = [one for one in within.bounds if one.limited]
        job_id = submission.job_id
        if not limits or self._jobs.submission_of(job_id) is not None or self._jobs.has_ended(job_id):
            return None  # asked again: the node answers how it stands
        held = self._of(subject_of(submission.submitted_by))
        size = _size_of(submission)
        for one in limits:
            if refusal := self._why_not(one, held, size) or self._too_fast(one, submission):
                return refusal
        held[job_id] = size
        self._pending.add(job_id)
        return None

    def settle(self, submission: JobSubmission, *, accepted: bool) -> None:
        """Ends a `take`: the job is in the book now, or it was refused for another reason."""
        if submission.job_id in self._pending:
            self._pending.discard(submission.job_id)
            if not accepted:
                self._of(subject_of(submission.submitted_by)).pop(submission.job_id, None)

    def _of(self, subject: str) -> dict[str, int]:
        epoch, _ = self._jobs.position
        if epoch != self._epoch:
            self._epoch = epoch
            self._held = _by_subject(self._jobs.live_submissions())
        return self._held.setdefault(subject, {})

    def _why_not(self, bounds: CallerBounds, held: dict[str, int], size: int) -> QuotaExceededError | None:
        if self._fits(bounds, held, size):
            return None
        for job_id in [one for one in held if one not in self._pending]:
            if self._jobs.submission_of(job_id) is None or self._jobs.has_ended(job_id):
                del held[job_id]
        if self._fits(bounds, held, size):
            return None
        used = f"{len(held):,} jobs with {sum(held.values()):,} bytes of this token have not ended"
        most = f"{_shown(bounds.max_jobs)} jobs and {_shown(bounds.max_bytes)} bytes"
        return QuotaExceededError(f"{used}, and it may have {most}", AGAIN_S)

    def _fits(self, bounds: CallerBounds, held: dict[str, int], size: int) -> bool:
        if bounds.max_jobs is not None and len(held) >= bounds.max_jobs:
            return False
        return bounds.max_bytes is None or sum(held.values()) + size <= bounds.max_bytes

    def _too_fast(self, bounds: CallerBounds, submission: JobSubmission) -> QuotaExceededError | None:
        rate = bounds.jobs_per_s
        if rate is None:
            return None
        buckets = self._rates.setdefault(rate, Buckets(rate, max(1.0, rate * BURST_S)))
        wait = buckets.take(subject_of(submission.submitted_by), self._clock.monotonic())
        return QuotaExceededError(f"this token may submit {rate:g} jobs a second", wait) if wait else None


def _by_subject(submissions: Iterable[JobSubmission]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one in submissions:
        found.setdefault(subject_of(one.submitted_by), {})[one.job_id] = _size_of(one)
    return found


def _size_of(submission: JobSubmission) -> int:
    """Returns the bytes of a submission, also of what the store has of it."""
    return len(msgspec.json.encode(submission)) + stored_bytes(submission.workflows)


def _shown(most: int | None) -> str:
    return "any number of" if most is None else f"{most:,}"
