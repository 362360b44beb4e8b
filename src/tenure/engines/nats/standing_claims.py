"""The long polls of this process, the claims that they left in the log, and what happens when the fold hands something over. Runs on the background loop.

What is handed over begins with a short hold (`logged_mailbox.HAND_OVER_S`) and is confirmed at once, which the work does not wait for. Until the confirmation is
back, `lease_until` says no more than the short hold, counted from a moment that cannot be too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from tenure.clock import Clock
from tenure.engines.long_poll import Poll
from tenure.engines.mailbox_state import MailboxState
from tenure.engines.nats import commands as c
from tenure.engines.nats.ledger_records import Delivery, Handed
from tenure.engines.nats.logged_mailbox import HAND_OVER_S

if TYPE_CHECKING:
    from tenure.engines.nats.command_log import CommandLog


class LogPoll(Poll):
    """One long poll on a mailbox, whose claim stands in the log, or one follow of a journal."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        super().__init__(self._event.set)
        self.handed: Handed | None = None
        """The deliveries of its standing claim that the poll has not taken yet."""
        self.take: Callable[[Handed], None] | None = None
        """Takes it at once, where there is something to take it."""
        self.taken = False
        self.doubtful = False
        """True when its claim may stand no longer."""
        self.until = inf  # engine time at which it looks by itself

    def hand(self, handed: Handed) -> None:
        if self.take is not None:
            self.taken = True
            self.take(handed)
        else:
            self.handed = handed
        self.ring()

    def doubt(self) -> None:
        self.doubtful = True
        self.ring()

    async def wait(self, seconds: float) -> None:
        """Until it is rung, at most this long."""
        timer = asyncio.get_running_loop().call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
            self._event.clear()


class TimerWatch:
    """The oldest long poll on a mailbox keeps watch over its timers for all: the log does nothing by itself when a lease or a delay ends."""

    def __init__(self, box: Callable[[str], MailboxState], clock: Clock) -> None:
        self._box, self._clock = box, clock
        self._line: dict[str, dict[LogPoll, None]] = {}

    async def wait(self, name: str, poll: LogPoll, seconds: float, about_now: float) -> None:
        """Until it is rung, or has to look at a timer, at most this long."""
        line = self._line.setdefault(name, {})
        line.setdefault(poll)
        due = self._box(name).next_due() if next(iter(line)) is poll else inf
        poll.until = due
        await poll.wait(max(0.001, min(seconds, due - about_now)))

    def leave(self, name: str, poll: LogPoll) -> None:
        line = self._line.get(name)
        if line is None:
            return
        line.pop(poll, None)
        if line:
            self.stir(name)
        else:
            del self._line[name]

    def stir(self, name: str) -> None:
        line = self._line.get(name)
        if not line:
            return
        watch = next(iter(line))
        if self._box(name).next_due() < watch.until:
            watch.ring()


class Claimed(NamedTuple):
    receipt: str
    lease_until: float
    deliveries: list[Delivery]
    confirmed: dict[str, float]
    """By message, how far its lease goes since what was handed over is confirmed."""


class StandingClaims:
    def __init__(self, log: CommandLog) -> None:
        self._log = log
        self._polls: dict[str, LogPoll] = {}
        self._boxes: dict[str, str] = {}

    def begin(self, receipt: str, box: str, poll: LogPoll) -> None:
        """Before the claim is left in the log: it may be served the moment it is there."""
        self._polls[receipt], self._boxes[receipt] = poll, box

    def end(self, receipt: str) -> None:
        """Nobody waits for it any more. What is still handed to it is given back."""
        self._polls.pop(receipt, None)
        self._boxes.pop(receipt, None)

    def told(self, handed: list[Handed], dropped: list[str]) -> None:
        """By the fold: what was given to whom, and whose claims were ended. Most of both are others' affairs."""
        for one in handed:
            poll = self._polls.get(one.receipt)
            if poll is not None:
                poll.hand(one)
            elif self._log.is_ours(one.receipt):
                self._log.give_back(one.box, one.receipt, one.deliveries)
        for receipt in dropped:
            if (poll := self._polls.get(receipt)) is not None:
                poll.doubt()

    def doubt(self) -> None:
        """The connection was lost, or we fell behind: nobody knows whether they still stand."""
        for poll in self._polls.values():
            poll.doubt()

    async def withdraw_all(self) -> None:
        """Before this process leaves: they are sent, and not waited for."""
        for receipt, box in list(self._boxes.items()):
            self._log.withdraw(box, receipt)
        await asyncio.sleep(0)  # they are written before the connection is closed

    def accept(self, handed: Handed, asked: float, stood_at: float) -> Claimed:
        """`asked` is our boot time before the claim was left, `stood_at` the log's time when it came there."""
        now, confirmed = self._log.clock.boottime(), dict[str, float]()
        self._log.spawn(self._confirm(handed, now + handed.lease, confirmed))
        # By the log's clock it was handed over so long after that; and not later than now, whatever the log's clock did meanwhile.
        begun = min(asked + (handed.at - stood_at), now)
        return Claimed(handed.receipt, begun + min(handed.lease, HAND_OVER_S), handed.deliveries, confirmed)

    async def _confirm(self, handed: Handed, until: float, confirmed: dict[str, float]) -> None:
        log = self._log
        held = [(delivery.id, handed.receipt) for delivery in handed.deliveries]
        kept = await log.ask(c.Confirm(log.new_id(), handed.box, held, handed.lease))
        confirmed.update(dict.fromkeys(kept, until))
