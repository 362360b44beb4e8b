"""Translates the reply of a slot into the command that records it. Pure: one reply in, one command out."""

from __future__ import annotations

import msgspec

from tenure.bound_checks import check
from tenure.engines.contracts import Failure, Message
from tenure.errors import OutOfBoundsError
from tenure.jobs.attempt_results import RecordFailure, RecordResult
from tenure.jobs.states import AttemptCause
from tenure.work.envelope import Cause, WorkItem, WorkResult

RESULTS = "tenure.results"
"""The durable mailbox into which workers put their replies. The leader acknowledges a reply after its append."""

_CAUSES = {
    Cause.STALL: AttemptCause.STALL,
    Cause.LEASE_LOST: AttemptCause.LOST_LEASE,
    Cause.KILLED: AttemptCause.CRASH,
    Cause.EXITED: AttemptCause.CRASH,
    Cause.MEMORY: AttemptCause.CRASH,
    Cause.UNSETTLED: AttemptCause.CRASH,
    Cause.WORKER_DIED: AttemptCause.CRASH,
}


def command_for(message: Message[WorkResult, WorkItem]) -> RecordResult | RecordFailure | None:
    """Returns the command that records a reply; None for one that can name no work of ours, which the leader acknowledges and drops."""
    if message.failure is not None:
        return _dead_letter(message.failure, message.enqueued_at)
    reply = message.body
    try:
        check(reply)
    except OutOfBoundsError:
        return None
    if reply.failure is None:
        return RecordResult(
            by=reply.worker,
            job_id=reply.job_id,
            workflow=reply.workflow_id,
            attempt=reply.attempt,
            worker=reply.worker,
            delivery=reply.fence[1],
            result=msgspec.json.decode(reply.result),
            enqueued_at=message.enqueued_at,
        )
    return RecordFailure(
        by=reply.worker,
        job_id=reply.job_id,
        workflow=reply.workflow_id,
        attempt=reply.attempt,
        cause=_CAUSES.get(reply.failure.cause, AttemptCause.ERROR),
        worker=reply.worker,
        delivery=reply.fence[1],
        error=f"{reply.failure.cause}: {reply.failure.reason}",
        retryable=reply.failure.retryable,
        enqueued_at=message.enqueued_at,
        redelivered=reply.redelivered,
        evidence={"cause": reply.failure.cause.value, "beats": reply.beats, "seconds": round(reply.seconds, 3)},
    )


def attempt_of(message: Message[WorkResult, WorkItem]) -> tuple[str, str, int] | None:
    """Returns the (job, workflow, attempt) that a reply is about; None when the reply names no job."""
    if message.failure is not None:
        job_id, _, workflow = (message.failure.key or "").rpartition("/")
        return (job_id, workflow, message.failure.generation) if job_id else None
    reply = message.body
    return (reply.job_id, reply.workflow_id, reply.attempt) if reply.job_id else None


def _dead_letter(failure: Failure, enqueued_at: float) -> RecordFailure | None:
    job_id, slash, workflow = (failure.key or "").rpartition("/")
    if not slash:
        return None
    return RecordFailure(
        by="engine",
        job_id=job_id,
        workflow=workflow,
        attempt=failure.generation,
        cause=AttemptCause.DEAD_LETTER,
        error=f"{failure.cause}: {failure.reason}",
        enqueued_at=enqueued_at,
    )
