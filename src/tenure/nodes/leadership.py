"""Campaigns for the lead, leads while the term is safe by this node's own clock, and steps down in time.

Managers and gates have the same leadership. It is given their rules (`saved_journal.NodeRules`: the journal, the election, decide and fold) and a function
that makes the leader of a term (`term_leader`). A command takes one way: `commit`, the ledger's append, the leader's `follow`, the answer.

A node acts as the leader only until `term.safe_until`. That is a boot time of this machine, counted from before the node asked for the
renewal, so an answer that comes late, or never, cannot stretch a term (DESIGN.md, "Election").
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tenure.control.messages.wire import AskLeader, LeaderView, Problem, ProblemKind, Redirect, address_of
from tenure.control.problems import problem
from tenure.engines.contracts import Election, Term
from tenure.errors import (
    DeposedError,
    EngineError,
    EngineWentBackError,
    JournalDamagedError,
    TenureError,
    TermLostError,
)
from tenure.jobs.decisions import Command
from tenure.nodes.engine_time import EngineTime, in_words
from tenure.nodes.journal_reading import BookT
from tenure.nodes.ledger import NodeLedger
from tenure.nodes.loop_keeper import FailedOn, LoopKeeper
from tenure.nodes.node_journal import DecisionT, decided
from tenure.nodes.process import Environment
from tenure.nodes.saved_journal import NodeRules
from tenure.nodes.term_leader import Mandate, TermLeader

RESIGN_S = 5.0
"""The seconds that a node which stops leading waits for the engine to take its term back.

One second was too short on a busy engine: the next leader then had to wait for the end of the term.
"""

LOOK_AGAIN_S = 10.0
"""The seconds between two attempts to read a journal that is damaged."""


LeaderT = TypeVar("LeaderT", bound=TermLeader[Any, Any])


class Leadership(Generic[BookT, DecisionT, LeaderT]):
    """Takes one node through its roles: standby, leader, standby again."""

    def __init__(
        self,
        name: str,
        environment: Environment,
        rules: NodeRules[BookT, DecisionT],
        new_leader: Callable[[Mandate[BookT, DecisionT]], LeaderT],
        *,
        keeper: LoopKeeper,
        term_s: float = 10.0,
        fit: Callable[[], bool] = lambda: True,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`keeper` restarts the loops of the node; `run` is one of them. `fit` returns True when this node should lead now. `on_change` is called
        after the book has folded more durable entries."""
        self.name, self.rules, self.term_s, self.keeper = name, rules, term_s, keeper
        self._environment, self._new_leader, self._fit, self._on_change = environment, new_leader, fit, on_change
        self._calls, self._clock, self._log = environment.calls, environment.clock, environment.log
        self.time = EngineTime(environment.engine, environment.calls, environment.clock, journal=rules.journal)
        self._told_clock = False
        self._election: Election = environment.engine.election(rules.election)
        self.failures = keeper.failures
        self.ledger = self._new_ledger()
        self.leader: LeaderT | None = None
        """The leader of the present term; None while this node does not lead."""
        self.epoch = 0
        self._above = 0
        """Epochs up to this one are taken, even where the journal shows none of them. The node campaigns for a higher one."""
        self.engine_answers = False
        """True when the engine answered the last call of this loop."""
        self.term_is_current = False
        """True while a node leads: this one, or the one that kept it from being elected."""
        self._campaign_at = 0.0
        self._told_damage = ""

    def _new_ledger(self) -> NodeLedger[BookT, DecisionT]:
        """Returns a ledger that has read nothing yet."""
        return NodeLedger(
            self.rules,
            self._environment,
            failures=self.failures,
            engine_now=self.time.now,
            on_change=self._on_change,
        )

    # Commands

    async def commit(self, command: Command) -> DecisionT:
        """Returns the decision on a command once it is durable. Raises `DeposedError` when this node does not lead, or the mistake of the caller."""
        return decided(await self.commit_all((command,)))[0]

    async def commit_all(self, commands: Sequence[Command]) -> list[DecisionT | TenureError]:
        """Commits many commands. Returns for each its decision, or the error that refused it. Raises `DeposedError` when this node does not lead."""
        if self.leader is None:
            raise DeposedError("this node does not lead")
        return await self.ledger.commit_all(commands)

    # Who leads

    @property
    def known_leader(self) -> str:
        """The name of the node that leads: of this one, or of the one that the book names, which may be deposed or dead."""
        return self.name if self.leader is not None else self.ledger.book.leader

    @property
    def known_epoch(self) -> int:
        return self.epoch if self.leader is not None else self.ledger.book.epoch

    @property
    def other_leader(self) -> str:
        """The address of the other node that leads, by the book; empty where none is known, or when this node leads.

        A book that names this node tells of a term that is over: a redirect would send the caller back to it.
        """
        address = address_of(self.known_leader)
        return "" if address == address_of(self.name) else address

    async def who_leads(self, request: AskLeader) -> LeaderView:
        name, epoch, leads = self.known_leader, self.known_epoch, self.leader is not None
        return LeaderView(leader=name, address=address_of(name), epoch=epoch, leads=leads, seq=self.ledger.seq)

    def elsewhere(self) -> Redirect | Problem:
        """Returns the reply for a request that only the leader can answer: a redirect to it, or a problem where no leader is known."""
        known = self.ledger.damage is None or self.term_is_current
        address = self.other_leader
        return Redirect(address=address, epoch=self.ledger.book.epoch) if address and known else self.nobody()

    def nobody(self) -> Problem:
        """Returns the reply for such a request where the caller cannot be sent to the leader."""
        if self.ledger.damage is not None:
            return problem(self.ledger.damage)
        if self.ledger.loading is not None:
            return Problem(
                kind=ProblemKind.UNAVAILABLE,
                fact=str(self.ledger.loading),
                remedy="Ask again in a moment, or ask another node",
                retryable=True,  # with no time: most states are read within milliseconds, and a client would wait it out
            )
        return Problem(
            kind=ProblemKind.UNAVAILABLE,
            fact="nobody leads now, as far as this node knows",
            remedy="Ask again: the next leader is elected within a term",
            retryable=True,
        )

    # Roles

    async def run(self) -> None:
        """Campaigns, leads and follows until it is cancelled, whatever is raised meanwhile.

        Cancelling resigns, so that the next leader need not wait for the end of the term.
        """
        await self.keeper.keep("candidacy", self._stand)

    async def _stand(self) -> None:
        if self.ledger.epoch:
            self._start_over()  # the exception that ended this loop came before the ledger of the last term was replaced
        while True:
            try:
                if self.ledger.damage is not None:
                    await self._look_again()
                elif not self.ledger.seq:
                    # Before it campaigns: a node that has to read everything first must not be elected in the place of one that has.
                    await self._look_at_clock()
                    await self.ledger.load()
                term = await self._campaign()
                if term is None:
                    await self.ledger.follow(self.term_s / 4)
                else:
                    await self._lead(term)
            except JournalDamagedError as error:
                self._refuse_to_lead(error)
            except EngineError as error:
                self.engine_answers = self.term_is_current = False
                if not error.retryable:
                    # `EngineWentBackError` compares the journal with what this book has seen: a new book could not notice it again.
                    if not isinstance(error, EngineWentBackError):
                        self._start_over()
                    raise
                self._log.warning(f"the engine is out of reach: {error}")
                await self._clock.async_sleep(self._environment.random.uniform(0.2, 1.0))
            except Exception:
                self._start_over()
                raise

    def _start_over(self) -> None:
        """Replaces the ledger by one that reads the journal anew: the exception may have left this book half changed."""
        self.ledger = self._new_ledger()
        self._campaign_at = 0.0

    def _refuse_to_lead(self, damage: JournalDamagedError) -> None:
        """Keeps the node running without leading: an operator has to mend the journal, and its alarm and its answers say so."""
        self.ledger.damage = damage
        self.engine_answers, self.term_is_current = True, False
        if str(damage) != self._told_damage:
            self._told_damage = str(damage)
            self._log.error(f"this node refuses to lead: {damage}")

    async def _look_again(self) -> None:
        """Reads the journal anew after `LOOK_AGAIN_S`, so that the node goes on without a restart once an operator has mended it."""
        current = await self._calls.run(self._election.current)
        self.term_is_current = current is not None and current.candidate != self.name
        await self._clock.async_sleep(LOOK_AGAIN_S)
        await self.ledger.load()
        self._told_damage = ""
        self._log.info(f"journal {self.rules.journal!r} can be read again, up to {self.ledger.seq}")

    async def _look_at_clock(self, epoch: int = 0, *, doubts_for_s: float = math.inf) -> None:
        await self.time.refresh(epoch, doubts_for_s=doubts_for_s)
        if self.time.was_set and not self._told_clock:
            self._log.warning(f"{in_words(self.time.ahead_s)}: deadlines go on by this machine's clock")
        elif self._told_clock and not self.time.was_set:
            self._log.info("the engine's clock and this node's agree again")
        self._told_clock = self.time.was_set

    async def _set_forward_since(self, at: float) -> bool:
        """Returns True when the engine's clock was set forward after this time. It looks anew: a lease that ended with it may be told of before."""
        await self._look_at_clock(self.epoch)
        return self.time.set_forward_at >= at

    async def _campaign(self) -> Term | None:
        # The standby of a busy leader folds many times a second, and must not ask the engine for the lead each time: four times a term.
        if self._clock.boottime() < self._campaign_at:
            return None
        self._campaign_at = self._clock.boottime() + self.term_s / 4
        await self._look_at_clock(doubts_for_s=2 * self.term_s if self.term_is_current else math.inf)
        if not self._fit():
            return None
        # The journal refuses appends under an epoch below its own, so a term must be above that one, even if the election lost its count.
        above = max(self._above, (await self._calls.run(self.ledger.journal.head)).epoch)
        term = await self._calls.run(self._election.campaign, self.name, self.term_s, above=above)
        self.engine_answers = self.term_is_current = True
        return term

    async def _lead(self, term: Term) -> None:
        self.epoch = term.epoch
        # The term is renewed from its first moment on: what this node has to fold before it may lead can take longer than a term.
        renewal = asyncio.create_task(self._renew(term))
        try:
            await self._look_at_clock(term.epoch)
            await self._take_lead(term, renewal)
        except DeposedError as error:
            await _end(renewal)
            self._log.warning(f"elected with epoch {term.epoch}, and overtaken: {error}")
            if self.ledger.epoch:
                self.ledger = self._new_ledger()  # it may hold its own first event, which the journal lacks
            return
        except BaseException as error:
            await _end(renewal)
            if isinstance(error, Exception):
                await self._resign(term)  # another node may be able to lead
            raise
        self._log.info(f"leads with epoch {term.epoch}")
        tasks = [renewal]
        try:
            leader = self._take_office()
            tasks.append(asyncio.create_task(leader.run()))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.ledger.step_down("the term is over")  # first: no task may commit anything while it ends
            self._let_go()
            ended = await _end(*tasks)
            # A book that led may hold events that no other node has, and an append of them may still be on its way. So it is never used again.
            self._start_over()
            await self._resign(term)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome
        await self.ledger.load()

    async def _take_lead(self, term: Term, renewal: asyncio.Task[None]) -> None:
        """Has the ledger lead. Raises `DeposedError` where the term ends before it does."""
        leading = asyncio.create_task(self.ledger.lead(term))
        try:
            await asyncio.wait((leading, renewal), return_when=asyncio.FIRST_COMPLETED)
            if not leading.done():
                self.ledger.step_down("the term is over")
                renewal.result()
                raise DeposedError("the term was over before all of the journal was read")
            leading.result()
        finally:
            await _end(leading)

    def _take_office(self) -> LeaderT:
        """Makes the leader of this term, and has it follow every decision from the next one on."""
        mandate = Mandate(
            self.ledger,
            self._environment,
            self.time.now,
            self.term_s,
            self.keeper.of_term(),
            self.time.of_engine,
            self._set_forward_since,
        )
        leader = self._new_leader(mandate)
        self.ledger.on_decided, self.ledger.on_missed = leader.follow, leader.missed
        self.ledger.orders_due = leader.orders_along
        self.leader = leader
        return leader

    def _let_go(self) -> None:
        """Closes the leader of this node; callers whose requests it held then ask another node."""
        leader, self.leader = self.leader, None
        if leader is not None:
            self._above = max(self._above, leader.overtaken)
            try:
                leader.close()
            except Exception as error:
                self.failures.note(FailedOn.LOOP, "candidacy", "ending a term", error)

    async def _renew(self, term: Term) -> None:
        """Returns when the term is lost, or no longer safe by our own clock."""
        while True:
            await self._clock.async_sleep(self.term_s / 3)
            try:
                # Even if no answer comes, this node stops when the safe time of the last known term is over.
                left = term.safe_until - self._clock.boottime()
                # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the answer.
                async with asyncio.timeout(max(0.0, left)):
                    term = await self._calls.run(self._election.renew, term)
                await self._look_at_clock(term.epoch)
                self.engine_answers = True
            except TermLostError as error:
                self._log.warning(str(error))
                return
            except TimeoutError:
                self._log.warning(f"the renewal of term {term.epoch} was not answered in time")
                return
            except EngineWentBackError:
                raise
            except EngineError as error:
                self.engine_answers = False
                self._log.warning(f"term {term.epoch} could not be renewed yet: {error}")
            except Exception as error:
                # Treated as a renewal without an answer: the term is good until its safe time is over.
                self.failures.note(FailedOn.LOOP, "renewal", "renewing a term", error)
            if self._clock.boottime() >= term.safe_until:
                self._log.warning(f"term {term.epoch} is no longer safe")
                return

    async def _resign(self, term: Term) -> None:
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the answer.
            async with asyncio.timeout(RESIGN_S):
                await self._calls.run(self._election.resign, term)
        except Exception as error:
            # Harmless: the term runs out by itself.
            self._log.warning(f"term {term.epoch} was not given back: {error}")


async def _end(*tasks: asyncio.Task[None]) -> list[BaseException | None]:
    """Cancels the tasks, waits until they have ended, and returns what they ended with."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)
