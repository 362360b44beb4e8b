"""The messages between the senders of work and the slots that do it."""

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
    """Workers on which an earlier attempt failed. They leave the work to others while there are any."""
    trace: str = ""
    """The W3C traceparent of its submission; empty without tracing."""
    tries: int = 0
    """The attempts that the leader still allows for this message. 0 leaves the limit to the workflow."""
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
    UNSETTLED = "unsettled"  # it ended, and its outcome could not be handed over
    WORKER_DIED = "worker_died"  # its whole worker died while it ran
    BAD_MESSAGE = "bad_message"  # the message is nothing that a slot can take
    INTERNAL = "internal"  # Tenure failed on it


RETRY_IS_USELESS = frozenset(
    {Cause.UNKNOWN_WORKFLOW, Cause.BAD_ARGUMENTS, Cause.BAD_RESULT, Cause.BAD_MESSAGE, Cause.CANCELLED}
)
"""Causes after which another attempt would end in the same way."""


MAX_REASON_CHARS = 4_000
MAX_EVIDENCE_CHARS = 20_000
"""The most characters of one piece of evidence."""


class WorkFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of an attempt: a cause, a sentence, and the evidence that was taken.

    Both hold text that user code wrote. It is cut, and made writable, so that every failure can be handed over.
    """

    cause: Cause
    reason: str
    evidence: dict[str, str] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "reason", _writable(self.reason, MAX_REASON_CHARS))
        if self.evidence:
            kept = {name: _writable(text, MAX_EVIDENCE_CHARS) for name, text in self.evidence.items()}
            msgspec.structs.force_setattr(self, "evidence", kept)

    @property
    def retryable(self) -> bool:
        return self.cause not in RETRY_IS_USELESS


def _writable(text: str, most: int) -> str:
    """The text without what JSON cannot hold, and at most so long."""
    if len(text) > most:
        note = f" ... ({len(text):,} characters)"
        text = text[: most - len(note)] + note
    return text if text.isascii() else text.encode(errors="replace").decode()


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
    redelivered: b.Count = 0
    """The earlier starts of this message that ended without an outcome: they count as attempts."""

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def value(self) -> Any:
        """The result as plain JSON types; None for a failure."""
        return msgspec.json.decode(self.result)
