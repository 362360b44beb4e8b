"""Makes the commands that record the replies of workers, and the dead letters of the engine. Pure: `ledger.ResultIntake` commits them."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.attempt_data import WaitsFor, exposed_values, result_key
from tenure.bound_checks import check
from tenure.engines.contracts import Failure, Message
from tenure.errors import OutOfBoundsError
from tenure.jobs.attempt_results import RecordFailure, RecordResult
from tenure.jobs.attempts import UNFENCED
from tenure.jobs.budget import fits_a_snapshot
from tenure.jobs.decisions import Evidence
from tenure.jobs.states import AttemptCause, Undoes
from tenure.jobs.waits import RecordSuspended
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.stack_text import MAX_PLACE_CHARS

_CAUSES = {
    Cause.STALL: AttemptCause.STALL,
    Cause.LEASE_LOST: AttemptCause.LOST_LEASE,
    Cause.KILLED: AttemptCause.CRASH,
    Cause.EXITED: AttemptCause.CRASH,
    Cause.MEMORY: AttemptCause.CRASH,
    Cause.UNSETTLED: AttemptCause.CRASH,
    Cause.WORKER_DIED: AttemptCause.CRASH,
}


Recorded = RecordResult | RecordFailure | RecordSuspended


def command_for(message: Message[WorkResult, WorkItem], enqueued_at: float, withdrawn: int = 0) -> Recorded | None:
    """Returns the command that records a reply; None for one that can name no work of ours: the leader drops it."""
    if message.failure is not None:
        return _dead_letter(message.failure, enqueued_at, withdrawn)
    reply = message.body
    try:
        check(reply)
    except OutOfBoundsError:
        return None
    if reply.suspended is not None:
        return _suspended(reply, reply.suspended, enqueued_at, withdrawn)
    if reply.failure is None:
        result, key = msgspec.json.decode(reply.result), _stored_key(reply)
        return RecordResult(result=result, result_key=key, **_said(reply, enqueued_at, withdrawn))
    return _failed(reply, reply.failure, enqueued_at, withdrawn)


def _said(reply: WorkResult, enqueued_at: float, withdrawn: int) -> dict[str, Any]:
    """Returns the fields that every command about a reply has."""
    return {
        "by": reply.worker,
        "job_id": reply.job_id,
        "workflow": reply.workflow_id,
        "attempt": reply.attempt,
        "worker": reply.worker,
        "delivery": _delivery(reply, withdrawn),
        "exposed": _exposed(reply),
        "enqueued_at": enqueued_at,
        "silence": reply.silence,
        "undoes": _undoes(reply),
    }


def _failed(reply: WorkResult, failure: WorkFailure, enqueued_at: float, withdrawn: int) -> RecordFailure:
    return RecordFailure(
        cause=_CAUSES.get(failure.cause, AttemptCause.ERROR),
        error=f"{failure.cause}: {failure.reason}",
        retryable=failure.retryable,
        redelivered=reply.redelivered,
        mark=reply.mark,
        waits_on=failure.waits_on,
        rest_s=failure.rest_s,
        asked=failure.cause is Cause.CANCELLED,
        evidence=_evidence(reply, failure),
        **_said(reply, enqueued_at, withdrawn),
    )


def _stored_key(reply: WorkResult) -> str:
    """Returns the key of a stored result. The leader makes it itself: a worker cannot name the result of another job."""
    return result_key(reply.job_id, reply.workflow_id, reply.attempt) if reply.stored else ""


def _exposed(reply: WorkResult) -> dict[str, Any]:
    """Returns the values that an attempt showed; none where they cannot be kept: a worker may be of another release, or lie."""
    shown = exposed_values(reply.exposed)
    return shown if fits_a_snapshot(shown) else {}


def _suspended(reply: WorkResult, waits: WaitsFor, enqueued_at: float, withdrawn: int) -> RecordSuspended:
    return RecordSuspended(waits=waits, mark=reply.mark, version=reply.version, **_said(reply, enqueued_at, withdrawn))


def _undoes(reply: WorkResult) -> Undoes:
    """Returns whether the work has compensations, as far as its attempt can know. An earlier delivery that died without a word may have registered some."""
    if reply.undoes:
        return Undoes.REGISTERED
    return Undoes.NONE if reply.undoes is False and not reply.redelivered else Undoes.UNKNOWN


def _evidence(reply: WorkResult, failure: WorkFailure) -> Evidence:
    # These survive the evidence in the store, so that the journal alone answers where it was, and what its worker met last.
    place = failure.evidence.get("place", "")[-MAX_PLACE_CHARS:]
    trouble = failure.evidence.get("last_trouble", "").partition("\n")[0][:MAX_PLACE_CHARS]
    told: Evidence = {"cause": failure.cause.value, "beats": reply.beats, "seconds": round(reply.seconds, 3)}
    more = {"place": place, "trouble": trouble, "decision": failure.decision}
    return {**told, **{name: text for name, text in more.items() if text}}


def _delivery(reply: WorkResult, withdrawn: int) -> int:
    """Returns the delivery that a result is of. A fence is (generation, delivery) as the engine gave it out: any other is made up."""
    generation, delivery = reply.fence
    return delivery if generation == reply.attempt + withdrawn and delivery else UNFENCED


def attempt_of(message: Message[WorkResult, WorkItem]) -> tuple[str, str, int] | None:
    """Returns the (job, workflow, attempt) that a reply is about; None when the reply names no job."""
    if message.failure is not None:
        job_id, _, workflow = (message.failure.key or "").rpartition("/")
        return (job_id, workflow, message.failure.generation) if job_id else None
    reply = message.body
    return (reply.job_id, reply.workflow_id, reply.attempt) if reply.job_id else None


def _dead_letter(failure: Failure, enqueued_at: float, withdrawn: int) -> RecordFailure | None:
    job_id, slash, workflow = (failure.key or "").rpartition("/")
    if not slash:
        return None
    return RecordFailure(
        by="engine",
        job_id=job_id,
        workflow=workflow,
        attempt=failure.generation - withdrawn,
        cause=AttemptCause.DEAD_LETTER,
        error=f"{failure.cause}: {failure.reason}",
        enqueued_at=enqueued_at,
    )
