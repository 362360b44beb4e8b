"""What a leader does: reads off its book what is owed to the world, does it, and writes down that it did.

Two loops. One takes results from their durable mailbox, commits them, and acknowledges after the append. The other tends to everything
that is due: dispatches, messages to revoke, deadlines, archives, snapshots. Both end when the ledger is deposed. Deadlines are armed only
after the results that waited were drained, so that work that ended in time is completed, not timed out (DESIGN.md, rule 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

import msgspec

from tenure import tracing
from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Mailbox, Message, Outgoing
from tenure.errors import DeposedError, EngineError, TenureError
from tenure.jobs import (
    CheckJob,
    ConfirmCleaned,
    Decision,
    RecordDispatched,
    RecordFailure,
    RecordResult,
    next_due,
)
from tenure.jobs.budget import max_result_bytes
from tenure.jobs.commands import Command
from tenure.jobs.model import JobInfo
from tenure.jobs.outbox import Dispatch, next_dispatch_at, to_dispatch, to_revoke
from tenure.jobs.submission import fits_a_snapshot
from tenure.jobs.timers import Timers
from tenure.nodes.fleet.settings import FleetSettings
from tenure.nodes.journaled import decided
from tenure.nodes.manager.desk import WorkerDesk
from tenure.nodes.manager.housekeeping import ARCHIVE, LARGE_RESULTS, LARGE_RESULTS_TTL_S, Housekeeping
from tenure.nodes.manager.ledger import Ledger
from tenure.nodes.manager.pool_view import PoolView
from tenure.nodes.manager.results import RESULTS, command_for
from tenure.nodes.manager.schedules import Clockwork
from tenure.work.envelope import WorkItem, WorkResult

RESULTS_LEASE_S = 10.0
"""What a leader took and died with comes back after this: a term, by default. Until then no deadline counts, see `_take`."""
RESULTS_WAIT_S = 10.0
HANDED_BACK_S = 0.2
TEND_AT_LEAST_S = 5.0
MOST_BYTES_AT_ONCE = 262_144
_encode = msgspec.json.Encoder().encode


class LeaderPart(Protocol):
    """Something more that a leader does during its term."""

    async def run(self) -> None:
        """Until cancelled. Raises `DeposedError` like everything that leads."""

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        """This was decided, and is durable; it is about these jobs."""

    def close(self) -> None:
        """The term is over."""


class Leader:
    """Leads with a ledger that has taken the lead. `run` returns when it is deposed."""

    def __init__(
        self,
        ledger: Ledger,
        engine: Engine,
        calls: Calls,
        *,
        clock: Clock,
        engine_now: Callable[[], float],
        say: Callable[[str], None],
        results_lease_s: float = RESULTS_LEASE_S,
        fleet: FleetSettings | None = None,
        pool: PoolView | None = None,
    ) -> None:
        self.ledger, self._engine, self._calls = ledger, engine, calls
        self._results_lease_s = results_lease_s
        self._clock, self._now, self._say = clock, engine_now, say
        self.now, self.say = engine_now, say
        self._results: Mailbox[WorkResult, WorkItem] = engine.mailbox(RESULTS, WorkResult, WorkItem)
        self._mailboxes: dict[str, Mailbox[WorkItem, WorkResult]] = {}
        self._large = engine.store(LARGE_RESULTS)
        self._housekeeping = Housekeeping(ledger, calls, engine.store(ARCHIVE), self._large, self.submit)
        self._timers: Timers[str] = Timers()
        self.desk = WorkerDesk(
            ledger,
            self.submit_all,
            epoch=ledger.epoch,
            clock=clock,
            engine_now=engine_now,
            settings=fleet,
            pool=pool,
            say=say,
        )
        self.parts: list[LeaderPart] = []
        """Set before `run`."""
        self.clockwork = Clockwork(ledger, say)
        self._changed = asyncio.Event()
        self.drained_until = 0.0
        ledger.on_decided = self._arm

    async def submit(self, command: Command) -> Decision:
        """Commit a command; what follows from it is done whether or not anybody still waits for the answer."""
        return await self.ledger.commit(command)

    async def submit_all(self, commands: Sequence[Command]) -> list[Decision | TenureError]:
        """Many at once; for each what was decided, or why it was not."""
        return await self.ledger.commit_all(commands)

    async def run(self) -> None:
        """Drain the results that waited, arm the timers, then lead until deposed."""
        try:
            await self._drain()
            for info in self.ledger.book.live_jobs():
                self._timers.set(info.id, self._next_due(info))
            loops = [self._take_results(), self._tend(), self.desk.keep_watch(), *(part.run() for part in self.parts)]
            tasks = [asyncio.create_task(loop) for loop in loops]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception) and not isinstance(error, DeposedError):
                    raise error
        except DeposedError as error:
            self._say(f"stopped leading: {error}")

    def close(self) -> None:
        """The term is over."""
        self.desk.close()
        for part in self.parts:
            part.close()

    def _arm(self, decision: Decision) -> None:
        """Whatever a decision touched may have another deadline now."""
        book = self.ledger.book
        named = (name for event in decision.events for name in getattr(event, "jobs", ()))
        names = dict.fromkeys((decision.job_id, *named))  # in order: a simulation must not depend on hashes
        for job_id in names:
            info = book.jobs.get(job_id)
            if info is None or info.state.terminal:
                self._timers.cancel(job_id)
                if info is not None:
                    self.desk.forget(info)
            else:
                self._timers.set(job_id, self._next_due(info))
        if decision.events:
            self._changed.set()
            self.clockwork.heard(decision)
            self.desk.heard(decision)
            self.desk.touched(names)
            for part in self.parts:
                part.note(decision, names)

    def _next_due(self, info: JobInfo) -> float:
        return next_due(info, self.ledger.book.settings, self.desk.watch.last(info.id))

    # Results

    async def _take_results(self) -> None:
        while True:
            try:
                await self._take(RESULTS_WAIT_S)
            except EngineError as error:
                if not error.retryable:
                    raise
                self._say(f"cannot take results: {error}")
                await self._clock.async_sleep(1.0)

    async def _drain(self) -> None:
        """Take results until there are none: only then may a deadline that passed meanwhile count."""
        while await self._take(0.0):
            pass

    async def _take(self, wait_s: float) -> int:
        asked_at = self._now()
        messages = await self._calls.run(self._results.receive, 100, self._results_lease_s, wait_s)
        # One that somebody holds is not recorded yet: our own other loop, or the last leader, which may be dead.
        if not messages and not (await self._calls.run(self._results.depth)).leased:
            self.drained_until = asked_at
        commands = [await self._command_for(message) for message in messages]
        for outcome in await self.submit_all([command for command in commands if command is not None]):
            if isinstance(outcome, DeposedError):
                raise outcome
            if isinstance(outcome, TenureError):
                self._say(f"a result was not recorded: {outcome}")
        if messages:
            for message in await self._calls.run(self._results.acknowledge_many, messages):
                self._say(f"result {message.id} comes again: it was recorded, and will be known already")
        return len(messages)

    async def _command_for(self, message: Message[WorkResult, WorkItem]) -> RecordResult | RecordFailure | None:
        """A result that is too large for the journal, or for the state, is kept in the store, before anybody is told of it."""
        command = command_for(message)
        most = max_result_bytes(self.ledger.book)
        if not isinstance(command, RecordResult) or (
            len(message.body.result) <= most and fits_a_snapshot(command.result)
        ):
            return command
        key = f"{command.job_id}/{command.workflow}/{command.attempt}"
        await self._calls.run(self._large.put, key, bytes(message.body.result), ttl=LARGE_RESULTS_TTL_S)
        return msgspec.structs.replace(command, result=None, result_key=key)

    # Everything that is due

    async def _tend(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self.clockwork.tend(self._now(), self.submit)
                await self._dispatch()
                await self._revoke()
                await self._check_deadlines()
                more = await self._housekeeping.tend(self._now())
            except EngineError as error:
                if not error.retryable:
                    raise
                self._say(f"what is due has to wait: {error}")
                await self._clock.async_sleep(1.0)
                continue
            if not more:
                await self._rest()

    async def _rest(self) -> None:
        """Until something changed, or something is due."""
        due = min(self._timers.next_due(), self.clockwork.next_due(), next_dispatch_at(self.ledger.book, self._now()))
        left = min(max(0.0, due - self._now()), TEND_AT_LEAST_S)
        await self._clock.async_wait(self._changed, left)

    async def _dispatch(self) -> None:
        """Send what is decided and not recorded as sent; a message that the engine has already is as good as sent."""
        # Read, not looked up: the book is ahead of the journal while an append is under way, and nothing is sent before its decision is durable.
        while orders := await self.ledger.read(lambda book: to_dispatch(book, self._now(), limit=200)):
            for name, some in batches(orders):
                await self._send(name, some)
            sent = [
                RecordDispatched(by="leader", job_id=order.job_id, workflow=order.workflow, attempt=order.attempt)
                for order in orders
            ]
            decided(await self.submit_all(sent))

    async def _send(self, name: str, orders: list[Dispatch]) -> None:
        batch = [
            Outgoing(self._item(order), key=order.key, generation=order.generation, reply_to=RESULTS)
            for order in orders
        ]
        for order, sent in zip(orders, await self._calls.run(self._mailbox(name).send_many, batch), strict=True):
            if sent.refused:
                self._say(f"{order.key}, attempt {order.attempt}, was not sent again: {sent.refused}")

    def _item(self, order: Dispatch) -> WorkItem:
        return WorkItem(
            workflow=order.function,
            version=order.version or None,
            args=order.arguments,
            job_id=order.job_id,
            workflow_id=order.workflow,
            attempt=order.attempt,
            stall_s=order.stall,
            tries=order.tries,
            excluded=self._excluded(order),
            managed=True,
            trace=self._trace(order.job_id),
        )

    def _trace(self, job_id: str) -> str:
        info = self.ledger.book.jobs.get(job_id)
        return info.job.submission.labels.get(tracing.LABEL, "") if info is not None else ""

    def _excluded(self, order: Dispatch) -> tuple[str, ...]:
        """Who shall leave it to others; nobody, where there are none: work must not be stranded."""
        able = self.desk.fleet.able(order.mailbox)
        return () if able and able <= set(order.excluded) else order.excluded

    async def _revoke(self) -> None:
        """Messages of ended jobs: queued ones are never claimed, and running work loses its receipt."""
        ended = await self.ledger.read(lambda book: list(to_revoke(book)))
        for _, keys in ended:
            for name, key in keys:
                await self._calls.run(self._mailbox(name).revoke, key)
        decided(await self.submit_all([ConfirmCleaned(by="leader", job_id=job_id) for job_id, _ in ended]))

    async def _check_deadlines(self) -> None:
        now = self._now()
        if self._timers.next_due() > now:
            return
        # A result that was enqueued before the deadline wins over it. Taken first: what a failure interrupts stays due.
        await self._drain()
        if self.drained_until < now:
            await self._clock.async_sleep(HANDED_BACK_S)
            return
        due = [job_id for job_id in self._timers.pop_due(now) if job_id in self.ledger.book.jobs]
        checks = [
            CheckJob(
                by="leader",
                job_id=job_id,
                drained_until=self.drained_until,
                progress_at=self.desk.watch.last(job_id),
            )
            for job_id in due
        ]
        decided(await self.submit_all(checks))

    def _mailbox(self, name: str) -> Mailbox[WorkItem, WorkResult]:
        mailbox = self._mailboxes.get(name)
        if mailbox is None:
            mailbox = self._mailboxes[name] = self._engine.mailbox(name, WorkItem, WorkResult)
        return mailbox


def batches(orders: Iterable[Dispatch]) -> Iterator[tuple[str, list[Dispatch]]]:
    """Orders for one mailbox together, in their order; none much larger than an engine takes in one step."""
    for name, group in groupby(orders, key=lambda order: order.mailbox):
        batch: list[Dispatch] = []
        size = 0
        for order in group:
            size += len(_encode(order.arguments))
            if batch and size > MOST_BYTES_AT_ONCE:
                yield name, batch
                batch, size = [], 0
            batch.append(order)
        yield name, batch
