"""The records of a mailbox: its messages and its keys, as `MailboxState` keeps them and as the NATS engine writes them into snapshots.

`claim_ranked` decides which message of several mailboxes comes next. The memory and the NATS engine share it; it is told the time and does no
I/O, and is alike in every process that folds the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tenure.engines.contracts import DeadLetter, Failure, FailureCause

if TYPE_CHECKING:
    from tenure.engines.mailbox_state import MailboxState


class MessageState(IntEnum):
    """The three things that a live message can be. One that was settled, withdrawn or buried is none of them: it has no ticket."""

    READY = 0
    DELAYED = 1
    LEASED = 2


class DeliveryStage(IntEnum):
    """How far the delivery under lease has come; it decides whether the delivery counts."""

    CLAIMED = 0  # provisional: uncounted again when it is released or runs out
    HELD = 1  # uncounted again only when it is released
    STARTED = 2  # extended: it may have had effects, so its fence is never given out again
    HANDED = 3  # to a standing claim that has not confirmed it: as STARTED, but forgiven when it runs out
    # Provisional, by a claim that knows suspects: uncounted again when it is released, forgiven when it runs out.
    UNSTARTED = 4
    OFFERED = 5  # UNSTARTED once its standing claim confirms it; nobody may have had it, so it makes nothing suspect


READY, DELAYED, LEASED = MessageState
CLAIMED, HELD, STARTED, HANDED, UNSTARTED, OFFERED = DeliveryStage

NOT_TAKEN = (HANDED, OFFERED)
"""Stages of a delivery that its new holder has not confirmed. When it runs out, nobody need have seen the message."""


class MessageRecord(msgspec.Struct, gc=False):
    """A live message, or the one that a dead letter would bring back. Only its mailbox's state changes it.

    The NATS engine writes it into snapshots as it is: the names of its fields are a format. It holds no containers, so the
    garbage collector need not look at it.
    """

    id: str
    body: bytes
    enqueued_at: float
    reply_to: str | None = None
    key: str | None = None
    generation: int = 0
    checkpoint: bytes | None = None
    is_failure: bool = False
    state: MessageState = READY
    stage: DeliveryStage = HELD
    receipt: str = ""
    count: int = 0
    base: int = 0  # deliveries that are forgiven: before the last replay, handed over, or never started
    # When a lease runs out, or a delay ends. While it is ready: since when it is visible, or 0 where that is since it was sent.
    due: float = 0.0
    # Of its one valid place: while it is delayed or leased, the timer with this ticket is its only one. 0 when it is not live.
    ticket: int = 0
    suspect: bool = False  # its last claim ran out, and no holder has released or nacked it since
    # Why a receipt is dead although its lease would still run. Only records that are gone have it, so no snapshot does.
    ended: str | msgspec.UnsetType = msgspec.UNSET

    def is_held(self, receipt: str, now: float) -> bool:
        """Returns True while the delivery with this receipt is under way, whether or not its mailbox was promoted to `now`."""
        return self.receipt == receipt and self.due > now and self.state is LEASED and self.ticket != 0

    def dead_letter(self, cause: FailureCause, reason: str, died_at: float) -> DeadLetter:
        return DeadLetter(
            id=self.id,
            body=self.body,
            cause=cause,
            reason=reason,
            died_at=died_at,
            enqueued_at=self.enqueued_at,
            delivery_count=self.count,
            key=self.key,
            generation=self.generation,
            reply_to=self.reply_to,
            checkpoint=self.checkpoint,
        )

    def failure(self, mailbox: str, cause: FailureCause, reason: str) -> Failure:
        """Returns the news that it is a dead letter."""
        return Failure(
            message_id=self.id,
            mailbox=mailbox,
            cause=cause,
            reason=reason,
            key=self.key,
            generation=self.generation,
            delivery_count=self.count,
        )


class KeyRecord(msgspec.Struct):
    """A key: its newest generation, and the id of the message that carries it while that lives. Written into snapshots."""

    generation: int
    live: str | None = None
    revoked: bool = False
    ended_at: float = inf
    checkpoint: bytes | None = None
    steps: list[bytes] = []
    """The records of finished steps, for every later delivery and generation. Only ever appended to."""


StateT = TypeVar("StateT", bound="MailboxState")


def claim_ranked(
    ranks: Sequence[Sequence[StateT]],
    most: int,
    claim: Callable[[StateT, bool], MessageRecord | None],
    take: Callable[[StateT, MessageRecord], bool],
) -> int:
    """Claims from the first rank first, and within a rank what has been visible for longest. The callers have promoted the states.

    `claim(state, first)` leases the next message of one mailbox; `take` says whether a delivery counts, as one that cannot be decoded does not.
    Returns the number of deliveries. A batch ends before the first suspect message; one that comes first is the whole batch.
    """
    taken = 0
    for rank in ranks:
        heads = [(since, place) for place, state in enumerate(rank) if (since := visible_since(state)) is not None]
        heapify(heads)
        while heads:
            state = rank[heads[0][1]]
            record = claim(state, taken == 0)
            if record is None and visible_since(state) is not None:
                return taken  # a suspect one, and we have others
            if record is not None and take(state, record):
                taken += 1
                if record.suspect or taken == most:
                    return taken
            _, place = heappop(heads)
            if (since := visible_since(state)) is not None:
                heappush(heads, (since, place))
    return taken


def visible_since(state: MailboxState) -> float | None:
    """Returns when the next message of a mailbox became visible; None when there is none. A released one has its old place."""
    head = state.next_ready()
    return None if head is None else head.due or head.enqueued_at - state.epoch
