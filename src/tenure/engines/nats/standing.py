"""Standing claims of this process: which long poll left which, and what happens when the fold hands something over. Runs on the background loop.

What is handed over begins with a short hold (`stands.HAND_OVER_S`) and is confirmed at once, which the work does not wait for. Until the confirmation is
back, `lease_until` says no more than the short hold, counted from a moment that cannot be too late.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from tenure.engines.nats import commands as c
from tenure.engines.nats.deliveries import Delivery, Handed
from tenure.engines.nats.stands import HAND_OVER_S
from tenure.engines.nats.waiting import Poll

if TYPE_CHECKING:
    from tenure.engines.nats.log import Log


class Claimed(NamedTuple):
    receipt: str
    lease_until: float
    deliveries: list[Delivery]
    confirmed: dict[str, float]
    """By message, how far its lease goes since what was handed over is confirmed."""


class Standing:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._polls: dict[str, Poll] = {}
        self._boxes: dict[str, str] = {}

    def begin(self, receipt: str, box: str, poll: Poll) -> None:
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
