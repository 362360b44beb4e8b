"""Defines the errors by which work speaks about its own attempt: whether another one can help, and what it lacks."""

from __future__ import annotations

from typing import ClassVar

from tenure.errors.base import LimitError
from tenure.errors.work import WorkError


class NoResultError(WorkError, KeyError):
    """`ctx.results` has no result of that workflow: it failed, or this one does not come after it."""

    def __init__(self, workflow: str, why: str, *, remedy: str | None = None) -> None:
        self.workflow, self.why = workflow, why
        super().__init__(f"there is no result of {workflow!r}: {why}", remedy=remedy)

    def __str__(self) -> str:
        return Exception.__str__(self)  # that of KeyError would put it in quotes


class Permanent(WorkError):
    """A workflow, a loop's function or a tool raises this to say that no further attempt can help: the work fails now."""

    def __init__(self, reason: str = "another attempt cannot help") -> None:
        self.reason = reason
        super().__init__(reason)


class RetryAfter(WorkError):
    """A workflow, a loop's function or a tool raises this to be tried again after so many seconds. It counts as an attempt."""

    MOST_S: ClassVar[float] = 30 * 86_400.0
    retryable = True

    def __init__(self, seconds: float, reason: str = "") -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= self.MOST_S:
            raise LimitError("RetryAfter", repr(seconds), "seconds, from 0 to 2,592,000 (30 days)")
        self.seconds, self.reason = float(seconds), reason
        super().__init__(f"to be tried again after {seconds:g} s" + (f": {reason}" if reason else ""))

    def __reduce__(self) -> tuple[type[RetryAfter], tuple[float, str]]:
        # Pools of processes pickle what their work raised. By its text alone this one could not be made again, and would break the pool.
        return type(self), (self.seconds, self.reason)
