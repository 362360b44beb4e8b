"""One delivery from a Redis mailbox: every method is one round trip, and the server decides whether it is still ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.contracts import BodyT, FailureCause, ReplyT, Ticket
from tenure.engines.leased_message import NO_CONTENT, DeliveredContent, LeasedMessage
from tenure.engines.redis.session import Argument
from tenure.errors import ReceiptHandleExpiredError

if TYPE_CHECKING:
    from tenure.engines.redis.aside import Aside
    from tenure.engines.redis.connections import Answer
    from tenure.engines.redis.mailbox import RedisMailbox


class RedisMessage(LeasedMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Named by its id and the token of the claim: a later claim has another token."""

    __slots__ = ("_aside", "_lease_until", "_mailbox", "_token")

    def __init__(self, mailbox: RedisMailbox[Any, Any], ticket: Ticket, content: DeliveredContent = NO_CONTENT) -> None:
        self._aside: Aside | None = None
        super().__init__(ticket, content, mailbox.reply_codec, mailbox.engine.clock)
        self._mailbox, self._token = mailbox, ticket.receipt_handle.rpartition(".")[2]

    @property
    def lease_until(self) -> float:
        """The boot time at which the lease ends. For a handed-over message it is the short lease, until the server has confirmed the whole one."""
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

    def _nack(self, delay_s: float) -> None:
        self._ask("nack", round(delay_s * 1e6), self._mailbox.limit)

    def release(self) -> None:
        self._ask("release")

    def _extend(self, seconds: float, checkpoint: bytes | None) -> None:
        kept: tuple[Argument, ...] = () if checkpoint is None else (checkpoint,)
        self._ask("extend", round(seconds * 1e6), *kept)

    def _reply(self, encoded: bytes) -> None:
        self._ask("reply", self.reply_to or "", encoded)

    def _settle(self, encoded: bytes) -> None:
        self._ask("settle", self.reply_to or "", encoded)

    def _give_up(self, cause: FailureCause, reason: str) -> None:
        self._ask("bury", cause.value, reason)

    def _ask(self, operation: str, *values: Argument) -> None:
        answer = self._mailbox.call(operation, self.id, self._token, *values)
        if len(answer) > 1:
            raise ReceiptHandleExpiredError(self.id, answer[1].decode())
