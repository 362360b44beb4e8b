"""The mailbox: a queue with leases, and the messages of it that were given up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic

from tenure.engines.contracts.messages import BodyT, DeadLetter, Depth, Message, Outgoing, ReplyT, Sent, Ticket
from tenure.errors import ReceiptHandleExpiredError


class DeadLetters(ABC):
    """The messages of one mailbox that were given up."""

    @abstractmethod
    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        """Oldest first; `after` is the id of the last one of the previous page (the oldest again, if that is gone)."""

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def replay(self, message_id: str) -> bool:
        """Put it back into its mailbox; False when there is no such dead letter.

        The delivery count goes on, so that the fence grows, and the threshold counts from here. Raises `KeyRefusedError`
        when a newer generation was sent or the key was revoked meanwhile.
        """

    @abstractmethod
    def delete(self, message_id: str) -> bool: ...

    @abstractmethod
    def purge(self) -> int:
        """Delete them all; how many there were."""


class Mailbox(ABC, Generic[BodyT, ReplyT]):
    """A queue with leases. At least once; FIFO while nothing is delayed or redelivered."""

    name: str

    @abstractmethod
    def send(
        self,
        body: BodyT,
        *,
        key: str | None = None,
        generation: int = 0,
        reply_to: Mailbox[ReplyT, Any] | str | None = None,
        delay: float = 0,
    ) -> str:
        """Queue a message; its id once it is durable.

        A key has at most one live message. A higher generation replaces a lower one, queued or leased: the old receipt is
        dead, the checkpoint is inherited, also from one that has ended while the key is remembered. Raises `KeyRefusedError` for an equal or lower generation and a revoked key.
        """

    @abstractmethod
    def send_many(self, messages: Sequence[Outgoing[BodyT]]) -> list[Sent]:
        """Queue several in order, in one step where the engine can. Refused keys are told, and do not stop the rest."""

    @abstractmethod
    def receive(
        self,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        *,
        provisional: bool = False,
    ) -> list[Message[BodyT, ReplyT]]:
        """Claim up to `max_messages`, waiting for the first one at most `wait_time_seconds`.

        Whatever is ready is returned at once; a ready message is never held back for a full batch. The wait ends early on
        `wake()` and `close()`, with an empty list. A body that cannot be decoded becomes a dead letter and is not returned.
        A `provisional` delivery counts only once it was extended: it is a claim, and the work has not started.

        A message is *suspect* when its last claim ended by the expiry of its lease, as it does when the holder dies. It comes
        alone (a batch ends before the first suspect one), and counts from the claim on, also from a provisional one: so a
        message that kills its holders reaches `max_delivery_count`, and its neighbours in a batch do not.
        """

    @abstractmethod
    def adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        """A handle on a delivery that another process of ours claimed: its body and checkpoint are None.

        Asks the engine nothing: a dead receipt is found out by the first call on the handle.
        """

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        """Acknowledge several of this mailbox, in one step where the engine can; those that were no longer ours."""
        refused = []
        for message in messages:
            try:
                message.acknowledge()
            except ReceiptHandleExpiredError:
                refused.append(message)
        return refused

    @abstractmethod
    def wake(self) -> None:
        """End this handle's long polls now; if none is under way, the next receive does not wait."""

    @abstractmethod
    def revoke(self, key: str) -> bool:
        """Withdraw a key for good: its live message is gone, its receipt is dead, and no generation is accepted again.

        Works before the key was ever sent. True when a live message was withdrawn.
        """

    @abstractmethod
    def depth(self) -> Depth: ...

    def approximate_count(self) -> int:
        """All messages: ready, delayed and leased."""
        return sum(self.depth())

    @abstractmethod
    def purge(self) -> int:
        """Remove every message, leased ones too; how many there were. Keys stay remembered."""

    @property
    @abstractmethod
    def dead_letters(self) -> DeadLetters: ...

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @abstractmethod
    def close(self) -> None:
        """End this handle, and wake its long polls. The messages stay. Later calls raise `MailboxClosedError`."""
