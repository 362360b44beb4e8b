"""Turns an error into the `Problem` that the caller gets."""

from __future__ import annotations

from tenure.control.messages.jobs import Problem, ProblemKind
from tenure.errors import (
    ConfigurationError,
    DatacenterFullError,
    DeposedError,
    EngineError,
    KeyRefusedError,
    NodeUnavailableError,
    OutOfBoundsError,
    SubmissionConflictError,
    TenureError,
    UnknownJobError,
    UnknownScheduleError,
    UnknownWorkerError,
)

_KINDS: dict[type[TenureError], ProblemKind] = {
    SubmissionConflictError: ProblemKind.CONFLICT,
    KeyRefusedError: ProblemKind.CONFLICT,
    DatacenterFullError: ProblemKind.TOO_MANY,
    UnknownJobError: ProblemKind.UNKNOWN,
    UnknownScheduleError: ProblemKind.UNKNOWN,
    UnknownWorkerError: ProblemKind.UNKNOWN,
    OutOfBoundsError: ProblemKind.INVALID,
    ConfigurationError: ProblemKind.IMPOSSIBLE,
    EngineError: ProblemKind.UNAVAILABLE,
    DeposedError: ProblemKind.UNAVAILABLE,
    NodeUnavailableError: ProblemKind.UNAVAILABLE,
}


def problem(error: TenureError) -> Problem:
    kind = next((kind for known, kind in _KINDS.items() if isinstance(error, known)), ProblemKind.FAILED)
    rest = error.retry_after_s if isinstance(error, (NodeUnavailableError, DatacenterFullError)) else 0.0
    return Problem(kind=kind, fact=error.fact, remedy=error.remedy, retryable=error.retryable, retry_after_s=rest)
