"""One delivery from a PostgreSQL mailbox: every method is one round trip, and the row decides whether it is still ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from tenure.engines.contracts import BodyT, FailureCause, ReplyT, Ticket
from tenure.engines.leased_message import NO_CONTENT, DeliveredContent, LeasedMessage
from tenure.errors import ReceiptHandleExpiredError, TenureError

if TYPE_CHECKING:
    from tenure.engines.postgres.mailbox import PostgresMailbox


class PostgresMessage(LeasedMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Named by its row's id and the token of the claim: a later claim has another token."""

    __slots__ = ("_mailbox", "_row", "_token")

    def __init__(
        self, mailbox: PostgresMailbox[Any, Any], ticket: Ticket, content: DeliveredContent = NO_CONTENT
    ) -> None:
        super().__init__(ticket, content, mailbox.reply_codec, mailbox.engine.clock)
        row, _, token = ticket.receipt_handle.partition(".")
        known = row.isdecimal() and token.isdecimal()  # another engine's receipt names no row of ours
        self._mailbox, self._row, self._token = mailbox, int(row) if known else 0, int(token) if known else 0

    @property
    def receipt(self) -> tuple[int, int]:
        """Row and token, which name the delivery."""
        return self._row, self._token

    def acknowledge(self) -> None:
        self._ask("acknowledge", (self._row, self._token, self._mailbox.name, self.key))

    def _nack(self, delay_s: float) -> None:
        self._ask("nack", (self._row, self._token, delay_s, self._mailbox.max_delivery_count))

    def release(self) -> None:
        self._ask("release", (self._row, self._token))
        self._mailbox.pace.moved_back()

    def _extend(self, seconds: float, checkpoint: bytes | None) -> None:
        self._ask("extend", (self._row, self._token, seconds, checkpoint))

    def _reply(self, encoded: bytes) -> None:
        self._ask("reply", (self._row, self._token, self.reply_to, encoded))

    def _settle(self, encoded: bytes) -> None:
        self._ask("settle", (self._row, self._token, self._mailbox.name, self.key, self.reply_to, encoded))

    def _give_up(self, cause: FailureCause, reason: str) -> None:
        self._ask("bury", (self._row, self._token, cause.value, reason))

    def _ask(self, operation: str, values: tuple[Any, ...]) -> None:
        if not self._mailbox.query(operation, values)[0][0]:
            self._refuse()

    def _refuse(self) -> NoReturn:
        try:
            reason = self._mailbox.query("why_dead", (self._row, self._token))[0][0]
        except TenureError:
            reason = "its lease ran out, or it was settled"
        raise ReceiptHandleExpiredError(self.id, reason)
