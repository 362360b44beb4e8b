"""One delivery from a NATS mailbox: the message's id and the receipt, which is the id of the claim that brought it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self

from tenure.engines.checked_mailbox import NO_CONTENT, DecodedBody, DeliveredContent, LeasedMessage
from tenure.engines.contracts import BodyT, FailureCause, ReplyT, Ticket
from tenure.engines.nats import commands as c
from tenure.engines.nats.deliveries import Delivery
from tenure.engines.nats.standing import Claimed
from tenure.errors import ReceiptHandleExpiredError

if TYPE_CHECKING:
    from tenure.engines.nats.mailbox import NatsMailbox


class NatsMessage(LeasedMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Asks the log each time: the fold knows whether this receipt still holds."""

    __slots__ = ("_confirmed", "_lease_until", "_mailbox", "given_up", "held")

    def __init__(self, mailbox: NatsMailbox[Any, Any], ticket: Ticket, content: DeliveredContent = NO_CONTENT) -> None:
        super().__init__(ticket, content, mailbox.reply_codec, mailbox.engine.clock)
        self._mailbox = mailbox
        self.held = (ticket.id, ticket.receipt_handle)
        self.given_up = ""
        self._confirmed: dict[str, float] = {}  # filled when what was handed over is confirmed

    @classmethod
    def of(cls, mailbox: NatsMailbox[Any, Any], delivery: Delivery, claimed: Claimed, opened: DecodedBody) -> Self:
        ticket = Ticket(
            id=delivery.id,
            receipt_handle=claimed.receipt,
            delivery_count=delivery.delivery_count,
            enqueued_at=delivery.enqueued_at,
            lease_until=claimed.lease_until,
            reply_to=delivery.reply_to,
            key=delivery.key,
            generation=delivery.generation,
            forgiven=delivery.forgiven,
        )
        message = cls(mailbox, ticket, DeliveredContent(*opened, delivery.checkpoint, delivery.suspect))
        message._confirmed = claimed.confirmed
        return message

    @property
    def lease_until(self) -> float:
        return max(self._lease_until, self._confirmed.get(self.id, 0.0))

    @lease_until.setter
    def lease_until(self, boottime: float) -> None:
        self._lease_until = boottime

    def acknowledge(self) -> None:
        self._ask("acknowledge", c.End, [self.held])
        self.given_up = "it was acknowledged"

    def _nack(self, delay_s: float) -> None:
        self._ask("nack", c.Nack, *self.held, delay_s, self._mailbox.max_delivery_count)
        self.given_up = "it was nacked"

    def release(self) -> None:
        self._ask("release", c.Release, [self.held])
        self.given_up = "it was released"

    def _extend(self, seconds: float, checkpoint: bytes | None) -> None:
        self._ask("extend", c.Extend, *self.held, seconds, checkpoint)

    def _reply(self, encoded: bytes) -> None:
        self._ask("reply", c.Reply, *self.held, encoded)

    def _settle(self, encoded: bytes) -> None:
        self._ask("settle", c.End, [self.held], encoded)
        self.given_up = "it was settled"

    def _give_up(self, cause: FailureCause, reason: str) -> None:
        self._ask("dead_letter", c.Bury, *self.held, cause, reason)
        self.given_up = "it is a dead letter"

    def _ask(self, operation: str, kind: Callable[..., c.AnyCommand], *values: Any) -> None:
        try:
            self._mailbox.engine.ask(operation, kind, self._mailbox.name, *values)
        except ReceiptHandleExpiredError:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise ReceiptHandleExpiredError(self.id, self.given_up or "its lease ran out")
