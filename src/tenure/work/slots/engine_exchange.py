"""The one thread in which a supervisor claims work and settles outcomes, both in one round trip.

While slots are idle it does so at once, and waits for work in the engine. Under load an outcome waits for others at most 5 ms, and they are
settled together with the next claim. A lost answer strands nothing: the same exchange, under the same id, is made again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random
from typing import NamedTuple, Protocol

import msgspec

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.contracts import NO_REPLY, Consumer, Exchanged, Settlement
from tenure.engines.contracts.engine import MAX_MESSAGES
from tenure.errors import EngineWentBackError, MailboxClosedError, TenureError
from tenure.logs import NodeLog
from tenure.randomness import IdSource
from tenure.work.isolated_errors import IsolatedErrors
from tenure.work.slots.claim_queue import ClaimedWork
from tenure.work.slots.claims import FAIR_EVERY, ServedMailboxes
from tenure.work.slots.delivery_calls import RawMessage
from tenure.work.slots.settings import SlotSettings

GROUP_S = 0.005
"""A finished outcome waits for others at most this long."""
_LOOK_S = 1.0


class Demand(NamedTuple):
    """How much work the slots want now."""

    idle: int
    """The items that would start at once."""
    ahead: int
    """The items that may be claimed beside them."""
    low: bool
    """True when the slots will soon run out of work."""


class ExchangeDesk(Protocol):
    """Defines the calls of an exchange to the supervisor's desk. All are called with the lock held: in the exchange's thread, `take_in` also in one of
    the engine's."""

    def demand(self) -> Demand: ...

    def take_in(self, messages: Sequence[RawMessage]) -> None: ...

    def settled(self, claim: ClaimedWork) -> None: ...

    def refused(self, claim: ClaimedWork, reply: bytes, error: TenureError) -> None: ...

    def engine_lost(self, error: EngineWentBackError) -> None: ...


class FinishedClaim(NamedTuple):
    """A finished claim, and the reply to its sender; None where nobody waits for one."""

    claim: ClaimedWork
    reply: msgspec.Raw | None


class ExchangePlan(NamedTuple):
    """One exchange with the engine."""

    outcomes: list[FinishedClaim]
    most: int
    wait_s: float
    fair: bool
    claim_id: str
    ranks: list[list[str]]
    """The mailboxes to claim from."""


class ExchangeStep(NamedTuple):
    """Says how the thread goes on after an exchange."""

    again: ExchangePlan | None
    """The exchange to make again: its answer was lost."""
    goes_on: bool
    failed: bool = False


class EngineExchange:
    """Call `start` once. Every other method is called with the lock held; `lock` is the desk's."""

    def __init__(
        self,
        desk: ExchangeDesk,
        consumer: Consumer[msgspec.Raw, msgspec.Raw],
        mailboxes: ServedMailboxes,
        settings: SlotSettings,
        lock: threading.Condition,
        *,
        clock: Clock,
        random: Random,
        ids: IdSource,
        log: NodeLog,
        errors: IsolatedErrors,
    ) -> None:
        self._desk, self._consumer, self._mailboxes, self._settings = desk, consumer, mailboxes, settings
        consumer.take_at_once(self._take_at_once)
        self._lock, self._clock, self._ids, self._log, self._errors = lock, clock, ids, log, errors
        self._outcomes: list[FinishedClaim] = []
        self._since = 0.0
        """When the first of them came."""
        self._owed_fair = 0.0
        """Jobs that are to be claimed from the lowest rank first: one for every seven others."""
        self._dry = False
        """True when the last claim found less than it asked for: then more is claimed ahead only along with outcomes."""
        self._covered: list[list[str]] = []
        self._polling = self._ended = False
        self._looks_at = 0.0
        """When the thread looks by itself, while it waits for something to exchange."""
        self._away = Backoff(random, first_s=0.1, most_s=5.0)
        """The pauses while the engine does not answer."""
        self._thread = threading.Thread(target=self._run, name="tenure-exchange", daemon=True)

    def start(self) -> None:
        if not self._thread.is_alive() and not self._ended:
            self._thread.start()

    def settle(self, claim: ClaimedWork, result: bytes) -> None:
        """Settles an outcome with the next exchange."""
        if not self._outcomes:
            self._since = self._clock.monotonic()
        self._outcomes.append(
            FinishedClaim(claim, None if claim.held.message.reply_to is None else msgspec.Raw(result))
        )

    def look_again(self, *, other_demand: bool = False) -> None:
        """Wakes the thread where it has something to do sooner than it thinks: most outcomes only join a group that waits for its time.

        A poll that is under way ends only for outcomes to settle, or when the slots want something else.
        """
        if self._polling and (self._outcomes or other_demand):
            self._consumer.wake()
        now = self._clock.monotonic()
        if other_demand or now + self._due_in(now) < self._looks_at:
            self._lock.notify()

    def drop(self) -> None:
        self._outcomes.clear()

    def end(self) -> None:
        """Has the thread settle what there is, and end. Join it without the lock."""
        self._ended = True
        self._consumer.wake()
        self._lock.notify()

    def join(self, seconds: float) -> None:
        if self._thread.is_alive():
            self._thread.join(seconds)
        self._consumer.close()

    # The thread.

    def _run(self) -> None:
        plan, going = None, True
        while going:
            step = ExchangeStep(None, goes_on=True, failed=True)
            with self._errors.isolate("exchanging with the engine"):
                step = self._step(plan)
            plan, going = step.again, step.goes_on
            if step.failed:  # an error of ours, which was logged: what it concerned is left to its leases
                self._clock.sleep(1.0)

    def _step(self, plan: ExchangePlan | None) -> ExchangeStep:
        """Makes one exchange, or makes one again to which the engine did not answer."""
        plan = plan or self._next_plan()
        if plan is None:
            return ExchangeStep(None, goes_on=False)
        exchanged = self.exchange(plan)
        if exchanged is not None:
            self.take_in(plan, exchanged)
            return ExchangeStep(None, goes_on=True)
        plan = plan._replace(outcomes=self._still_held(plan.outcomes), wait_s=0.0)
        return ExchangeStep(plan, goes_on=not self._ended or bool(plan.outcomes))

    def _next_plan(self) -> ExchangePlan | None:
        """Waits until there is something to exchange. Returns None when the thread shall end."""
        with self._lock:
            while True:
                now = self._clock.monotonic()
                self._mailboxes.resume(now)
                wait_s = self._due_in(now)
                if wait_s <= 0:
                    return self._plan(now)
                if self._ended and not self._outcomes:
                    return None
                self._looks_at = now + min(_LOOK_S, wait_s)
                self._clock.wait(self._lock, min(_LOOK_S, wait_s))
                self._looks_at = 0.0  # it does not wait: who wakes it says nothing new

    def _due_in(self, now: float) -> float:
        """Returns the seconds until the next exchange is due."""
        demand = self._desk.demand()
        if not self._ended and self._mailboxes.ranks and (demand.idle or (demand.low and not self._dry)):
            return 0.0
        group_in = self._since + GROUP_S - now if self._outcomes else _LOOK_S
        return 0.0 if self._ended and self._outcomes else min(group_in, self._mailboxes.resumes_at - now)

    def _plan(self, now: float) -> ExchangePlan:
        idle, ahead, _ = self._desk.demand()
        most = min(MAX_MESSAGES, idle + ahead) if self._mailboxes.ranks and not self._ended else 0
        fair = self._mailboxes.several_ranks and self._owed_fair >= 1
        if fair:
            most = min(most, int(self._owed_fair))
        outcomes, self._outcomes = self._outcomes[:MAX_MESSAGES], self._outcomes[MAX_MESSAGES:]
        self._polling = bool(most and idle) and not fair
        wait_s = min(self._settings.wait_s, max(0.0, self._mailboxes.resumes_at - now)) if self._polling else 0.0
        return ExchangePlan(outcomes, most, wait_s, fair, self._ids(), self._mailboxes.ranks)

    def exchange(self, plan: ExchangePlan) -> Exchanged[msgspec.Raw, msgspec.Raw] | None:
        """Returns None when the engine did not answer."""
        settlements = [
            Settlement(claim.held.message, NO_REPLY if reply is None else reply) for claim, reply in plan.outcomes
        ]
        try:
            if plan.most and plan.ranks != self._covered:
                self._consumer.cover(plan.ranks)
                self._covered = plan.ranks
            return self._consumer.exchange(
                settlements,
                max_messages=plan.most,
                visibility_timeout=self._settings.claim_s,
                wait_time_seconds=plan.wait_s,
                provisional=True,
                claim_id=plan.claim_id,
                fair=plan.fair,
            )
        except EngineWentBackError as error:
            with self._lock:
                self._ended = True
                self._desk.engine_lost(error)
        except MailboxClosedError:
            self._ended = True
        except TenureError as error:
            self._log.warning(f"cannot claim or settle work: {error}")
            with self._lock:
                self._polling = False
                if not self._ended:
                    self._clock.wait(self._lock, self._away.next())
        finally:
            self._polling = False
        return None

    def _take_at_once(self, message: RawMessage) -> None:
        """Takes in a message that came while the exchange waits. Called by the engine's thread that heard of it: a thread's wake-up sooner."""
        with self._errors.isolate("taking work in"), self._lock:
            self._owe_fair(1)
            self._desk.take_in([message])

    def _owe_fair(self, count: int) -> None:
        self._owed_fair = min(self._owed_fair + count / (FAIR_EVERY - 1), MAX_MESSAGES)

    def _still_held(self, outcomes: list[FinishedClaim]) -> list[FinishedClaim]:
        """Drops the outcomes whose leases are over by our own clock: the engine may have given the work to others."""
        now, held = self._clock.boottime(), []
        for one in outcomes:
            if one.claim.held.message.lease_until > now:
                held.append(one)
                continue
            self._log.warning(f"{one.claim.held.head.workflow} could not be settled until its lease ran out")
            with self._lock:
                self._desk.settled(one.claim)
        return held

    def take_in(self, plan: ExchangePlan, exchanged: Exchanged[msgspec.Raw, msgspec.Raw]) -> None:
        self._away.reset()
        for message in exchanged.lost:
            self._log.warning(f"the outcome of message {message.id} was refused: its lease was lost")
        refused = {id(message): error for message, error in exchanged.refused}
        with self._lock:
            for claim, reply in plan.outcomes:
                error = refused.get(id(claim.held.message))
                if error is None:
                    self._desk.settled(claim)
                else:
                    self._desk.refused(claim, bytes(reply or b"null"), error)
            if plan.most:
                count = len(exchanged.messages)
                self._dry = count < plan.most and not plan.fair
                if plan.fair:
                    self._owed_fair = 0.0
                else:
                    self._owe_fair(count)
            self._desk.take_in(exchanged.messages)
