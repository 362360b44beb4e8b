"""Takes results from their durable mailbox: records them with few appends, and acknowledges them after that. One bad result holds up no other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.bound_checks import check
from tenure.engines.contracts import Failure, Mailbox, Message
from tenure.errors import OutOfBoundsError, TenureError
from tenure.jobs import Decision
from tenure.jobs.attempt_results import RecordFailure, RecordResult
from tenure.jobs.budget import max_result_bytes
from tenure.jobs.states import AttemptCause
from tenure.jobs.submission import fits_a_snapshot
from tenure.nodes.loop_keeper import FailedOn
from tenure.nodes.manager.housekeeping import LARGE_RESULTS, LARGE_RESULTS_TTL_S
from tenure.nodes.manager.ledger import JobMandate
from tenure.nodes.term_leader import JobStrikes, concerns_all
from tenure.work.envelope import Cause, WorkItem, WorkResult

RESULTS_WAIT_S = 10.0
"""The seconds for which one receive waits for a result."""
Result = Message[WorkResult, WorkItem]


class ResultIntake:
    """The part of a leader that takes results. `run` is one of its loops."""

    def __init__(self, mandate: JobMandate, strikes: JobStrikes[Decision]) -> None:
        environment = mandate.environment
        self._ledger, self._strikes, self._failures = mandate.ledger, strikes, mandate.keeper.failures
        self._calls, self._now, self._say = environment.calls, mandate.now, environment.say
        self._lease_s = mandate.term_s
        """The seconds after which the engine delivers again the results that a leader took and died with. Until then no deadline counts, see `take`."""
        self._results: Mailbox[WorkResult, WorkItem] = environment.engine.mailbox(RESULTS, WorkResult, WorkItem)
        self._large = environment.engine.store(LARGE_RESULTS)
        self.drained_until = 0.0
        """The engine's time up to which every enqueued result is recorded. A deadline that passed after it must not count yet."""

    async def run(self) -> None:
        while True:
            await self.take(RESULTS_WAIT_S)

    async def drain(self) -> None:
        """Takes results until there are none. Only then may a deadline that passed meanwhile count."""
        while await self.take(0.0):
            pass

    async def take(self, wait_s: float) -> int:
        asked_at = self._now()  # before the receive: it says nothing about a result that is enqueued later
        messages = await self._calls.run(self._results.receive, 100, self._lease_s, wait_s)
        # A leased result is not recorded yet: our own other loop holds it, or the last leader, which may be dead.
        if not messages and not (await self._calls.run(self._results.depth)).leased:
            self.drained_until = asked_at
        if messages:
            recorded = await self._record(messages)
            for message in await self._calls.run(self._results.acknowledge_many, recorded):
                self._say(f"result {message.id} comes again: it was recorded, and will be known already")
        return len(messages)

    async def _record(self, messages: Sequence[Result]) -> list[Result]:
        """Records results with as few appends as they need. One that fails is tried once more alone, and then set aside.

        Returns the results to acknowledge.
        """
        made: list[tuple[Result, RecordResult | RecordFailure]] = []
        failed: list[Result] = []
        for message in messages:
            try:
                command = await self.command_for(message)
            except Exception as error:
                if concerns_all(error):
                    raise
                failed.append(message)
                continue
            if command is not None:
                made.append((message, command))
        outcomes = await self._ledger.commit_all([command for _, command in made])
        for (message, _), outcome in zip(made, outcomes, strict=True):
            if isinstance(outcome, TenureError):
                if concerns_all(outcome):
                    raise outcome
                failed.append(message)
        aside = [message for message in failed if not await self._record_alone(message)]
        return [message for message in messages if message not in aside]

    async def _record_alone(self, message: Result) -> bool:
        """Records one result. Returns False when it cannot be recorded and became a dead letter; its job fails, if the attempt still counts."""
        try:
            command = await self.command_for(message)
            if command is not None:
                await self._ledger.commit(command)
        except Exception as error:
            if concerns_all(error):
                raise
            failed = self._failures.note(FailedOn.RESULT, message.id, "recording a result", error)
            if about := attempt_of(message):
                job_id, workflow, attempt = about
                info = self._ledger.book.jobs.get(job_id)
                known = info.workflows.get(workflow) if info is not None else None
                if known is not None and known.attempt == attempt:  # nothing else would ever end this attempt
                    await self._strikes.strike(job_id, "recording its result", error)
            return await self._bury(message, failed.fact)
        return True

    async def _bury(self, message: Result, reason: str) -> bool:
        """Makes the result a dead letter. Returns True where that fails too: the caller acknowledges it then, because no deadline counts while
        a result waits."""
        try:
            await self._calls.run(message.dead_letter, reason)
        except Exception as error:
            if concerns_all(error):
                raise
            self._failures.note(FailedOn.RESULT, message.id, "setting a result aside", error)
            return True
        return False

    async def command_for(self, message: Result) -> RecordResult | RecordFailure | None:
        """Returns the command that records a result. Puts one that is too large for the journal, or for the state, into the store first: no
        reader may learn of a result that is not there yet."""
        command = command_for(message)
        most = max_result_bytes(self._ledger.book)
        if not isinstance(command, RecordResult) or (
            len(message.body.result) <= most and fits_a_snapshot(command.result)
        ):
            return command
        key = f"{command.job_id}/{command.workflow}/{command.attempt}"
        await self._calls.run(self._large.put, key, bytes(message.body.result), ttl=LARGE_RESULTS_TTL_S)
        return msgspec.structs.replace(command, result=None, result_key=key)


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
