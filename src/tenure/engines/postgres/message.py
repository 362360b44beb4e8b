"""One delivery from a PostgreSQL mailbox: every method is one round trip, and the row decides whether it is still ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from tenure.engines.checks import check_checkpoint, check_seconds
from tenure.engines.contracts import BodyT, Failure, FailureCause, Message, ReplyT, Ticket
from tenure.errors import ReceiptHandleExpiredError, ReplyNotAvailableError, TenureError

if TYPE_CHECKING:
    from tenure.engines.postgres.mailbox import PostgresMailbox


class PostgresMessage(Message[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Named by its row's id and the token of the claim: a later claim has another token."""

    __slots__ = (
        "_mailbox",
        "_row",
        "_token",
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

    def __init__(
        self,
        mailbox: PostgresMailbox[Any, Any],
        row: int,
        token: int,
        *,
        body: Any,
        delivery_count: int,
        enqueued_at: float,
        lease_until: float,
        generation: int,
        key: str | None,
        reply_to: str | None,
        checkpoint: bytes | None = None,
        failure: Failure | None = None,
        forgiven: int = 0,
        suspect: bool = False,
    ) -> None:
        self._mailbox, self._row, self._token = mailbox, row, token
        self.id = str(row)
        self.receipt_handle = f"{row}.{token}"
        self.body = body
        self.delivery_count, self.enqueued_at, self.lease_until = delivery_count, enqueued_at, lease_until
        self.generation, self.key, self.reply_to = generation, key, reply_to
        self.checkpoint, self.failure, self.forgiven, self.suspect = checkpoint, failure, forgiven, suspect

    @classmethod
    def adopted(cls, mailbox: PostgresMailbox[Any, Any], ticket: Ticket) -> PostgresMessage[Any, Any]:
        row, _, token = ticket.receipt_handle.partition(".")
        known = row.isdecimal() and token.isdecimal()  # another engine's receipt names no row of ours
        return cls(
            mailbox,
            int(row) if known else 0,
            int(token) if known else 0,
            body=None,
            delivery_count=ticket.delivery_count,
            enqueued_at=ticket.enqueued_at,
            lease_until=ticket.lease_until,
            generation=ticket.generation,
            key=ticket.key,
            reply_to=ticket.reply_to,
            forgiven=ticket.forgiven,
        )

    @property
    def receipt(self) -> tuple[int, int]:
        """Row and token, which name the delivery."""
        return self._row, self._token

    def acknowledge(self) -> None:
        self._ask("acknowledge", (self._row, self._token, self._mailbox.name, self.key))

    def nack(self, visibility_timeout: float = 0) -> None:
        check_seconds("visibility_timeout", visibility_timeout)
        limit = self._mailbox.max_delivery_count
        self._ask("nack", (self._row, self._token, float(visibility_timeout), limit))

    def release(self) -> None:
        self._ask("release", (self._row, self._token))
        self._mailbox.pace.moved_back()

    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        check_seconds("visibility_timeout", seconds)
        check_checkpoint(checkpoint)
        asked = self._mailbox.engine.clock.boottime()
        self._ask("extend", (self._row, self._token, float(seconds), checkpoint))
        self.lease_until = max(self.lease_until, asked + seconds)

    def reply(self, body: ReplyT) -> None:
        encoded = self._encode_reply(body)
        self._ask("reply", (self._row, self._token, self.reply_to, encoded))

    def settle(self, reply: ReplyT) -> None:
        encoded = self._encode_reply(reply)
        self._ask("settle", (self._row, self._token, self._mailbox.name, self.key, self.reply_to, encoded))

    def dead_letter(self, reason: str) -> None:
        self._ask("bury", (self._row, self._token, FailureCause.REJECTED.value, reason.replace("\0", "\ufffd")))

    def _encode_reply(self, body: ReplyT) -> bytes:
        if self.reply_to is None:
            raise ReplyNotAvailableError(f"message {self.id} has no reply_to")
        return self._mailbox.reply_codec.encode(body, "reply")

    def _ask(self, operation: str, values: tuple[Any, ...]) -> None:
        if not self._mailbox.query(operation, values)[0][0]:
            self._refuse()

    def _refuse(self) -> NoReturn:
        try:
            reason = self._mailbox.query("why_dead", (self._row, self._token))[0][0]
        except TenureError:
            reason = "its lease ran out, or it was settled"
        raise ReceiptHandleExpiredError(self.id, reason)
