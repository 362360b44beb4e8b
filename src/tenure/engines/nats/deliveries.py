"""The deliveries that the fold makes from records: for a claim at once, or later for a claim that stands."""

from __future__ import annotations

from typing import NamedTuple, Self

from tenure.engines.mailbox_records import MessageRecord


class Delivery(NamedTuple):
    """A record as it was when it was claimed: it may change before the claimer looks at it."""

    id: str
    body: bytes
    delivery_count: int
    forgiven: int
    enqueued_at: float
    reply_to: str | None
    checkpoint: bytes | None
    key: str | None
    generation: int
    is_failure: bool
    suspect: bool

    @classmethod
    def of(cls, record: MessageRecord) -> Self:
        return cls(
            record.id,
            record.body,
            record.count,
            record.base,
            record.enqueued_at,
            record.reply_to,
            record.checkpoint,
            record.key,
            record.generation,
            record.is_failure,
            record.suspect,
        )


class Awaited(NamedTuple):
    """The result of an `Await`: deliveries, or a claim that stands from `at` on."""

    at: float
    deliveries: list[Delivery]


class Handed(NamedTuple):
    """The deliveries of a standing claim, and their time."""

    receipt: str
    box: str
    lease: float
    at: float
    deliveries: list[Delivery]
