"""How a handle waits in the log: it leaves a claim there, which gives it what is there or what comes. For a mailbox, and for a consumer of many."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.engines.long_poll import HandlePolls
from tenure.engines.nats import commands as c
from tenure.engines.nats.ledger_records import Handed
from tenure.engines.nats.pending_commands import Claimed, LogPoll
from tenure.errors import EngineClosedError, MailboxClosedError

if TYPE_CHECKING:
    from tenure.engines.nats.engine import NatsEngine


LINGER_S = 0.008
"""A consumer that was given work a moment ago leaves its next claim this much later: most work ends sooner, and what settles it claims as well."""
RECENT_S = 0.1


class NatsPolls:
    """The long polls of one handle. `box` is where its claims stand; those of a consumer are in no mailbox."""

    def __init__(self, engine: NatsEngine, box: str, what: str) -> None:
        self.engine, self._box, self._what = engine, box, what
        self.handle: HandlePolls[LogPoll] = HandlePolls()
        """Called on the loop; only `closed` is also set and read by other threads."""
        engine.enlist(self)

    @abstractmethod
    def watched(self) -> tuple[str, ...]:
        """Returns the mailboxes that it waits for now."""

    async def refused(self) -> None:
        """The log did not do what a claim asks for: makes sure that it will."""

    async def stand(
        self,
        answer: Callable[[Claimed], None],
        command: Callable[[str, float], c.AnyCommand],
        lease: float,
        end: float,
        noted: Callable[[Any], None] = lambda told: None,
        lingers: bool = False,
        rides: bool = False,
    ) -> Claimed | None:
        """On the loop. Leaves a claim in the log: it gives what is there, or what comes, to us. What comes later goes straight to `answer`.

        `command` makes it, from its receipt and the seconds that it stands. `noted` gets the fold's answer to each. One that `lingers` leaves its
        claim only when nothing ended the poll for a moment. One that `rides` leaves it with the next command of this process, unless something is there before.
        """
        poll, log = LogPoll(), self.engine.log
        self.handle.begin(poll)
        try:
            if lingers and await self._linger(poll):
                return None
            while True:
                asked, receipt = self._begin_claim(poll)
                try:
                    stands_s = max(0.001, end - self.engine.clock.monotonic())
                    told, rides = await self._leave(command(receipt, stands_s), rides=rides), False
                    if not await self._is_done(told, noted):
                        continue
                    if told.deliveries:
                        return Claimed(receipt, asked + lease, told.deliveries, {})
                    if (handed := poll.accept()) is not None:  # between the fold's answer and this line
                        return log.standing.accept(handed, asked, told.at)
                    poll.take = _taker(self.engine, answer, asked, told.at)
                    if await self._wait(poll, end, receipt):
                        return None
                finally:
                    self._stood(poll, receipt)
        except EngineClosedError:
            return None  # closed while we waited: the wait ends, as with any close
        finally:
            self.handle.end(poll)
            log.waiters.leave(poll)

    def _begin_claim(self, poll: LogPoll) -> tuple[float, str]:
        """Returns the time from which the lease of a new claim counts, and its receipt."""
        asked, receipt = self.engine.clock.boottime(), self.engine.log.new_id()
        poll.doubtful, poll.take = False, None
        self.engine.log.standing.begin(receipt, self._box, poll)
        return asked, receipt

    async def _leave(self, claim: c.AnyCommand, *, rides: bool) -> Any:
        """Returns the fold's answer to a claim. One that rides waits for the next command, unless there may be something for it by now."""
        log = self.engine.log
        if rides := rides and not log.may_hold(*self.watched()):
            log.riding.add(self)
        try:
            asking = log.ask(claim, rides=rides)
            return await (asking if rides else self.engine.timed("receive", asking))  # a ride is no time of the engine
        finally:
            log.riding.discard(self)

    async def _linger(self, poll: LogPoll) -> bool:
        """Waits a moment, or until there may be something for the poll. Returns True when it is over."""
        log, clock = self.engine.log, self.engine.clock
        end = clock.monotonic() + LINGER_S
        log.lingering.add(poll)
        try:
            while not poll.over and (left := end - clock.monotonic()) > 0 and not log.may_hold(*self.watched()):
                await poll.wait(left)
        finally:
            log.lingering.discard(poll)
        return poll.over

    async def _is_done(self, told: Any, noted: Callable[[Any], None]) -> bool:
        """Returns False when the log refused the claim: then it will accept the next one."""
        if told is None:
            await self.refused()
            return False
        noted(told)
        return True

    def _stood(self, poll: LogPoll, receipt: str) -> None:
        """A claim of ours is over: what it was handed and nobody took goes back."""
        log = self.engine.log
        log.standing.end(receipt)
        if (handed := poll.accept()) is not None:
            log.give_back(receipt, handed.deliveries)
        elif poll.over and not poll.taken:
            log.withdraw(self._box, receipt)

    async def _wait(self, poll: LogPoll, end: float, receipt: str) -> bool:
        """Waits until something was handed over, or the wait is over, or in doubt. Returns False when the claim has to be left again.

        The oldest poll looks after the timers of all.
        """
        log, clock = self.engine.log, self.engine.clock
        while not (poll.taken or poll.over or poll.doubtful) and (left := end - clock.monotonic()) > 0:
            names = self.watched()
            await log.waiters.wait(names, poll, left, log.about_now())
            if poll.until > log.about_now():
                continue
            for name in names:
                if log.next_due(name) <= log.about_now():
                    await log.ask(c.Look(log.new_id(), name))
        if not (poll.taken or poll.over) and (poll.doubtful or not log.alive):
            # To be told whether the engine is there; and not to stand twice.
            await log.ask(c.Withdraw(log.new_id(), self._box, receipt))
        return poll.taken or poll.over or clock.monotonic() >= end

    def wake(self) -> None:
        self.check_open()
        self.engine.soon(self.handle.wake)

    @property
    def closed(self) -> bool:
        return self.handle.closed

    def close(self) -> None:
        if not self.handle.closed:
            self.handle.closed = True
            self.engine.soon(self.handle.close)

    def check_open(self) -> None:
        if self.handle.closed:
            self.engine.check_open()
            raise MailboxClosedError(f"{self._what} was closed", remedy="Open it again from its engine")


def _taker(
    engine: NatsEngine, answer: Callable[[Claimed], None], asked: float, stood_at: float
) -> Callable[[Handed], None]:
    return lambda handed: answer(engine.log.standing.accept(handed, asked, stood_at))
