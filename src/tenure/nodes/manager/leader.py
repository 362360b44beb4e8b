"""The leader of a datacenter reads off its book which effects the decisions still owe, performs them, and journals that it did.

Two loops serve the jobs. One takes results from their durable mailbox, commits them, and acknowledges them after the append. The other tends
to everything that is due: dispatches, messages to revoke, deadlines, archives, snapshots. Both end when the ledger is deposed. The leader arms
deadlines only after it drained the results that waited, so that work that ended in time is completed, not timed out (DESIGN.md, rule 5).

An exception about one job fails that job alone (`job_strikes`); any other exception lets only its own step rest (`loop_keeper`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from tenure import tracing
from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Mailbox, Outgoing
from tenure.errors import DeposedError, LimitError, TenureError
from tenure.jobs import Decision, JobBook
from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.deadlines import CheckJob, next_due
from tenure.jobs.decisions import Command
from tenure.jobs.endings import ConfirmCleaned
from tenure.jobs.model import JobInfo
from tenure.jobs.outbox import Dispatch, live_messages, next_dispatch_at, to_dispatch
from tenure.jobs.timers import Timers
from tenure.nodes.fleet.member import PoolView
from tenure.nodes.fleet.settings import FleetSettings
from tenure.nodes.job_strikes import concerns_all
from tenure.nodes.loop_keeper import FailedOn, Loop, LoopKeeper
from tenure.nodes.manager.desk import WorkerDesk
from tenure.nodes.manager.dispatch_batches import batches
from tenure.nodes.manager.housekeeping import ARCHIVE, Housekeeping
from tenure.nodes.manager.ledger import Ledger
from tenure.nodes.manager.result_intake import RESULTS_LEASE_S, ResultIntake
from tenure.nodes.manager.results import RESULTS
from tenure.nodes.manager.schedules import Clockwork
from tenure.work.envelope import WorkItem, WorkResult

HANDED_BACK_S = 0.2
"""The pause of the deadline check while some result is leased and not recorded yet."""
TEND_AT_LEAST_S = 5.0
"""The longest rest between two rounds of the tending loop."""
TEND = "tend"
DISPATCHING = "dispatching it"


class LeaderPart(Protocol):
    """A part of a leader that does something more during one term, such as reporting to gates."""

    async def run(self) -> None:
        """Runs until cancelled, or returns when it has nothing to do. Raises `DeposedError` like every loop of a leader."""

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        """Takes note of a decision about these jobs. The decision is durable."""

    def close(self) -> None:
        """Lets go of everything: the term is over."""


class Leader(ResultIntake):
    """Leads with a ledger that has taken the lead. `run` returns when this leader is deposed."""

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
        keeper: LoopKeeper,
    ) -> None:
        """`keeper` runs the loops of this term, and ends with it."""
        super().__init__(
            ledger,
            engine,
            calls,
            engine_now=engine_now,
            say=say,
            results_lease_s=results_lease_s,
            keeper=keeper,
        )
        self._unordered: set[str] = set()
        """Jobs for which no order could be made at the last look. A second failure in a row fails the job."""
        self._unarmed: dict[str, Exception] = {}
        """Maps each job whose next deadline could not be computed to the exception. `_look_again` tries them once more."""
        self._engine, self._clock = engine, clock
        self.now, self.say = engine_now, say
        self._mailboxes: dict[str, Mailbox[WorkItem, WorkResult]] = {}
        self._housekeeping = Housekeeping(
            ledger, calls, engine.store(ARCHIVE), self._large, self.submit, strikes=self.strikes
        )
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
            keeper=keeper,
        )
        self.parts: list[LeaderPart] = []
        """The parts that run during this term. `Candidacy` adds them before `run`."""
        self.clockwork = Clockwork(ledger, say, keeper.failures)
        self._changed = asyncio.Event()
        self._steps: dict[str, Loop] = {
            "jobs without a deadline": self._look_again,
            "schedules": self._fire,
            "dispatch": self._dispatch,
            "revoke": self._revoke,
            "deadlines": self._check_deadlines,
            "housekeeping": self._keep_house,
            "snapshot": self._keep_snapshot,
        }
        """The steps of the tending loop, in the order in which each round takes them."""
        ledger.on_decided, ledger.on_missed = self._arm, self._missed

    async def submit(self, command: Command) -> Decision:
        """Commits a command. `_arm` does what follows from it, even when the caller no longer waits for the answer (decision 0182)."""
        return await self.ledger.commit(command)

    async def submit_all(self, commands: Sequence[Command]) -> list[Decision | TenureError]:
        """Commits many commands. Returns for each its decision, or the error that refused it."""
        return await self.ledger.commit_all(commands)

    async def run(self) -> None:
        """Leads until deposed."""
        loops = {"results": self._take_results, TEND: self._tend, "workers": self.desk.keep_watch}
        try:
            await self.keeper.keep_all({**loops, **{type(part).__name__: part.run for part in self.parts}})
        except DeposedError as error:
            self._say(f"stopped leading: {error}")

    def close(self) -> None:
        """Ends the term: releases the reports that are held, and closes the parts."""
        self.desk.close()
        for part in self.parts:
            part.close()

    def _arm(self, decision: Decision) -> None:
        """Follows up a durable decision: sets the timers of the jobs that it touched, wakes the tending loop, and passes it to every part."""
        named = (name for event in decision.events for name in getattr(event, "jobs", ()))
        names = dict.fromkeys((decision.job_id, *named))  # in their order: a simulation must not depend on hashes
        for job_id in names:
            self._arm_job(job_id)
        if not decision.events:
            return
        self._changed.set()
        self._heed(TEND, partial(self.clockwork.heard, decision))
        self._heed("workers", partial(self.desk.heard, decision))
        self._heed("workers", partial(self.desk.touched, names))
        for part in self.parts:
            self._heed(type(part).__name__, partial(part.note, decision, names))

    def _arm_job(self, job_id: str) -> None:
        if job_id in self.strikes.aside:
            return
        try:
            info = self.ledger.book.jobs.get(job_id)
            if info is None or info.state.terminal:
                self._timers.cancel(job_id)
                if info is not None:
                    self.desk.forget(info)
            else:
                self._timers.set(job_id, self._next_due(info))
        except Exception as error:
            self._unarmed[job_id] = error
            self._changed.set()

    def _heed(self, name: str, heed: Callable[[], None]) -> None:
        """Passes a decision to one part. When the part fails on it, its loop begins anew and reads off the book what it missed."""
        try:
            heed()
        except Exception as error:
            self.keeper.failures.note(FailedOn.LOOP, name, "following up a decision", error)
            self.keeper.begin_again(name)

    def _missed(self) -> None:
        """Restarts the loops that follow decisions. Some decisions became durable without `_arm`, so each loop reads the book anew."""
        for name in (TEND, *(type(part).__name__ for part in self.parts)):
            self.keeper.begin_again(name)

    def _next_due(self, info: JobInfo) -> float:
        return next_due(info, self.ledger.book.settings, self.desk.watch.last(info.id))

    # Everything that is due

    async def _tend(self) -> None:
        """Does first what the last leader, or the last failure, left undone; then whatever is due."""
        await self._drain()
        for info in list(self.ledger.book.live_jobs()):
            self._arm_job(info.id)
        self.clockwork.arm_all()
        while True:
            self._changed.clear()  # before the steps read the book: a change while they run must wake the next round
            if await self.keeper.turn(self._steps):
                # A step that our own code failed in may have left the indexes of the book half changed.
                self.ledger.rebuild_soon()
            await self._rest()

    async def _look_again(self) -> None:
        """Computes once more the deadlines that could not be computed. A job on which that fails again is failed."""
        while self._unarmed:
            job_id, _ = self._unarmed.popitem()
            self._arm_job(job_id)
            if (error := self._unarmed.pop(job_id, None)) is not None:
                await self.strikes.strike(job_id, "computing its deadline", error)

    async def _fire(self) -> None:
        await self.clockwork.tend(self._now(), self.submit)

    async def _keep_house(self) -> None:
        if await self._housekeeping.tend(self._now()):
            self._changed.set()  # more is due, and the other steps have their turn first

    async def _keep_snapshot(self) -> None:
        await self.ledger.snapshot_if_due()

    async def _rest(self) -> None:
        """Waits until something changed, or something is due."""
        due = min(self._timers.next_due(), self.clockwork.next_due(), next_dispatch_at(self.ledger.book, self._now()))
        left = self.keeper.rest_s(min(due - self._now(), TEND_AT_LEAST_S), self._steps)
        await self._clock.async_wait(self._changed, left)

    async def _dispatch(self) -> None:
        """Sends every order that is decided and not recorded as sent. A message that the engine already holds counts as sent."""
        while True:
            failed: dict[str, Exception] = {}
            # `read` waits for an append that is under way: until it returns, the book is ahead of the journal, and the leader must not
            # send an order before its decision is durable.
            orders = await self.ledger.read(partial(self._orders, failed))
            again = [job_id for job_id in failed if job_id not in self._unordered]
            for job_id, error in failed.items():
                if job_id in self._unordered:  # the second failure in a row: it will not pass by itself
                    await self.strikes.strike(job_id, DISPATCHING, error)
            self._unordered = set(again)
            if not orders and not again:
                return
            sent = [order for name, some in batches(orders) for order in await self._send_each(name, some)]
            await self.strikes.commit_all(
                [
                    RecordDispatched(by="leader", job_id=order.job_id, workflow=order.workflow, attempt=order.attempt)
                    for order in sent
                ],
                DISPATCHING,
            )

    def _orders(self, failed: dict[str, Exception], book: JobBook) -> list[Dispatch]:
        return to_dispatch(book, self._now(), limit=200, skip=self.strikes.aside, failed=failed)

    async def _send_each(self, name: str, orders: list[Dispatch]) -> list[Dispatch]:
        """Sends the orders together, or one by one where that fails. Returns the orders that were sent; the job of any other was struck."""
        try:
            await self._send(name, orders)
            return orders
        except Exception as error:
            if concerns_all(error):
                raise
        return [
            order
            for order in orders
            if await self.strikes.attempt(order.job_id, partial(self._send, name, [order]), DISPATCHING)
        ]

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
        """Returns the workers that must leave this order to others; empty when that would exclude every able worker and strand the work."""
        able = self.desk.fleet.able(order.mailbox)
        return () if able and able <= set(order.excluded) else order.excluded

    async def _revoke(self) -> None:
        """Withdraws the messages of ended jobs: no worker claims a queued one any more, and running work loses its receipt."""
        ended = await self.ledger.read(lambda book: [one for one in book.uncleaned if one not in self.strikes.aside])
        revoked = [
            job_id
            for job_id in ended
            if await self.strikes.attempt(job_id, partial(self._revoke_job, job_id), "withdrawing its messages")
        ]
        confirmed = [ConfirmCleaned(by="leader", job_id=job_id) for job_id in revoked]
        await self.strikes.commit_all(confirmed, "withdrawing its messages")

    async def _revoke_job(self, job_id: str) -> None:
        for name, key in await self.ledger.read(lambda book: live_messages(book, job_id)):
            try:
                mailbox = self._mailbox(name)
            except LimitError:
                continue  # no mailbox can have this name, so nothing was ever sent there
            await self._calls.run(mailbox.revoke, key)

    async def _check_deadlines(self) -> None:
        now = self._now()
        if self._timers.next_due() > now:
            return
        # A result that was enqueued before the deadline wins over it, so results are taken first. The timers are popped after that: when an
        # exception interrupts the drain, the deadlines stay due.
        await self._drain()
        if self.drained_until < now:
            # Some result is leased and not recorded: our other loop holds it, or the last leader did. It may have been in time.
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
        await self.strikes.commit_all(checks, "checking its deadlines")

    def _mailbox(self, name: str) -> Mailbox[WorkItem, WorkResult]:
        mailbox = self._mailboxes.get(name)
        if mailbox is None:
            mailbox = self._mailboxes[name] = self._engine.mailbox(name, WorkItem, WorkResult)
        return mailbox
