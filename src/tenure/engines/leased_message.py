"""One delivery, the same on every engine: its fields, the checks of its calls, and until when it is held by our own clock.

It does not know how an engine finds out whether the delivery is still held. An engine implements the methods that begin with `_`; they are
given what was checked, and raise `ReceiptHandleExpiredError`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, NamedTuple

from tenure.clock import Clock
from tenure.engines.checks import check_checkpoint, check_seconds
from tenure.engines.codec import Codec
from tenure.engines.contracts import BodyT, Failure, FailureCause, Message, ReplyT, Ticket
from tenure.errors import ReplyNotAvailableError


class DeliveredContent(NamedTuple):
    """The values that a claim brings beside the ticket. An adopted delivery has none of them."""

    body: Any = None
    failure: Failure | None = None
    checkpoint: bytes | None = None
    suspect: bool = False


NO_CONTENT = DeliveredContent()


class LeasedMessage(Message[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Made from a ticket, by the claim that wrote it or by a process that adopts it; only a claim has a body."""

    __slots__ = (
        "_clock",
        "_reply_codec",
        "body",
        "checkpoint",
        "delivery_count",
        "enqueued_at",
        "failure",
        "forgiven",
        "generation",
        "id",
        "key",
        "lease_until",
        "receipt_handle",
        "reply_to",
        "suspect",
    )

    def __init__(self, ticket: Ticket, content: DeliveredContent, reply_codec: Codec, clock: Clock) -> None:
        self._reply_codec, self._clock = reply_codec, clock
        self.id, self.receipt_handle = ticket.id, ticket.receipt_handle
        self.delivery_count, self.forgiven = ticket.delivery_count, ticket.forgiven
        self.enqueued_at, self.lease_until = ticket.enqueued_at, ticket.lease_until
        self.reply_to, self.key, self.generation = ticket.reply_to, ticket.key, ticket.generation
        self.body, self.failure, self.checkpoint, self.suspect = content

    # What an engine implements, beside `acknowledge` and `release`

    @abstractmethod
    def _nack(self, delay_s: float) -> None: ...

    @abstractmethod
    def _extend(self, seconds: float, checkpoint: bytes | None) -> None: ...

    @abstractmethod
    def _reply(self, encoded: bytes) -> None:
        """Posts it to `reply_to`, which is not None here."""

    @abstractmethod
    def _settle(self, encoded: bytes) -> None:
        """Posts it to `reply_to`, which is not None here, and removes the message: both or neither."""

    @abstractmethod
    def _give_up(self, cause: FailureCause, reason: str) -> None: ...

    # The contract

    def nack(self, visibility_timeout: float = 0) -> None:
        self._nack(float(check_seconds("visibility_timeout", visibility_timeout)))

    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        check_seconds("visibility_timeout", seconds)
        check_checkpoint(checkpoint)
        asked = (
            self._clock.boottime()
        )  # before the engine is asked, so that we never take a lease for longer than it is
        self._extend(float(seconds), None if checkpoint is None else bytes(checkpoint))
        self.lease_until = max(self.lease_until, asked + seconds)

    def reply(self, body: ReplyT) -> None:
        self._reply(self._encode_reply(body))

    def settle(self, reply: ReplyT) -> None:
        self._settle(self._encode_reply(reply))

    def dead_letter(self, reason: str) -> None:
        self._give_up(FailureCause.REJECTED, plain_text(reason))

    def _encode_reply(self, body: ReplyT) -> bytes:
        if self.reply_to is None:
            raise ReplyNotAvailableError(f"message {self.id} has no reply_to")
        return self._reply_codec.encode(body, "reply")


def plain_text(text: str) -> str:
    """Returns what can be written as UTF-8 and read back from JSON: no lone surrogates, no NUL."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")
