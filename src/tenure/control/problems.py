"""Turns errors into the `Problem` that the caller gets, and builds the answers to requests that do not reach their handler."""

from __future__ import annotations

from http import HTTPStatus
from math import ceil

from tenure.control.messages.wire import Problem, ProblemKind, Redirect, Reply
from tenure.errors import (
    ArgumentsError,
    ConfigurationError,
    DatacenterFullError,
    DeposedError,
    DuplicateJobError,
    EngineError,
    KeyRefusedError,
    NodeUnavailableError,
    OutOfBoundsError,
    QuotaExceededError,
    SubmissionConflictError,
    TenureError,
    UnknownJobError,
    UnknownScheduleError,
    UnknownWorkerError,
    UnknownWorkflowError,
)

_KINDS: dict[type[TenureError], ProblemKind] = {
    SubmissionConflictError: ProblemKind.CONFLICT,
    DuplicateJobError: ProblemKind.CONFLICT,
    KeyRefusedError: ProblemKind.CONFLICT,
    DatacenterFullError: ProblemKind.TOO_MANY,
    QuotaExceededError: ProblemKind.TOO_MANY,
    UnknownJobError: ProblemKind.UNKNOWN,
    UnknownScheduleError: ProblemKind.UNKNOWN,
    UnknownWorkerError: ProblemKind.UNKNOWN,
    OutOfBoundsError: ProblemKind.INVALID,
    ConfigurationError: ProblemKind.IMPOSSIBLE,
    UnknownWorkflowError: ProblemKind.IMPOSSIBLE,
    ArgumentsError: ProblemKind.IMPOSSIBLE,
    EngineError: ProblemKind.UNAVAILABLE,
    DeposedError: ProblemKind.UNAVAILABLE,
    NodeUnavailableError: ProblemKind.UNAVAILABLE,
}


def problem(error: TenureError) -> Problem:
    kind = next((kind for known, kind in _KINDS.items() if isinstance(error, known)), ProblemKind.FAILED)
    rest = (
        error.retry_after_s
        if isinstance(error, (NodeUnavailableError, DatacenterFullError, QuotaExceededError))
        else 0.0
    )
    return Problem(
        kind=kind,
        fact=error.fact,
        remedy=error.remedy,
        retryable=error.retryable,
        retry_after_s=rest,
        page=error.page,
    )


STATUS = {
    ProblemKind.INVALID: 400,
    ProblemKind.FORBIDDEN: 401,
    ProblemKind.DENIED: 403,
    ProblemKind.UNKNOWN: 404,
    ProblemKind.CONFLICT: 409,
    ProblemKind.TOO_LARGE: 413,
    ProblemKind.IMPOSSIBLE: 422,
    ProblemKind.TOO_MANY: 429,
    ProblemKind.FAILED: 500,
    ProblemKind.UNAVAILABLE: 503,
}


class Refused(Exception):
    """The refusal of a request before it reaches its handler."""

    def __init__(self, kind: ProblemKind, fact: str, remedy: str = "", *, status: int = 0, **headers: str) -> None:
        super().__init__(fact)
        self.problem = Problem(kind=kind, fact=fact, remedy=remedy)
        self.status, self.headers = status, headers


def wrong_method(method: str, what: str, allow: str) -> Refused:
    use = f"Use {allow.replace(', HEAD', '') if allow == 'GET, HEAD' else allow}"
    return Refused(ProblemKind.INVALID, f"{method[:20]} is not for {what[:200]!r}", use, status=405, Allow=allow)


def too_large(most: int) -> Refused:
    return Refused(
        ProblemKind.TOO_LARGE, "the body is too large", f"At most {most:,} bytes are read", Connection="close"
    )


def too_slow(seconds: float) -> Refused:
    fact = f"the body did not come within {seconds:g} s"
    return Refused(ProblemKind.INVALID, fact, "Send it at once", status=408, Connection="close")


def no_memory() -> Refused:
    """Refuses a body, because the bodies of all requests together are at their bound."""
    fact = "the bodies of the requests that this node is reading take all the memory that it has for them"
    return _for_now(ProblemKind.UNAVAILABLE, fact, "Ask again in a moment, or send less at once")


def not_in_time(seconds: float) -> Refused:
    """Refuses a request whose handler took too long. The actions that the handler began may still happen."""
    fact = f"there was no answer within {seconds:g} s; what was asked may have been done, or be done later"
    return _for_now(ProblemKind.UNAVAILABLE, fact, "Ask again: every request may be repeated")


def full() -> Refused:
    return _for_now(ProblemKind.TOO_MANY, "too many requests are being answered", "Ask again in a moment")


def _for_now(kind: ProblemKind, fact: str, remedy: str) -> Refused:
    return refused(Problem(kind=kind, fact=fact, remedy=remedy, retryable=True, retry_after_s=1.0))


def refused(found: Problem) -> Refused:
    """Returns a refusal that carries this problem with all of its fields."""
    error = Refused(found.kind, found.fact)
    error.problem = found
    return error


def base_headers(request_id: str) -> dict[str, str]:
    return {
        "X-Request-Id": request_id,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Server": "tenure",
    }


def head_of(reply: Reply, status: int, request_id: str, scheme: str, path: str) -> tuple[int, dict[str, str]]:
    """Returns the status and the headers of the answer that carries `reply`. With a `status` of 0, the kind of the reply decides."""
    headers = base_headers(request_id)
    headers["Content-Type"] = "application/json"
    if isinstance(reply, Problem):
        status = status or STATUS[reply.kind]
        if reply.retryable:
            headers["Retry-After"] = str(max(1, ceil(reply.retry_after_s)))
        if status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = 'Bearer realm="tenure"'
    elif isinstance(reply, Redirect):
        status = HTTPStatus.TEMPORARY_REDIRECT
        address = reply.address if "://" in reply.address else f"{scheme}{reply.address}"
        headers["Location"] = f"{address}{path}"
    return status or HTTPStatus.OK, headers
