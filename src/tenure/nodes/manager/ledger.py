"""The ledger of a datacenter: its rules, the results that enter it, and the records that leave it.

Its book is a `JobBook`, and `jobs.topics.decide` decides. `ResultIntake` takes results from their durable mailbox, records them with few appends, and acknowledges
them after that; one bad result holds up no other. `Housekeeping` lets go of old records on the leader: results past their time, jobs that ended long ago, ids that
need not be remembered any more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.attempt_data import result_key
from tenure.control.messages.wire import MANAGER_ELECTION
from tenure.engines.contracts import Mailbox, Message, Term
from tenure.errors import TenureError
from tenure.jobs import Decision, JobBook, JobSettings, decide
from tenure.jobs.attempt_results import RecordFailure, RecordResult
from tenure.jobs.budget import fits_a_snapshot, max_result_bytes, needs_measuring
from tenure.jobs.catalogue import ForgetWorkflows
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command
from tenure.jobs.endings import ArchiveJob, ExpireResults, ForgetOld
from tenure.jobs.outbox import keep_archive, to_archive, to_expire
from tenure.jobs.paged_book import PagedRestore, cut_pages, read_root
from tenure.jobs.state_pages import PageName, is_paged
from tenure.jobs.states import AttemptCause
from tenure.nodes.ledger import SNAPSHOT_EVERY, NodeLedger
from tenure.nodes.loop_keeper import FailedOn, concerns_all
from tenure.nodes.manager.result_commands import attempt_of, command_for
from tenure.nodes.state_saving import PagesAhead, StateCut
from tenure.nodes.stored_values import ARCHIVE, RememberedIds, StoredArguments, StoredValues, stored_keys
from tenure.nodes.term_leader import JobStrikes, Mandate
from tenure.work.delivery import WorkItem, WorkResult

if TYPE_CHECKING:
    from tenure.nodes.manager.signed_results import SignedResults

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
        return StateCut(seq, cut.root, cut.blobs, cut.named, partial(pages.wrote, cut.packed))

    def changed(self, book: JobBook) -> list[PageName]:
        return book.pages.changed() if book.pages is not None else []

    def pack(self, book: JobBook, some: Sequence[PageName], seq: int, epoch: int) -> PagesAhead:
        pages = book.pages
        assert pages is not None, "only pages are written ahead"
        packed = pages.pack(book, some, seq, epoch)
        return PagesAhead(packed.blobs, partial(pages.wrote, packed))

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


FORGET_EVERY_S = 600.0
ARCHIVING = "archiving it"
ARCHIVED_AT_ONCE = 100
"""The most jobs that one call of `tend` archives; then dispatches and deadlines have their turn."""
STORED_AT_ONCE_BYTES = 1_048_576
"""About the most bytes of records that are written in one step: others write to the engine, too."""


class Housekeeping:
    """Part of a leader. Every step is safe to repeat."""

    def __init__(self, mandate: JobMandate, strikes: JobStrikes[Decision]) -> None:
        engine = mandate.environment.engine
        self._ledger, self._strikes, self._calls = mandate.ledger, strikes, mandate.environment.calls
        self._archive, self._values = engine.store(ARCHIVE), StoredValues(engine, self._calls)
        self._arguments = StoredArguments(engine, self._calls)
        self._ids = RememberedIds(engine, self._calls)
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
        if stored := await self._stored(due, now):
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

    async def _stored(self, due: Sequence[str], now: float) -> list[str]:
        """Stores the records of these jobs, and returns those whose records are there. The engine writes all of them in one step, where it can.

        Where that fails, each is stored by itself, and only the job whose record cannot be stored is struck.
        """
        try:
            await self._store_records(due, now)
            return list(due)
        except Exception as error:
            if concerns_all(error):
                raise
        return [
            job_id
            for job_id in due
            if await self._strikes.attempt(job_id, partial(self._store_records, [job_id], now), ARCHIVING)
        ]

    async def _store_records(self, job_ids: Sequence[str], now: float) -> None:
        book = self._ledger.book
        jobs = [info for job_id in job_ids if (info := book.jobs.get(job_id)) is not None]
        await self._ids.keep_keys(jobs, book.settings.id_memory)
        records: dict[float, dict[str, bytes]] = {}
        """By the time for which they are kept."""
        size = 0
        for info in jobs:
            keep_s = keep_archive(book, info)
            record = await self._values.archived(info, now, keep_s)
            await self._arguments.keep_for(stored_keys(info.job.submission, info.id), keep_s)
            records.setdefault(keep_s, {})[info.id] = encoded = msgspec.json.encode(record)
            size += len(encoded)
            if size >= STORED_AT_ONCE_BYTES:
                await self._put_records(records)
                records, size = {}, 0
        await self._put_records(records)

    async def _put_records(self, records: Mapping[float, Mapping[str, bytes]]) -> None:
        for keep_s, some in records.items():
            await self._calls.run(self._archive.put_each, some, ttl=keep_s)


RESULTS_WAIT_S = 10.0
"""The seconds for which one receive waits for a result."""
Result = Message[WorkResult, WorkItem]


class ResultIntake:
    """The part of a leader that takes results. `run` is one of its loops."""

    def __init__(self, mandate: JobMandate, strikes: JobStrikes[Decision], signed: SignedResults | None = None) -> None:
        """`signed` checks the signatures of results; None where they have none."""
        environment = mandate.environment
        self._signed = signed
        self._ledger, self._strikes, self._failures = mandate.ledger, strikes, mandate.keeper.failures
        self._calls, self._now, self._log = environment.calls, mandate.now, environment.log
        self._of_engine, self._set_forward_since = mandate.of_engine, mandate.set_forward_since
        self._lease_s = mandate.term_s
        """The seconds after which the engine delivers again the results that a leader took and died with. Until then no deadline counts, see `take`."""
        # A signature is about bytes, so `signed` opens them.
        kind: Any = WorkResult if signed is None else msgspec.Raw
        self._results: Mailbox[WorkResult, WorkItem] = environment.engine.mailbox(RESULTS, kind, WorkItem)
        self._values = StoredValues(environment.engine, environment.calls)
        self.drained_until = 0.0
        """The engine's time up to which every enqueued result is recorded. A deadline that passed after it must not count yet."""
        self._newest = 0.0
        """When the newest result that was ever taken was enqueued. Results come in their order, so all earlier ones were taken, too."""
        self._receiving: dict[object, float] = {}
        """The calls that may have taken results which this node does not know of yet, with `_newest` when each began: theirs are newer."""
        self._held: dict[object, float] = {}
        """The results that were taken and are not recorded: for each call, when the oldest of them was enqueued."""
        self._unsure_until = self._now() + 2 * self._lease_s
        """Until then the last leader, or a call of ours that failed, may hold results. Only an empty mailbox proves that nobody does."""

    async def run(self) -> None:
        while True:
            await self.take(RESULTS_WAIT_S)

    async def drain(self) -> None:
        """Takes the results that were enqueued before this call. Only then may a deadline that passed meanwhile count.

        It ends also where results never stop coming: they come in their order, so one that was enqueued later shows that all earlier ones were
        taken (RULINGS.md, 21).
        """
        begun = self._now()
        while await self.take(0.0) and self._newest < begun:
            pass
        if begun >= self._unsure_until:
            unrecorded = (math.nextafter(at, 0.0) for at in (*self._held.values(), *self._receiving.values()))
            self.drained_until = max(self.drained_until, min([begun, *unrecorded]))

    async def take(self, wait_s: float) -> int:
        # The time before the receive: an empty mailbox says nothing about a result that is enqueued later.
        call, asked_at = object(), self._now()
        self._receiving[call] = self._newest
        try:
            messages = await self._calls.run(self._results.receive, 100, self._lease_s, wait_s, provisional=True)
            del self._receiving[call]
            # A leased result is not recorded yet: our own other loop holds it, or the last leader, which may be dead.
            if not messages and not (await self._calls.run(self._results.depth)).leased:
                self.drained_until = max(self.drained_until, asked_at)
            if messages:
                times = [self._of_engine(message.enqueued_at) for message in messages]
                self._held[call], self._newest = min(times), max(self._newest, *times)
                recorded = await self._record_opened(messages)
                lost = await self._calls.run(self._results.acknowledge_many, recorded) if recorded else ()
                for message in lost:
                    self._log.info(f"result {message.id} comes again: it was recorded, and will be known already")
        except BaseException:
            self._unsure_until = self._now() + 2 * self._lease_s  # what it took comes again when its lease ends
            raise
        finally:
            self._receiving.pop(call, None)
            self._held.pop(call, None)
        return len(messages)

    async def _record_opened(self, messages: Sequence[Result]) -> list[Result]:
        """Opens results where they are signed, and records them. Returns the results to acknowledge."""
        if self._signed is None:
            return await self._record(messages)
        try:
            unreadable = self._signed.open(messages)
            buried = [message for message, why in unreadable if not await self._bury(message, why)]
            recorded = await self._record([one for one in messages if one not in [bad for bad, _ in unreadable]])
            return [*recorded, *(bad for bad, _ in unreadable if bad not in buried)]
        finally:
            self._signed.close(messages)

    async def _record(self, messages: Sequence[Result]) -> list[Result]:
        """Records results with as few appends as they need. One that fails is tried once more alone, and then set aside.

        Returns the results that are still to be acknowledged: an engine that can did it with the append.
        """
        made: list[tuple[Result, Command]] = []
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
        outcomes, acknowledged = await self._ledger.record_all([(command, message) for message, command in made])
        done = {id(message) for message in acknowledged}
        for (message, _), outcome in zip(made, outcomes, strict=True):
            if isinstance(outcome, TenureError):
                if concerns_all(outcome):
                    raise outcome
                failed.append(message)
        aside = [message for message in failed if not await self._record_alone(message)]
        return [message for message in messages if message not in aside and id(message) not in done]

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

    async def command_for(self, message: Result) -> Command | None:
        """Returns the command that records a result. Puts one that is too large for the journal, or for the state, into the store first: no
        reader may learn of a result that is not there yet."""
        command = command_for(message, self._of_engine(message.enqueued_at), self._withdrawn(message))
        if isinstance(command, RecordFailure) and await self._lost_by_the_clock(command):
            command = msgspec.structs.replace(command, uncharged=True)
        if command is not None and self._signed is not None:
            instead = await self._signed.instead(message, command)
            if instead is not None:
                return instead
        most = max_result_bytes(self._ledger.book)
        if not isinstance(command, RecordResult) or (
            len(message.body.result) <= most and fits_a_snapshot(command.result)
        ):
            return command
        key = result_key(command.job_id, command.workflow, command.attempt)
        await self._values.keep_result(key, bytes(message.body.result))
        return msgspec.structs.replace(command, result=None, result_key=key)

    async def _lost_by_the_clock(self, failure: RecordFailure) -> bool:
        """Returns True where the attempt was delivered again because the engine's clock was set forward, and not because its worker died (0910)."""
        info = self._ledger.book.jobs.get(failure.job_id)
        workflow = info.workflows.get(failure.workflow) if info is not None else None
        if workflow is None or not failure.redelivered or failure.cause is not AttemptCause.CRASH:
            return False
        return await self._set_forward_since(workflow.dispatched_at)

    def _withdrawn(self, message: Result) -> int:
        """Returns how often the message of this work was taken back: so much is its generation above its attempt."""
        about = attempt_of(message)
        info = self._ledger.book.jobs.get(about[0]) if about is not None else None
        known = info.workflows.get(about[1]) if info is not None and about is not None else None
        return known.withdrawn if known is not None else 0


RESULTS = "tenure.results"
"""The durable mailbox into which workers put their replies. The leader acknowledges a reply after its append."""
