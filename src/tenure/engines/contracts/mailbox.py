"""The mailbox: its messages as data, one delivery of a message as a handle, the queue with leases, and the messages of it that were given up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from tenure.errors import ReceiptHandleExpiredError

BodyT = TypeVar("BodyT")
ReplyT = TypeVar("ReplyT")


class Fence(NamedTuple):
    """Orders the deliveries of one key: whoever holds the higher one is newer. It only grows."""

    generation: int
    delivery: int


class Depth(NamedTuple):
    """Counts the messages of a mailbox: ready to be claimed, delayed, or leased."""

    ready: int
    delayed: int
    leased: int


class Sent(NamedTuple):
    """The result of one message of a batch: `refused` is None, or says why its key was not accepted."""

    id: str
    refused: str | None = None


class Withdrawal(StrEnum):
    """The outcome of `Mailbox.withdraw`."""

    WITHDRAWN = "withdrawn"  # it was there, and is gone
    LEASED = "leased"  # a consumer holds it: nothing was changed
    ABSENT = "absent"  # the key has no live message up to that generation


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[BodyT]):
    """One message of a batch, with the options that `send` takes."""

    body: BodyT
    key: str | None = None
    generation: int = 0
    reply_to: str | None = None
    delay: float = 0.0


class FailureCause(StrEnum):
    """Why a message became a dead letter."""

    DELIVERIES = "deliveries"  # delivered max_delivery_count times without being settled
    UNDECODABLE = "undecodable"  # the body does not decode as the mailbox's type
    REJECTED = "rejected"  # its consumer said so: Message.dead_letter()


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Posted to `reply_to` in place of a reply when a message became a dead letter, so that nobody waits for it."""

    message_id: str
    mailbox: str
    cause: FailureCause
    reason: str
    key: str | None = None
    generation: int = 0
    delivery_count: int = 0


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that will not be delivered again unless somebody replays it."""

    id: str
    body: bytes  # as it was sent, encoded: it may be what could not be decoded
    cause: FailureCause
    reason: str
    died_at: float
    enqueued_at: float
    delivery_count: int
    key: str | None = None
    generation: int = 0
    reply_to: str | None = None
    checkpoint: bytes | None = None


def why_given_up(times: int, *, expired: bool) -> str:
    """Returns the reason of a dead letter that used up its deliveries. `expired`: the last claim ended with its lease."""
    ended = ": the last claim ended by the expiry of its lease" if expired else ""
    return f"delivered {times} time{'s' if times != 1 else ''} without being settled{ended}"


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """The data with which another process acts on a delivery: a successor settles what a dead worker held."""

    id: str
    receipt_handle: str
    delivery_count: int
    enqueued_at: float
    lease_until: float
    reply_to: str | None = None
    key: str | None = None
    generation: int = 0
    forgiven: int = 0
    mailbox: str = ""
    """The mailbox to adopt it in; empty in a ticket of the first release."""

    @property
    def fence(self) -> Fence:
        return Fence(self.generation, self.delivery_count)


class Message(ABC, Generic[BodyT, ReplyT]):
    """One delivery of one message.

    From the moment the lease runs out, by the engine's clock, every method raises `ReceiptHandleExpiredError`, whether or
    not anybody has claimed the message since; likewise after it was settled, replaced or revoked.
    """

    id: str
    body: BodyT
    """The decoded body; None when `failure` is set."""
    receipt_handle: str
    delivery_count: int
    """1 for the first delivery. No two executions have the same number: only one that its holder released before it
    started is given out again."""
    forgiven: int
    """The deliveries that do not count against a limit: handed over by `release`, never started, or before a replay."""
    suspect: bool = False
    """True when the claim before this one ended by the expiry of its lease: the message may have killed its holder. It
    comes alone, and this delivery counts from the claim on, also a provisional one."""
    enqueued_at: float
    reply_to: str | None
    checkpoint: bytes | None
    """The value that the last delivery, or the replaced generation, saved."""
    key: str | None
    generation: int
    failure: Failure | None
    """Set when this is not a reply but the news that the message it would have answered is a dead letter."""
    lease_until: float
    """Our own boot time at which the lease must be taken as lost, even if the engine cannot be asked."""

    @property
    @abstractmethod
    def mailbox(self) -> str:
        """The name of the mailbox that it came from."""

    @property
    def fence(self) -> Fence:
        return Fence(self.generation, self.delivery_count)

    def lease_left(self, now: float) -> float:
        """Returns the seconds for which the lease is certainly held, at our boot time `now`.

        It waits for nothing, but an engine may take in answers that have arrived and that no thread has read yet: `lease_until` alone
        may then be too careful.
        """
        return self.lease_until - now

    @property
    def attempt(self) -> int:
        """Which try this is, as limits count them: deliveries that were handed over are no tries."""
        return self.delivery_count - self.forgiven

    @property
    def ticket(self) -> Ticket:
        """This delivery as data; `Mailbox.adopt` turns it into a handle in another process."""
        return Ticket(
            id=self.id,
            receipt_handle=self.receipt_handle,
            delivery_count=self.delivery_count,
            enqueued_at=self.enqueued_at,
            lease_until=self.lease_until,
            reply_to=self.reply_to,
            key=self.key,
            generation=self.generation,
            forgiven=self.forgiven,
            mailbox=self.mailbox,
        )

    @abstractmethod
    def acknowledge(self) -> None:
        """Done: remove the message."""

    @abstractmethod
    def nack(self, visibility_timeout: float = 0) -> None:
        """Not done: make it visible again after this many seconds. The delivery counts.

        When it was the last one that `max_delivery_count` allows, the message becomes a dead letter at once instead.
        """

    @abstractmethod
    def release(self) -> None:
        """Give back work through no fault of its own: visible at once, and this delivery does not count.

        One that was extended had started: it keeps its number, so that its fence is not given out twice, and is forgiven.
        """

    @abstractmethod
    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        """Hold it for this many seconds from now. Never moves the expiry to an earlier time.

        A given checkpoint is durable when this returns. The first extension of a provisional delivery starts it: from
        then on it counts.
        """

    @abstractmethod
    def append_step(self, record: bytes, seconds: float = 0) -> None:
        """Append one record to the steps of the message's key, and hold the message as `extend_visibility` does: both or neither.

        The record is durable when this returns. Steps belong to the key: every later delivery and generation of it finds them, while the key is
        remembered; `revoke` deletes them. Raises `ConfigurationError` for a message without a key. A call that is made again after a lost answer
        may append the record twice.
        """

    @abstractmethod
    def steps(self) -> list[bytes]:
        """Return the records of the key, in the order in which they were appended."""

    @abstractmethod
    def reply(self, body: ReplyT) -> None:
        """Send an answer to `reply_to`; the message stays ours."""

    @abstractmethod
    def settle(self, reply: ReplyT) -> None:
        """Reply and acknowledge as one step: both happen, or neither."""

    @abstractmethod
    def dead_letter(self, reason: str) -> None:
        """Give up on it: move it to the dead letters, and post a `Failure` to `reply_to`, as one step."""


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
        """Returns a handle on a delivery that another process of ours claimed: its body and checkpoint are None.

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
    def withdraw(self, key: str, generation: int) -> Withdrawal:
        """Takes the message of a key back while nobody holds it, ready or delayed, if it is of this generation or a lower one.

        Leaves no tombstone: the key is as after an end, so that a higher generation may be sent, and inherits the checkpoint.
        """

    @abstractmethod
    def depth(self) -> Depth: ...

    def approximate_count(self) -> int:
        """Returns the number of all messages: ready, delayed and leased."""
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
