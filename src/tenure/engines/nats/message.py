"""One delivery from a NATS mailbox: the message's id and the receipt, which is the id of the claim that brought it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self

from tenure.engines.checks import check_checkpoint, check_seconds
from tenure.engines.contracts import BodyT, Failure, FailureCause, Message, ReplyT, Ticket
from tenure.engines.nats import commands as c
from tenure.engines.nats.deliveries import Delivery
from tenure.engines.nats.standing import Claimed
from tenure.errors import ReceiptHandleExpiredError, ReplyNotAvailableError

if TYPE_CHECKING:
    from tenure.engines.nats.mailbox import NatsMailbox


class NatsMessage(Message[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Asks the log each time: the fold knows whether this receipt still holds."""

    given_up = ""

    def __init__(self, mailbox: NatsMailbox[Any, Any], ticket: Ticket) -> None:
        self._mailbox = mailbox
        self.id = ticket.id
        self.receipt_handle = ticket.receipt_handle
        self.held = (ticket.id, ticket.receipt_handle)
        self.delivery_count, self.forgiven = ticket.delivery_count, ticket.forgiven
        self.enqueued_at = ticket.enqueued_at
        self.reply_to = ticket.reply_to
        self.key, self.generation = ticket.key, ticket.generation
        self._lease_until = ticket.lease_until
        self._confirmed: dict[str, float] = {}  # filled when what was handed over is confirmed
        self.failure: Failure | None = None
        self.checkpoint: bytes | None = None
        self.body: Any = None

    @classmethod
    def adopted(cls, mailbox: NatsMailbox[Any, Any], ticket: Ticket) -> Self:
        return cls(mailbox, ticket)

    @classmethod
    def of(
        cls,
        mailbox: NatsMailbox[Any, Any],
        delivery: Delivery,
        claimed: Claimed,
        body: Any,
        failure: Failure | None,
    ) -> Self:
        message = cls(
            mailbox,
            Ticket(
                id=delivery.id,
                receipt_handle=claimed.receipt,
                delivery_count=delivery.delivery_count,
                enqueued_at=delivery.enqueued_at,
                lease_until=claimed.lease_until,
                reply_to=delivery.reply_to,
                key=delivery.key,
                generation=delivery.generation,
                forgiven=delivery.forgiven,
            ),
        )
        message.body, message.failure, message.checkpoint = body, failure, delivery.checkpoint
        message.suspect = delivery.suspect
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

    def nack(self, visibility_timeout: float = 0) -> None:
        check_seconds("visibility_timeout", visibility_timeout)
        self._ask("nack", c.Nack, *self.held, float(visibility_timeout), self._mailbox.max_delivery_count)
        self.given_up = "it was nacked"

    def release(self) -> None:
        self._ask("release", c.Release, [self.held])
        self.given_up = "it was released"

    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        check_seconds("visibility_timeout", seconds)
        check_checkpoint(checkpoint)
        asked = self._mailbox.engine.clock.boottime()
        kept = None if checkpoint is None else bytes(checkpoint)
        self._ask("extend", c.Extend, *self.held, float(seconds), kept)
        self.lease_until = max(self.lease_until, asked + seconds)

    def reply(self, body: ReplyT) -> None:
        self._ask("reply", c.Reply, *self.held, self._encode_reply(body))

    def settle(self, reply: ReplyT) -> None:
        self._ask("settle", c.End, [self.held], self._encode_reply(reply))
        self.given_up = "it was settled"

    def dead_letter(self, reason: str) -> None:
        self._ask("dead_letter", c.Bury, *self.held, FailureCause.REJECTED, reason)
        self.given_up = "it is a dead letter"

    def _encode_reply(self, body: ReplyT) -> bytes:
        if self.reply_to is None:
            raise ReplyNotAvailableError(f"message {self.id} has no reply_to")
        return self._mailbox.reply_codec.encode(body, "reply")

    def _ask(self, operation: str, kind: Callable[..., c.AnyCommand], *values: Any) -> None:
        try:
            self._mailbox.engine.ask(operation, kind, self._mailbox.name, *values)
        except ReceiptHandleExpiredError:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise ReceiptHandleExpiredError(self.id, self.given_up or "its lease ran out")
