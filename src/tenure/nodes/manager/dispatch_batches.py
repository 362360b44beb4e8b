"""Orders of one mailbox together, none of them much more than an engine takes in one step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from tenure.jobs.outbox import Dispatch

MOST_BYTES_AT_ONCE = 262_144
_encode = msgspec.json.Encoder().encode


def batches(orders: Sequence[Dispatch]) -> list[tuple[str, list[Dispatch]]]:
    """Orders for one mailbox together, in their order; each alone where one of them cannot be measured: sending it will say why."""
    try:
        return list(_batches(orders))
    except Exception:
        return [(order.mailbox, [order]) for order in orders]


def _batches(orders: Iterable[Dispatch]) -> Iterator[tuple[str, list[Dispatch]]]:
    for name, group in groupby(orders, key=lambda order: order.mailbox):
        batch: list[Dispatch] = []
        size = 0
        for order in group:
            own = len(_encode(order.arguments))
            if batch and size + own > MOST_BYTES_AT_ONCE:
                yield name, batch
                batch, size = [], 0
            batch.append(order)
            size += own
        yield name, batch
