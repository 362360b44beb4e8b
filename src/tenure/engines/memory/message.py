"""One delivery from a memory mailbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self

from tenure.engines.checks import check_checkpoint, check_seconds
from tenure.engines.contracts import BodyT, Failure, FailureCause, Message, ReplyT, Ticket
from tenure.engines.memory.records import LEASED, Record
from tenure.errors import ReceiptHandleExpiredError, ReplyNotAvailableError

if TYPE_CHECKING:
    from tenure.engines.memory.mailbox import MemoryMailbox


class MemoryMessage(Message[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Holds its record and the number of its receipt: while both agree, and time is left, the delivery is ours."""

    _handle = ""  # made when asked for: most deliveries never are
    _given_up = ""

    def __init__(self, mailbox: MemoryMailbox[Any, Any], record: Record, body: Any, failure: Failure | None) -> None:
        self._mailbox = mailbox
        self._record = record
        self._receipt = record.receipt
        self.id = record.id
        self.body = body
        self.delivery_count = record.count
        self.forgiven = record.base
        self.suspect = record.suspect
        self.enqueued_at = record.enqueued_at
        self.reply_to = record.reply_to
        self.checkpoint = record.checkpoint
        self.key = record.key
        self.generation = record.generation
        self.failure = failure
        self.lease_until = record.due

    @property
    def receipt_handle(self) -> str:
        return self._handle or f"{self.id}.{self._receipt}"

    @receipt_handle.setter
    def receipt_handle(self, handle: str) -> None:
        self._handle = handle

    @classmethod
    def adopted(cls, mailbox: MemoryMailbox[Any, Any], record: Record | None, ticket: Ticket) -> Self:
        """A second handle on a delivery, or on nothing any more when it is over: then every call says so."""
        message = cls(mailbox, record or Record(ticket.id, b"", ticket.enqueued_at), None, None)
        message.reply_to = ticket.reply_to
        number = ticket.receipt_handle.rpartition(".")[2]
        message._receipt = int(number) if number.isdecimal() else -1
        message._handle = ticket.receipt_handle
        message.delivery_count, message.forgiven = ticket.delivery_count, ticket.forgiven
        message.checkpoint = None
        message.key, message.generation = ticket.key, ticket.generation
        message.lease_until = ticket.lease_until
        return message

    def acknowledge(self) -> None:
        mailbox, record = self._mailbox, self._record
        mailbox._lock.acquire()
        try:
            now = mailbox._boottime()
            if record.receipt != self._receipt or record.state is not LEASED or record.due <= now or mailbox._cut:
                self._refuse()
            mailbox._box.end(record, now)
            record.ended = "it was acknowledged"
        finally:
            mailbox._lock.release()

    def nack(self, visibility_timeout: float = 0) -> None:
        check_seconds("visibility_timeout", visibility_timeout)
        mailbox, record = self._mailbox, self._record
        with mailbox._lock:
            now = self._hold()
            mailbox._box.give_back(record, now, visibility_timeout, mailbox.max_delivery_count)
            self._given_up = "it was nacked"
        mailbox._engine.forward()

    def release(self) -> None:
        with self._mailbox._lock:
            self._hold()
            self._mailbox._box.release(self._record)
            self._given_up = "it was released"

    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        check_seconds("visibility_timeout", seconds)
        check_checkpoint(checkpoint)
        mailbox, record = self._mailbox, self._record
        with mailbox._lock:
            now = self._hold()
            mailbox._box.extend(record, now + seconds, checkpoint)
            self.lease_until = record.due

    def reply(self, body: ReplyT) -> None:
        encoded = self._encode_reply(body)
        with self._mailbox._lock:
            self._hold()
            self._mailbox._engine.post(self._record, encoded, False)
        self._mailbox._engine.forward()

    def settle(self, reply: ReplyT) -> None:
        encoded = self._encode_reply(reply)
        mailbox, record = self._mailbox, self._record
        with mailbox._lock:
            now = self._hold()
            mailbox._engine.post(record, encoded, False)
            mailbox._box.end(record, now)
            record.ended = "it was settled"
        mailbox._engine.forward()

    def dead_letter(self, reason: str) -> None:
        mailbox, record = self._mailbox, self._record
        with mailbox._lock:
            now = self._hold()
            del mailbox._box.leased[record.id]
            mailbox._box.bury(record, FailureCause.REJECTED, reason, now)
            record.ended = "it is a dead letter"
        mailbox._engine.forward()

    def _encode_reply(self, body: ReplyT) -> bytes:
        if self.reply_to is None:
            raise ReplyNotAvailableError(f"message {self.id} has no reply_to")
        return self._mailbox._reply_codec.encode(body, "reply")

    def _hold(self) -> float:
        """The time, if the delivery is still ours. The caller holds the lock."""
        record, now = self._record, self._mailbox._boottime()
        if record.receipt != self._receipt or record.state is not LEASED or record.due <= now or self._mailbox._cut:
            self._refuse()
        return now

    def _refuse(self) -> NoReturn:
        self._mailbox._engine.check_open()
        record = self._record
        why = self._given_up or (record.ended if record.receipt == self._receipt else "")
        raise ReceiptHandleExpiredError(self.id, why or "its lease ran out")
