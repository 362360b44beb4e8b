"""The consumer: one handle that takes work from many mailboxes and settles it, both in one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, NamedTuple

from tenure.engines.contracts.mailbox import BodyT, Message, ReplyT
from tenure.errors import TenureError


class NoReply(Enum):
    """The type of `NO_REPLY`, which no reply can be equal to."""

    NO_REPLY = "no reply"


NO_REPLY = NoReply.NO_REPLY
"""In a settlement: acknowledge only."""


class Settlement(NamedTuple, Generic[BodyT, ReplyT]):
    """One delivery that is done, with the reply to post in the same step."""

    message: Message[BodyT, ReplyT]
    reply: ReplyT | NoReply = NO_REPLY


class Exchanged(NamedTuple, Generic[BodyT, ReplyT]):
    """The outcome of one exchange."""

    messages: list[Message[BodyT, ReplyT]]
    """The deliveries that were claimed, in the order in which to start them."""
    lost: list[Message[BodyT, ReplyT]]
    """Those whose settlement had no effect, because their receipt was dead."""
    refused: Sequence[tuple[Message[BodyT, ReplyT], TenureError]] = ()
    """Those whose reply cannot be posted as it is (too large, no JSON, no `reply_to`). They are still held."""


class Consumer(ABC, Generic[BodyT, ReplyT]):
    """Takes work from many mailboxes and settles it, both in one step. Safe to share between threads."""

    @abstractmethod
    def cover(self, ranks: Sequence[Sequence[str]]) -> None:
        """Replaces the mailboxes that it claims from.

        The first rank is claimed from first. Within a rank the message comes first that became visible first, whatever mailbox it is in; one that
        was released has its old place. A long poll that is under way goes on with the new mailboxes at once.
        """

    @abstractmethod
    def exchange(
        self,
        settlements: Sequence[Settlement[BodyT, ReplyT]] = (),
        *,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        provisional: bool = False,
        claim_id: str = "",
        fair: bool = False,
    ) -> Exchanged[BodyT, ReplyT]:
        """Settles deliveries, then claims up to `max_messages` as `Mailbox.receive` does: suspect ones alone, poison ones not at all.

        Both are one round trip, and one durable step where the engine can. The settlements are applied at once, whatever there is to wait for; with
        `max_messages=0` nothing is claimed. A settlement stands for itself: that another one's receipt is dead, or its reply refused, does not
        stop it. `fair` takes the ranks from the last to the first in this call.

        After an `EngineUnavailableError` the outcome is unknown. The same call may be made again: a settlement that was done by the same receipt is
        not lost, and a `claim_id` that was given before returns those of its deliveries that are still held, if there are any. Claims
        whose answer was lost and that are not asked for again go back to their mailboxes with the next claim.
        """

    def take_at_once(self, take: Callable[[Message[BodyT, ReplyT]], None]) -> None:  # most engines never do so
        """Lets an engine give a message that comes while a provisional exchange waits to `take`, in the thread that heard of it. That exchange ends
        then, and does not return the message. `take` raises nothing."""

    @abstractmethod
    def extend(self, messages: Sequence[Message[BodyT, ReplyT]], seconds: float) -> list[Message[BodyT, ReplyT]]:
        """Holds several for this many seconds from now, as `extend_visibility` does, in one round trip. Returns those that are lost."""

    @abstractmethod
    def wake(self) -> None:
        """Ends the exchanges that wait; if none does, the next one does not wait."""

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @abstractmethod
    def close(self) -> None:
        """Ends this consumer, and wakes its long polls. Its deliveries stay valid. Later calls raise `MailboxClosedError`."""
