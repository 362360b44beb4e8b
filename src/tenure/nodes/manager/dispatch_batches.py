"""Groups the orders of a leader into batches: one call of the engine for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from tenure.jobs.outbox import Dispatch

MOST_BYTES_AT_ONCE = 262_144
"""The bytes of arguments in one batch at most; a single order that is larger makes a batch of its own."""
SMALL_BYTES = 2_048
"""The most bytes of arguments with which an order leaves with the append that records it: a hundred of them fit beside the events."""
_encode = msgspec.json.Encoder().encode


def batches(orders: Sequence[Dispatch]) -> list[list[Dispatch]]:
    """Returns the orders in batches, in their order. When one order cannot be measured, each goes alone: sending it then raises why."""
    try:
        return list(_batches(orders))
    except Exception:
        return [[order] for order in orders]


def _batches(orders: Iterable[Dispatch]) -> Iterator[list[Dispatch]]:
    batch: list[Dispatch] = []
    size = 0
    for order in orders:
        own = len(_encode(order.arguments))
        if batch and size + own > MOST_BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(order)
        size += own
    if batch:
        yield batch


def by_mailbox(orders: Iterable[Dispatch]) -> list[tuple[str, list[Dispatch]]]:
    """Returns (mailbox, orders) for each run of orders to one mailbox. A mailbox comes several times where orders alternate: they keep their order."""
    return [(name, list(run)) for name, run in groupby(orders, key=lambda order: order.mailbox)]


def is_small(order: Dispatch) -> bool:
    """Returns True when the order may leave with an append. One that cannot be measured may not: sending it alone raises why."""
    try:
        return len(_encode(order.arguments)) <= SMALL_BYTES
    except Exception:
        return False
