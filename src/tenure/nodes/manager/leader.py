"""The leader of a datacenter reads off its book which effects the decisions still owe, performs them, and journals that it did.

Two loops serve the jobs. One takes results from their durable mailbox, commits them, and acknowledges them after the append. The other tends
to everything that is due: dispatches, messages to revoke, deadlines, archives, snapshots. Both end when the ledger is deposed. The leader arms
deadlines only after it drained the results that waited, so that work that ended in time is completed, not timed out (DESIGN.md, rule 5).

An exception about one job fails that job alone (`term_leader`); any other exception lets only its own step rest (`loop_keeper`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial

from tenure.engines.contracts import Mailbox, Outgoing
from tenure.errors import LimitError
from tenure.jobs import Decision, JobBook
from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.decisions import Command, Event
from tenure.jobs.endings import ConfirmCleaned, FailJob
from tenure.jobs.messages import Identity
from tenure.jobs.outbox import Dispatch, live_messages, next_dispatch_at, to_dispatch
from tenure.jobs.timeout import ProgressWatch, strategy_for
from tenure.jobs.waits import WakeSleeper, to_wake
from tenure.jobs.workers import WorkerDrained
from tenure.nodes.fleet.member import FleetSettings, PoolView
from tenure.nodes.leadership import Leadership
from tenure.nodes.loop_keeper import FailedOn, Loop, concerns_all
from tenure.nodes.manager.ended_work import EndedCompensations, EndedSteps, kept_of
from tenure.nodes.manager.leader_parts import Follower, LeaderPart
from tenure.nodes.manager.ledger import RESULTS, Housekeeping, JobMandate, ResultIntake
from tenure.nodes.manager.outage_brake import OUTAGE_EVENTS
from tenure.nodes.manager.schedules import SCHEDULE_EVENTS, Clockwork
from tenure.nodes.manager.signed_results import UnsignedFollowUps, signed_results
from tenure.nodes.manager.work_messages import Withdrawals, WorkItems, batches, by_mailbox, is_small
from tenure.nodes.manager.worker_reports import WorkerReportHandlers
from tenure.nodes.node_journal import OrderedMessage
from tenure.nodes.stored_values import StoredValues
from tenure.nodes.term_leader import TEND, Struck, TermLeader
from tenure.timers import Timers
from tenure.work.delivery import WorkItem, WorkResult
from tenure.work.result_signatures import ResultKeys

HANDED_BACK_S = 0.2
"""The pause of the deadline check while some result is leased and not recorded yet."""
ARMED_AT_ONCE = 250
"""The deadlines that are computed before other tasks have their turn."""
MOST_ROUNDS = 5  # batches of orders before the other steps have their turn
ALONG_AT_MOST = 100
REVOKED_AT_LEAST = 10  # ended jobs whose messages are withdrawn in one round, whatever is due
"""The most orders that leave with one append."""
DISPATCHING = "dispatching it"


class DatacenterLeader(TermLeader[JobBook, Decision]):
    """Leads a datacenter with a ledger that has taken the lead."""

    begun = False
    """True once it has done what the last leader left undone. Until then no order leaves with an append."""
    _sending = False
    """True while `dispatch` sends orders that it read. Then none leaves with an append: orders keep their order."""

    def __init__(
        self,
        mandate: JobMandate,
        identity: Identity,
        *,
        fleet: FleetSettings | None = None,
        pool: PoolView | None = None,
        parts: Sequence[Callable[[DatacenterLeader], LeaderPart]] = (),
        result_keys: ResultKeys | None = None,
    ) -> None:
        """`parts` make the parts that run during this term, beside the leader's own loops."""
        super().__init__(mandate, _failed_job)
        self._engine, self.identity = mandate.environment.engine, identity
        self._unordered: set[str] = set()
        """Jobs for which no order could be made at the last look. A second failure in a row fails the job."""
        self._unarmed: dict[str, Exception] = {}
        """Maps each job whose next deadline could not be computed to the exception. `_look_again` tries them once more."""
        self._ended_steps = EndedSteps(self._engine, self._calls)
        self._mailboxes: dict[str, Mailbox[WorkItem, WorkResult]] = {}
        self.results = ResultIntake(mandate, self.strikes, signed_results(result_keys, mandate, self._mailbox))
        self._housekeeping = Housekeeping(mandate, self.strikes)
        self.withdrawals = Withdrawals(mandate, self.strikes, self.results, self._mailbox)
        self._unsigned = UnsignedFollowUps(mandate, self.strikes, self.results, self._mailbox)
        self._values = StoredValues(self._engine, self._calls)
        self._compensations = EndedCompensations(self.ledger, self._engine, self._calls)
        self.timers: Timers[str] = Timers()
        """When each live job is to be checked. The timeout strategies set it (`jobs.timeout`)."""
        self.worker_reports = WorkerReportHandlers(mandate, settings=fleet, pool=pool)
        self.clockwork = Clockwork(self.ledger, self.log, self.keeper.failures)
        self._steps |= {
            "jobs without a deadline": self._look_again,
            "schedules": self._fire,
            "wake": self._wake,
            "dispatch": self.dispatch,
            "withdraw": self.withdrawals.tend,
            "unsigned": self._unsigned.tend,
            "revoke": self._revoke,
            "deadlines": self.check_deadlines,
            "housekeeping": self._keep_house,
        }
        self._parts = {type(part).__name__: part for part in [make(self) for make in parts]}

    def loops(self) -> dict[str, Loop]:
        own = {"results": self.results.run, **super().loops(), "workers": self.worker_reports.keep_watch}
        return {**own, **{name: part.run for name, part in self._parts.items()}}

    def close(self) -> None:
        """Ends the term: releases the reports that are held."""
        self.worker_reports.close()

    @cached_property
    def _items(self) -> WorkItems:
        return WorkItems(self.ledger, self.worker_reports.fleet)

    # Asked for by the timeout strategies

    @property
    def book(self) -> JobBook:
        return self.ledger.book

    @property
    def progress(self) -> ProgressWatch:
        return self.worker_reports.watch

    async def commit(self, command: Command) -> Decision:
        return await self.ledger.commit(command)

    # Durable decisions

    @cached_property
    def _followers(self) -> list[tuple[str, frozenset[type[Event]] | None, Follower]]:
        """Returns the functions that take note of decisions, each with the loop that begins anew where it fails, and the events that it heeds."""
        return [
            (TEND, SCHEDULE_EVENTS, lambda decision, names: self.clockwork.heard(decision)),
            ("workers", OUTAGE_EVENTS | {WorkerDrained}, lambda decision, names: self.worker_reports.heard(decision)),
            ("workers", None, lambda decision, names: self.worker_reports.touched(names)),
            *((name, part.heeds, part.note) for name, part in self._parts.items() if part.heeds != frozenset()),
        ]

    def follow(self, decision: Decision) -> None:
        """Sets the timers of the jobs that a decision touched, wakes the tending loop, and passes the decision to every part."""
        names = {decision.job_id: None}  # in their order: a simulation must not depend on hashes
        kinds: set[type[Event]] = set()
        for event in decision.events:
            kinds.add(type(event))
            for job_id in (*getattr(event, "jobs", ()), getattr(event, "job_id", "")):
                if job_id:
                    names[job_id] = None
        for job_id in names:
            self._arm_job(job_id)
        if not decision.events:
            return
        self.wake()
        for name, heeded, follower in self._followers:
            if heeded is None or not kinds.isdisjoint(heeded):
                self._heed(name, follower, decision, names)

    def _arm_job(self, job_id: str) -> None:
        if job_id in self.strikes.aside:
            return
        try:
            info = self.ledger.book.jobs.look(job_id)
            if info is None or info.state.terminal:
                self.timers.cancel(job_id)
                if info is not None:
                    self.worker_reports.forget(info)
            else:
                strategy_for(info.job.submission, self).track(info)
        except Exception as error:
            self._unarmed[job_id] = error
            self.wake()

    def _heed(self, name: str, follower: Follower, decision: Decision, names: Iterable[str]) -> None:
        """Passes a decision to one follower. When that fails on it, its loop begins anew and reads off the book what it missed."""
        try:
            follower(decision, names)
        except Exception as error:
            self.keeper.failures.note(FailedOn.LOOP, name, "following up a decision", error)
            self.keeper.begin_again(name)

    def missed(self) -> None:
        """Restarts the loops that follow decisions. Each of them begins by reading the book anew."""
        for name in (TEND, *self._parts):
            self.keeper.begin_again(name)

    # Everything that is due

    async def _begin(self) -> None:
        await self.results.drain()
        book = self.ledger.book
        running = (job_id for held in book.on_worker.values() for job_id, _ in held)
        for number, job_id in enumerate(list(dict.fromkeys((*book.attended, *running))), 1):
            self._arm_job(job_id)
            if not number % ARMED_AT_ONCE:
                await asyncio.sleep(0)  # submissions and renewals have their turn, however many jobs there are
        self.clockwork.arm_all()
        self.begun = True

    def _due(self) -> float:
        return min(
            self.timers.next_due(),
            self.clockwork.next_due(),
            next_dispatch_at(self.ledger.book, self.now()),
            self.withdrawals.next_due(),
            self._unsigned.next_due(),
            self.ledger.book.waits.sleeping.next_due(),
        )

    async def _look_again(self) -> None:
        """Computes once more the deadlines that could not be computed. A job on which that fails again is failed."""
        while self._unarmed:
            job_id, _ = self._unarmed.popitem()
            self._arm_job(job_id)
            if (error := self._unarmed.pop(job_id, None)) is not None:
                await self.strikes.strike(job_id, "computing its deadline", error)

    async def _fire(self) -> None:
        await self.clockwork.tend(self.now())

    async def _keep_house(self) -> None:
        if await self._housekeeping.tend(self.now()):
            self.wake()  # more is due, and the other steps have their turn first

    async def dispatch(self) -> None:
        """Sends the orders that are decided and not recorded as sent. A message that the engine already holds counts as sent."""
        try:
            await self._dispatch()
        finally:
            self._sending = False

    async def _dispatch(self) -> None:
        for _ in range(MOST_ROUNDS):
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
            sent = [order for some in batches(orders) for order in await self._send_each(some)]
            await self.strikes.commit_all([_dispatched(order) for order in sent], DISPATCHING)
        self.wake()  # there may be more, and under steady load there is always more: deadlines have their turn first

    def _orders(self, failed: dict[str, Exception], book: JobBook) -> list[Dispatch]:
        orders = to_dispatch(
            book, self.now(), limit=200, slots=self.worker_reports.fleet.slots, skip=self.strikes.aside, failed=failed
        )
        # Set here and not after the read: the writer may go on before the reader does.
        self._sending = bool(orders)
        return orders

    def orders_along(self) -> list[OrderedMessage]:
        """Returns the orders that leave with the append which the ledger is about to make. The ledger calls it after it folded the events.

        The first order that cannot leave so ends the list, so that those behind it do not overtake it: one with results that may have to be
        stored first, one that is large, or one that our own code fails on. `dispatch` sends it.
        """
        along: list[OrderedMessage] = []
        if self._sending or not self.begun:
            return along
        failed: dict[str, Exception] = {}
        found = to_dispatch(
            self.ledger.book,
            self.now(),
            limit=ALONG_AT_MOST,
            slots=self.worker_reports.fleet.slots,
            skip=self.strikes.aside,
            failed=failed,
        )
        for order in found:
            if failed or order.results or not is_small(order):
                break
            try:
                message = Outgoing(self._items.of(order), key=order.key, generation=order.generation, reply_to=RESULTS)
                along.append(OrderedMessage(_dispatched(order), self._mailbox(order.mailbox), message))
            except Exception:
                break  # `dispatch` meets the same exception, and says which job it is about
        return along

    async def _send_each(self, orders: list[Dispatch]) -> list[Dispatch]:
        """Sends the orders together, or one by one where that fails. Returns the orders that were sent; the job of any other was struck."""
        try:
            await self._send(orders)
            return orders
        except Exception as error:
            if concerns_all(error):
                raise
        return [
            order
            for order in orders
            if await self.strikes.attempt(order.job_id, partial(self._send, [order]), DISPATCHING)
        ]

    async def _send(self, orders: list[Dispatch]) -> None:
        """Sends the orders in one call, however many mailboxes they are for: workers with different modules cost no more than equal ones."""
        each = [
            (self._mailbox(name), [await self._outgoing(order) for order in run]) for name, run in by_mailbox(orders)
        ]
        for order, sent in zip(orders, await self._calls.run(self._engine.send_across, each), strict=True):
            if sent.refused:
                self.log.warning(f"{order.key}, attempt {order.attempt}, was not sent again: {sent.refused}")

    async def _outgoing(self, order: Dispatch) -> Outgoing[WorkItem]:
        item = self._items.of(await self._values.fitted(order))
        return Outgoing(item, key=order.key, generation=order.generation, reply_to=RESULTS)

    async def _wake(self) -> None:
        """Wakes the sleepers whose time has come."""
        if self.ledger.book.waits.sleeping.next_due() > self.now():
            return
        due = await self.ledger.read(lambda book: to_wake(book, self.now()))
        commands = [WakeSleeper(by="leader", job_id=job_id, workflow=name) for job_id, name in due]
        await self.strikes.commit_all(commands, "waking it")

    async def _revoke(self) -> None:
        """Withdraws the messages of ended jobs: no worker claims a queued one any more, and running work loses its receipt."""
        if not self.ledger.book.uncleaned:
            return  # the book is ahead of the journal if anything, and a later end wakes the next round
        ended = await self.ledger.read(lambda book: [one for one in book.uncleaned if one not in self.strikes.aside])
        revoked: list[str] = []
        for number, job_id in enumerate(ended):
            # Each is a write of its own, so a thousand take seconds. Sleepers whose time has come do not wait for them.
            if number >= REVOKED_AT_LEAST and self.ledger.book.waits.sleeping.next_due() <= self.now():
                self.wake()
                break
            if await self.strikes.attempt(job_id, partial(self.revoke_job, job_id), "withdrawing its messages"):
                revoked.append(job_id)
        confirmed = [ConfirmCleaned(by="leader", job_id=job_id) for job_id in revoked]
        await self.strikes.commit_all(confirmed, "withdrawing its messages")

    async def revoke_job(self, job_id: str) -> None:
        for name, key in await self.ledger.read(lambda book: live_messages(book, job_id)):
            try:
                mailbox = self._mailbox(name)
            except LimitError:
                continue  # no mailbox can have this name, so nothing was ever sent there
            await self._calls.run(mailbox.revoke, key)
        await self._ended_steps.let_go(*await self.ledger.read(lambda book: kept_of(book, job_id)))
        await self._compensations.look(job_id)  # after the messages are revoked: no attempt can register any more

    async def check_deadlines(self) -> None:
        now = self.now()
        if self.timers.next_due() > now:
            return
        # A result that was enqueued before the deadline wins over it, so results are taken first. The timers are popped after that: when an
        # exception interrupts the drain, the deadlines stay due.
        await self.results.drain()
        until = min(now, self.results.drained_until)
        if self.timers.next_due() > until:
            # Some result is leased and not recorded: our other loop holds it, or the last leader did. It may have been in time.
            await self.clock.async_sleep(HANDED_BACK_S)
            return
        due = [info for job_id in self.timers.pop_due(until) if (info := self.book.jobs.get(job_id)) is not None]
        checks = [strategy_for(info.job.submission, self).check(info.id, self.results.drained_until) for info in due]
        await self.strikes.commit_all(checks, "checking its deadlines")

    def _mailbox(self, name: str) -> Mailbox[WorkItem, WorkResult]:
        mailbox = self._mailboxes.get(name)
        if mailbox is None:
            mailbox = self._mailboxes[name] = self._engine.mailbox(name, WorkItem, WorkResult)
        return mailbox


def _dispatched(order: Dispatch) -> RecordDispatched:
    return RecordDispatched(
        by="leader",
        job_id=order.job_id,
        workflow=order.workflow,
        attempt=order.attempt,
        learned_s=order.learned.seconds if order.learned is not None else None,
        threshold=order.learned.why if order.learned is not None else "",
    )


def _failed_job(struck: Struck) -> FailJob:
    return FailJob(by="leader", **struck._asdict())


JobLeadership = Leadership[JobBook, Decision, DatacenterLeader]
