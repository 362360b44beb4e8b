"""The ledger of a datacenter: its rules, the results that enter it, and the records that leave it.

Its book is a `JobBook`, and `jobs.topics.decide` decides. `ResultIntake` takes results from their durable mailbox, records them with few appends, and acknowledges
them after that; one bad result holds up no other. `Housekeeping` lets go of old records on the leader: results past their time, jobs that ended long ago, ids that
need not be remembered any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from tenure.bound_checks import check
from tenure.control.messages.jobs import MANAGER_ELECTION
from tenure.engines.contracts import Failure, Mailbox, Message, Term
from tenure.errors import OutOfBoundsError, TenureError
from tenure.jobs import Decision, JobBook, JobSettings, decide
from tenure.jobs.attempt_results import RecordFailure, RecordResult
from tenure.jobs.attempts import UNFENCED
from tenure.jobs.budget import fits_a_snapshot, max_result_bytes, needs_measuring
from tenure.jobs.catalogue import ForgetWorkflows
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command, Evidence
from tenure.jobs.endings import ArchiveJob, ExpireResults, ForgetOld
from tenure.jobs.outbox import keep_archive, to_archive, to_expire
from tenure.jobs.paged_book import PagedRestore, cut_pages, read_root
from tenure.jobs.state_pages import is_paged, keys_of
from tenure.jobs.states import AttemptCause
from tenure.jobs.waits import RecordSuspended
from tenure.nodes.ledger import SNAPSHOT_EVERY, NodeLedger
from tenure.nodes.loop_keeper import FailedOn
from tenure.nodes.manager.stored_values import StoredValues
from tenure.nodes.state_saving import StateCut
from tenure.nodes.term_leader import JobStrikes, Mandate, concerns_all
from tenure.suspension import WaitsFor, exposed_values
from tenure.values import result_key
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.stack_text import MAX_PLACE_CHARS

JOURNAL = "jobs"
"""The name of a datacenter's journal."""
JobLedger = NodeLedger[JobBook, Decision]
JobMandate = Mandate[JobBook, Decision]


@dataclass(frozen=True, slots=True)
class DatacenterRules:
    """The rules of a datacenter's journal: its book is a `JobBook`."""

    settings: JobSettings | None = None
    snapshot_every: int = SNAPSHOT_EVERY
    journal: str = JOURNAL
    election: str = MANAGER_ELECTION

    def new_book(self) -> JobBook:
        return JobBook(self.settings)

    def restored(self, snapshot: bytes) -> JobBook:
        return JobBook.restore(snapshot, self.settings)

    def restoring(self, snapshot: bytes) -> PagedRestore | None:
        return PagedRestore(snapshot, self.settings) if is_paged(snapshot) else None

    def cut(self, book: JobBook, seq: int, epoch: int) -> StateCut:
        if (pages := book.pages) is None:
            return StateCut(seq, book.snapshot())
        cut = cut_pages(book, seq, epoch)

        def kept() -> None:
            pages.refs = cut.refs

        return StateCut(seq, cut.root, cut.blobs, frozenset(keys_of(cut.refs)), kept)

    def paged(self, book: JobBook) -> bool:
        return book.pages is not None

    def adopt(self, book: JobBook, snapshot: bytes) -> None:
        if book.pages is not None:
            root = read_root(snapshot) if is_paged(snapshot) else None
            book.pages.adopt(root.sections if root else {}, root.layout if root else 0)

    def decide(self, book: JobBook, command: Command, now: float) -> Decision:
        return decide(book, command, now)

    def take_lead(self, term: Term) -> Command:
        return TakeLead(epoch=term.epoch, leader=term.candidate, by=term.candidate)


ARCHIVE = "jobs"
"""The store that keeps the records of jobs that left the book."""
FORGET_EVERY_S = 600.0
ARCHIVING = "archiving it"
ARCHIVED_AT_ONCE = 100
"""The most jobs that one call of `tend` archives; then dispatches and deadlines have their turn."""


class Housekeeping:
    """Part of a leader. Every step is safe to repeat."""

    def __init__(self, mandate: JobMandate, strikes: JobStrikes[Decision]) -> None:
        engine = mandate.environment.engine
        self._ledger, self._strikes, self._calls = mandate.ledger, strikes, mandate.environment.calls
        self._archive, self._values = engine.store(ARCHIVE), StoredValues(engine, self._calls)
        self._forget_at = 0.0

    async def tend(self, now: float) -> bool:
        """Does what is due, up to a limit. Returns True when more may be due. Each step changes the store before the journal records it."""
        book, strikes = self._ledger.book, self._strikes
        for job_id in to_expire(book, now):
            if job_id in strikes.aside:
                book.expiring.cancel(job_id)  # it rests until another leader reads it off the book
            else:
                await strikes.attempt(job_id, partial(self._expire, job_id), "letting go of its results")
        due = to_archive(book, now, limit=ARCHIVED_AT_ONCE, skip=strikes.aside)
        stored = [
            job_id
            for job_id in due
            if await strikes.attempt(job_id, partial(self._store_record, job_id, now), ARCHIVING)
        ]
        if stored:
            await strikes.commit_all([ArchiveJob(by="leader", job_id=job_id) for job_id in stored], ARCHIVING)
        if needs_measuring(book):
            book.measure()
        if now >= self._forget_at:
            self._forget_at = now + FORGET_EVERY_S
            await self._ledger.commit(ForgetOld(by="leader"))
            await self._ledger.commit(ForgetWorkflows(by="leader"))
        return len(due) == ARCHIVED_AT_ONCE

    async def _expire(self, job_id: str) -> None:
        info = self._ledger.book.jobs.get(job_id)
        if info is not None:
            await self._values.delete_results(info)
        await self._ledger.commit(ExpireResults(by="leader", job_id=job_id))

    async def _store_record(self, job_id: str, now: float) -> None:
        book = self._ledger.book
        if (info := book.jobs.get(job_id)) is not None:
            keep_s = keep_archive(book, info)
            record = await self._values.archived(info, now, keep_s)
            await self._calls.run(self._archive.put, job_id, msgspec.json.encode(record), ttl=keep_s)


RESULTS_WAIT_S = 10.0
"""The seconds for which one receive waits for a result."""
Result = Message[WorkResult, WorkItem]


class ResultIntake:
    """The part of a leader that takes results. `run` is one of its loops."""

    def __init__(self, mandate: JobMandate, strikes: JobStrikes[Decision]) -> None:
        environment = mandate.environment
        self._ledger, self._strikes, self._failures = mandate.ledger, strikes, mandate.keeper.failures
        self._calls, self._now, self._log = environment.calls, mandate.now, environment.log
        self._lease_s = mandate.term_s
        """The seconds after which the engine delivers again the results that a leader took and died with. Until then no deadline counts, see `take`."""
        self._results: Mailbox[WorkResult, WorkItem] = environment.engine.mailbox(RESULTS, WorkResult, WorkItem)
        self._values = StoredValues(environment.engine, environment.calls)
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
                self._log.info(f"result {message.id} comes again: it was recorded, and will be known already")
        return len(messages)

    async def _record(self, messages: Sequence[Result]) -> list[Result]:
        """Records results with as few appends as they need. One that fails is tried once more alone, and then set aside.

        Returns the results to acknowledge.
        """
        made: list[tuple[Result, RecordResult | RecordFailure | RecordSuspended]] = []
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

    async def command_for(self, message: Result) -> RecordResult | RecordFailure | RecordSuspended | None:
        """Returns the command that records a result. Puts one that is too large for the journal, or for the state, into the store first: no
        reader may learn of a result that is not there yet."""
        command = command_for(message, self._withdrawn(message))
        most = max_result_bytes(self._ledger.book)
        if not isinstance(command, RecordResult) or (
            len(message.body.result) <= most and fits_a_snapshot(command.result)
        ):
            return command
        key = result_key(command.job_id, command.workflow, command.attempt)
        await self._values.keep_result(key, bytes(message.body.result))
        return msgspec.structs.replace(command, result=None, result_key=key)

    def _withdrawn(self, message: Result) -> int:
        """Returns how often the message of this work was taken back: so much is its generation above its attempt."""
        about = attempt_of(message)
        info = self._ledger.book.jobs.get(about[0]) if about is not None else None
        known = info.workflows.get(about[1]) if info is not None and about is not None else None
        return known.withdrawn if known is not None else 0


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


Recorded = RecordResult | RecordFailure | RecordSuspended


def command_for(message: Message[WorkResult, WorkItem], withdrawn: int = 0) -> Recorded | None:
    """Returns the command that records a reply; None for one that can name no work of ours: the leader drops it."""
    if message.failure is not None:
        return _dead_letter(message.failure, message.enqueued_at, withdrawn)
    reply = message.body
    try:
        check(reply)
    except OutOfBoundsError:
        return None
    if reply.suspended is not None:
        return _suspended(reply, reply.suspended, message.enqueued_at, withdrawn)
    if reply.failure is None:
        return RecordResult(
            by=reply.worker,
            job_id=reply.job_id,
            workflow=reply.workflow_id,
            attempt=reply.attempt,
            worker=reply.worker,
            delivery=_delivery(reply, withdrawn),
            result=msgspec.json.decode(reply.result),
            result_key=_stored_key(reply),
            exposed=_exposed(reply),
            enqueued_at=message.enqueued_at,
            silence=reply.silence,
        )
    return _failed(reply, reply.failure, message.enqueued_at, withdrawn)


def _failed(reply: WorkResult, failure: WorkFailure, enqueued_at: float, withdrawn: int) -> RecordFailure:
    return RecordFailure(
        by=reply.worker,
        job_id=reply.job_id,
        workflow=reply.workflow_id,
        attempt=reply.attempt,
        cause=_CAUSES.get(failure.cause, AttemptCause.ERROR),
        worker=reply.worker,
        delivery=_delivery(reply, withdrawn),
        error=f"{failure.cause}: {failure.reason}",
        retryable=failure.retryable,
        enqueued_at=enqueued_at,
        redelivered=reply.redelivered,
        mark=reply.mark,
        waits_on=failure.waits_on,
        rest_s=failure.rest_s,
        asked=failure.cause is Cause.CANCELLED,
        exposed=_exposed(reply),
        silence=reply.silence,
        evidence=_evidence(reply, failure),
    )


def _stored_key(reply: WorkResult) -> str:
    """Returns the key of a stored result. The leader makes it itself: a worker cannot name the result of another job."""
    return result_key(reply.job_id, reply.workflow_id, reply.attempt) if reply.stored else ""


def _exposed(reply: WorkResult) -> dict[str, Any]:
    """Returns the values that an attempt showed; none where they cannot be kept: a worker may be of another release, or lie."""
    shown = exposed_values(reply.exposed)
    return shown if fits_a_snapshot(shown) else {}


def _suspended(reply: WorkResult, waits: WaitsFor, enqueued_at: float, withdrawn: int) -> RecordSuspended:
    return RecordSuspended(
        by=reply.worker,
        job_id=reply.job_id,
        workflow=reply.workflow_id,
        attempt=reply.attempt,
        worker=reply.worker,
        delivery=_delivery(reply, withdrawn),
        waits=waits,
        mark=reply.mark,
        version=reply.version,
        exposed=_exposed(reply),
        enqueued_at=enqueued_at,
        silence=reply.silence,
    )


def _evidence(reply: WorkResult, failure: WorkFailure) -> Evidence:
    # The place survives the evidence in the store, so that the journal alone answers where it was.
    place = failure.evidence.get("place", "")[-MAX_PLACE_CHARS:]
    told: Evidence = {"cause": failure.cause.value, "beats": reply.beats, "seconds": round(reply.seconds, 3)}
    if place:
        told["place"] = place
    if failure.decision:
        told["decision"] = failure.decision
    return told


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
