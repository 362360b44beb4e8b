"""One delivery from a Redis mailbox: every method is one round trip, and the server decides whether it is still ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.checks import check_checkpoint, check_seconds
from tenure.engines.contracts import BodyT, Failure, FailureCause, Message, ReplyT, Ticket
from tenure.engines.redis.session import Argument
from tenure.errors import ReceiptHandleExpiredError, ReplyNotAvailableError

if TYPE_CHECKING:
    from tenure.engines.redis.aside import Aside
    from tenure.engines.redis.connections import Answer
    from tenure.engines.redis.mailbox import RedisMailbox


class RedisMessage(Message[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Named by its id and the token of the claim: a later claim has another token."""

    __slots__ = (
        "_aside",
        "_lease_until",
        "_mailbox",
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
        "receipt_handle",
        "reply_to",
        "suspect",
    )

    def __init__(
        self,
        mailbox: RedisMailbox[Any, Any],
        message_id: str,
        token: str,
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
        self._mailbox, self._token = mailbox, token
        self.id = message_id
        self.receipt_handle = f"{message_id}.{token}"
        self.body = body
        self.delivery_count, self.enqueued_at = delivery_count, enqueued_at
        self._lease_until = lease_until
        self._aside: Aside | None = None
        self.generation, self.key, self.reply_to = generation, key, reply_to
        self.checkpoint, self.failure, self.forgiven, self.suspect = checkpoint, failure, forgiven, suspect

    @classmethod
    def adopted(cls, mailbox: RedisMailbox[Any, Any], ticket: Ticket) -> RedisMessage[Any, Any]:
        message = cls(
            mailbox,
            ticket.id,
            ticket.receipt_handle.rpartition(".")[2],
            body=None,
            delivery_count=ticket.delivery_count,
            enqueued_at=ticket.enqueued_at,
            lease_until=ticket.lease_until,
            generation=ticket.generation,
            key=ticket.key,
            reply_to=ticket.reply_to,
            forgiven=ticket.forgiven,
        )
        message.receipt_handle = ticket.receipt_handle
        return message

    @property
    def lease_until(self) -> float:
        """Of one that was handed over, the short lease, until the server has answered that it has the whole one."""
        if self._aside is not None:
            self._aside.hear()
        return self._lease_until

    @lease_until.setter
    def lease_until(self, boottime: float) -> None:
        self._lease_until = boottime

    def to_be_confirmed(self, aside: Aside, lease_until: float) -> Callable[[Answer], None]:
        """The lease is a short one until what this returns is called with the server's answer, which `aside` will hear."""

        def confirmed(answer: Answer) -> None:
            self._aside = None
            if len(answer) == 1:
                self._lease_until = max(self._lease_until, lease_until)

        self._aside = aside
        return confirmed

    @property
    def receipt(self) -> tuple[str, str]:
        """Id and token, which name the delivery."""
        return self.id, self._token

    def acknowledge(self) -> None:
        self._ask("acknowledge")

    def nack(self, visibility_timeout: float = 0) -> None:
        check_seconds("visibility_timeout", visibility_timeout)
        self._ask("nack", round(visibility_timeout * 1e6), self._mailbox.limit)

    def release(self) -> None:
        self._ask("release")

    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        check_seconds("visibility_timeout", seconds)
        check_checkpoint(checkpoint)
        asked = self._mailbox.engine.clock.boottime()
        kept: tuple[Argument, ...] = () if checkpoint is None else (bytes(checkpoint),)
        self._ask("extend", round(seconds * 1e6), *kept)
        self.lease_until = max(self.lease_until, asked + seconds)

    def reply(self, body: ReplyT) -> None:
        self._ask("reply", *self._answer(body))

    def settle(self, reply: ReplyT) -> None:
        self._ask("settle", *self._answer(reply))

    def dead_letter(self, reason: str) -> None:
        self._ask("bury", FailureCause.REJECTED.value, plain_text(reason))

    def _answer(self, body: ReplyT) -> tuple[str, bytes]:
        if self.reply_to is None:
            raise ReplyNotAvailableError(f"message {self.id} has no reply_to")
        return self.reply_to, self._mailbox.reply_codec.encode(body, "reply")

    def _ask(self, operation: str, *values: Argument) -> None:
        answer = self._mailbox.call(operation, self.id, self._token, *values)
        if len(answer) > 1:
            raise ReceiptHandleExpiredError(self.id, answer[1].decode())


def plain_text(text: str) -> str:
    """What can be written as UTF-8 and read back from JSON: no lone surrogates, no NUL."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")
