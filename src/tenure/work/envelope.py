"""What travels between those who want work done and the slots that do it, in the mailbox's messages."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tenure import bounds as b


class WorkItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a message: one workflow of one job, to be run once."""

    workflow: str
    args: dict[str, Any] = {}
    version: str | None = None
    job_id: str = ""
    workflow_id: str = ""
    attempt: int = 0
    """The leader's attempt number; 0 where no leader counts, and the delivery count is the attempt."""
    timeout_s: float | None = None
    """Overrides the workflow's own timeout for one attempt."""
    stall_s: float | None = None
    """Overrides the workflow's own stall: the longest silence between its beats."""
    excluded: tuple[str, ...] = ()
    """Workers that had it and did not bring it home: they leave it to others while there are any."""
    trace: str = ""
    """The W3C traceparent of its submission, where somebody collects traces."""
    managed: bool = False
    """True when a leader decides on retries: then a failure is a reply, not a nack."""


class Cause(StrEnum):
    """Why an attempt did not end with a result."""

    EXCEPTION = "exception"
    UNKNOWN_WORKFLOW = "unknown_workflow"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_RESULT = "bad_result"
    STALL = "stall"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    DRAINED = "drained"
    EXITED = "exited"
    KILLED = "killed"
    MEMORY = "memory"


RETRY_IS_USELESS = frozenset({Cause.UNKNOWN_WORKFLOW, Cause.BAD_ARGUMENTS, Cause.BAD_RESULT, Cause.CANCELLED})
"""The same attempt again would end the same way."""


class WorkFailure(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt failed: a cause, a sentence, and the evidence that was taken."""

    cause: Cause
    reason: str
    evidence: dict[str, str] = {}

    @property
    def retryable(self) -> bool:
        return self.cause not in RETRY_IS_USELESS


class WorkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The reply: what became of one attempt."""

    job_id: b.JobId
    workflow_id: b.AnyName
    workflow: b.AnyName
    attempt: b.Count
    fence: tuple[b.Count, b.Count]
    worker: b.AnyNameOrNone
    result: msgspec.Raw = msgspec.Raw(b"null")
    failure: WorkFailure | None = None
    beats: b.StepCount = 0
    seconds: b.ElapsedSeconds = 0.0

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def value(self) -> Any:
        """The result as plain JSON types; None for a failure."""
        return msgspec.json.decode(self.result)
