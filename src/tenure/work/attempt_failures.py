"""Describes how an attempt failed: from the exception that it raised, from an error of ours, or before it began."""

from __future__ import annotations

from tenure.engines.contracts import Ticket
from tenure.errors import BoardError
from tenure.work.delivery import CancelCode, Cause, WorkFailure, WorkHead, WorkItem, WorkResult
from tenure.work.stack_text import exception_evidence

_NAME_CHARS = 200
"""The longest name that `bounds.AnyName` allows."""
CAUSES = {
    CancelCode.CANCEL: Cause.CANCELLED,
    CancelCode.STALL: Cause.STALL,
    CancelCode.TIMEOUT: Cause.TIMEOUT,
    CancelCode.LEASE_LOST: Cause.LEASE_LOST,
    CancelCode.DRAIN: Cause.DRAINED,
    CancelCode.UNSETTLED: Cause.UNSETTLED,
}


class LeftError(Exception):
    """An async workflow called sys.exit, or raised KeyboardInterrupt."""

    def __init__(self, left: BaseException) -> None:
        self.left = left


def failure_of_exception(error: BaseException) -> WorkFailure:
    """Describes the exception that a workflow raised. It may be of any class, and its own `__str__` may raise."""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int | str) else type(error.code).__name__
        reason = f"the workflow called sys.exit({code!r})"
        return WorkFailure(cause=Cause.EXITED, reason=reason, evidence=exception_evidence(error))
    return WorkFailure(cause=Cause.EXCEPTION, reason=describe_error(error), evidence=exception_evidence(error))


def failure_of_tenure(error: Exception) -> WorkFailure:
    """Describes an error of Tenure itself on one message, as the failure of that message. Call it while handling the error."""
    if isinstance(error, BoardError):
        return WorkFailure(cause=Cause.BAD_MESSAGE, reason=str(error))
    reason = f"Tenure failed on it: {describe_error(error)}"
    return WorkFailure(cause=Cause.INTERNAL, reason=reason, evidence=exception_evidence(error))


def describe_error(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        return f"{name}, which cannot be written as text"


def unstarted_result(item: WorkItem | WorkHead, ticket: Ticket, worker: str, failure: WorkFailure) -> WorkResult:
    """Returns the outcome of a delivery that never became an attempt. It cuts the names to what a result may hold."""
    attempt = ticket.delivery_count - ticket.forgiven
    return WorkResult(
        job_id=item.job_id[:_NAME_CHARS],
        workflow_id=item.workflow_id[:_NAME_CHARS],
        workflow=item.workflow[:_NAME_CHARS],
        attempt=item.attempt or attempt,
        fence=(ticket.generation, ticket.delivery_count),
        worker=worker,
        failure=failure,
        redelivered=attempt - 1 if item.managed else 0,
    )
