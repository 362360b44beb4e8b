"""Makes the body of a work message from an order and from the book, and groups orders into batches: one call of the engine for each.

It does not know when an order is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from tenure import tracing
from tenure.jobs.outbox import Dispatch
from tenure.nodes.fleet.fleet import Fleet
from tenure.nodes.manager.earned_time import chosen_stuck_s
from tenure.nodes.manager.ledger import JobLedger
from tenure.work.delivery import WorkItem


class WorkItems:
    """Part of a leader."""

    def __init__(self, ledger: JobLedger, fleet: Fleet) -> None:
        self._ledger, self._fleet = ledger, fleet

    def of(self, order: Dispatch) -> WorkItem:
        return WorkItem(
            workflow=order.function,
            version=order.version or None,
            args=order.arguments,
            args_at=order.arguments_at,
            job_id=order.job_id,
            workflow_id=order.workflow,
            attempt=order.attempt,
            stall_s=order.stall,
            learned_s=order.learned.seconds if order.learned is not None else None,
            tries=order.tries,
            excluded=self._excluded(order),
            managed=True,
            results=order.results,
            **self._of_job(order),
        )

    def _of_job(self, order: Dispatch) -> dict[str, Any]:
        """Returns what the job tells its work: its trace and its stuck threshold, and what work that was suspended, or gets signals, has to know."""
        info = self._ledger.book.jobs.get(order.job_id)
        if info is None:
            return {}
        known, submission = info.workflows[order.workflow], info.job.submission
        woken = known.waits.step if known.waits is not None and known.woken_by_time else ""
        return {
            # None where we derived it: the worker knows the stall that counts.
            "stuck_s": chosen_stuck_s(info, self._ledger.book),
            "trace": submission.labels.get(tracing.LABEL, ""),
            "woken": woken,
            "woken_before": known.suspensions > 0,
            "signals": tuple(info.signals),
            "undo_of": submission.undo_of,
        }

    def _excluded(self, order: Dispatch) -> tuple[str, ...]:
        """Returns the workers that must leave this order to others; empty when that would exclude every able worker and strand the work."""
        able = self._fleet.able(order.lane)
        return () if able and able <= set(order.excluded) else order.excluded


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
