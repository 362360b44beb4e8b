"""What a request gets that does not get as far as its handler, and the headers that every answer has."""

from __future__ import annotations

from tenure.nodes.messages.client import Problem, ProblemKind

STATUS = {
    ProblemKind.INVALID: 400,
    ProblemKind.FORBIDDEN: 401,
    ProblemKind.DENIED: 403,
    ProblemKind.UNKNOWN: 404,
    ProblemKind.CONFLICT: 409,
    ProblemKind.TOO_LARGE: 413,
    ProblemKind.TOO_MANY: 429,
    ProblemKind.FAILED: 500,
    ProblemKind.UNAVAILABLE: 503,
}


class Refused(Exception):
    """A request that does not get as far as its handler."""

    def __init__(self, kind: ProblemKind, fact: str, remedy: str = "", *, status: int = 0, **headers: str) -> None:
        super().__init__(fact)
        self.problem = Problem(kind=kind, fact=fact, remedy=remedy)
        self.status, self.headers = status, headers


def too_large(most: int) -> Refused:
    return Refused(
        ProblemKind.TOO_LARGE, "the body is too large", f"At most {most:,} bytes are read", Connection="close"
    )


def full() -> Refused:
    return refused(
        Problem(
            kind=ProblemKind.TOO_MANY,
            fact="too many requests are being answered",
            remedy="Ask again in a moment",
            retryable=True,
            retry_after_s=1.0,
        )
    )


def refused(found: Problem) -> Refused:
    """As the problem that was found, with all that it says."""
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
