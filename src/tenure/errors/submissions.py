"""Defines the errors of submissions that meet another job."""

from __future__ import annotations

from tenure.errors.work import JobError


class SubmissionConflictError(JobError):
    """The id or the idempotency key of a submission is taken by a different job."""

    remedy = "Send the same submission again to get the same job, or choose a new key"

    def __init__(self, field: str, value: str, job_id: str) -> None:
        """`job_id` is empty where the caller may not learn which job has it."""
        self.field, self.value, self.job_id = field, value, job_id
        other = f"job {job_id!r}, which was submitted with other contents" if job_id else "another job"
        super().__init__(f"{field} {value!r} belongs to {other}")


class DuplicateJobError(JobError):
    """An equal job was accepted lately, and the submission asked to be refused then (`on_duplicate="reject"`)."""

    remedy = "Wait for that job, or submit with on_duplicate='keep' to get it"

    def __init__(self, job_id: str, for_s: float) -> None:
        self.job_id, self.for_s = job_id, for_s
        super().__init__(f"job {job_id!r} is equal and was accepted within the last {for_s:g} s")
