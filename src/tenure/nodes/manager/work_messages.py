"""The messages of work in the engine: makes them of orders, groups them into batches of one call each, and takes back what nobody shall start.

Nobody shall start work that no worker serves any more, and that of paused jobs. `WorkItems` does not know when an order is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from tenure import tracing
from tenure.engines.contracts import Mailbox, Withdrawal
from tenure.jobs import Decision
from tenure.jobs.attempts import RecordWithdrawn
from tenure.jobs.book import JobBook
from tenure.jobs.outbox import Dispatch, mailbox_of, message_key, to_take_back, to_withdraw
from tenure.jobs.states import WorkflowState
from tenure.jobs.work_indexes import WorkflowKey
from tenure.nodes.fleet.fleet import Fleet
from tenure.nodes.manager.earned_time import chosen_stuck_s
from tenure.nodes.manager.ledger import JobLedger, JobMandate, ResultIntake
from tenure.nodes.term_leader import JobStrikes
from tenure.work.delivery import WorkItem, WorkResult


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
        if not order.excluded:
            return ()
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


PARKING = "taking it back from the engine"
MOST_WITHDRAWN = 200
WITHDRAW_AFTER_S = 10.0
"""The seconds after the last worker left for which its work stays in the engine."""
SHARED_AFTER_S = 1.0
"""The seconds after the catalogue came into force for which work that nobody serves stays in a mailbox that all workflows share. It was sent before
anybody had registered, and what is behind it waits for it (decision 0521)."""
PAUSED_AGAIN_S = 2.0
"""The pause between two looks at messages of paused jobs that a worker had claimed and not started."""


class Withdrawals:
    """Part of a leader: `tend` is one of its steps."""

    def __init__(
        self,
        mandate: JobMandate,
        strikes: JobStrikes[Decision],
        results: ResultIntake,
        mailbox: Callable[[str], Mailbox[WorkItem, WorkResult]],
    ) -> None:
        self._ledger, self._strikes, self._results, self._mailbox = mandate.ledger, strikes, results, mailbox
        self._calls, self._now = mandate.environment.calls, mandate.now
        self._was_leased = False
        """True when the last look found a message in a shared mailbox that a worker had claimed."""
        self._looked_at = -math.inf
        """The time of the last look at paused jobs."""
        self._looked_for: float | None = None
        """The `lost_at` for which the mailboxes that all workflows share have been looked through."""

    def next_due(self) -> float:
        return min(self._shared_at(), self._unserved_at(), self._paused_at())

    async def tend(self) -> None:
        """Takes back what nobody serves any more, some seconds after the last worker left: a worker that restarts finds its work where it was.
        The messages of paused jobs are taken back at once."""
        if self._ledger.book.lost_at is None and not self._ledger.book.paused:
            return
        now = self._now()
        if now >= self._shared_at():
            looks_for = self._ledger.book.lost_at
            if await self._withdraw(partial(to_withdraw, limit=MOST_WITHDRAWN, shared_only=True)) < MOST_WITHDRAWN:
                self._looked_for = looks_for
        if now >= self._unserved_at():
            await self._withdraw(partial(to_withdraw, limit=MOST_WITHDRAWN), unserved=True)
        if now >= self._paused_at():
            self._looked_at = now
            await self._withdraw(partial(to_take_back, limit=MOST_WITHDRAWN))

    async def _withdraw(self, choose: Callable[[JobBook], list[WorkflowKey]], *, unserved: bool = False) -> int:
        """Returns how many messages were gone from the engine afterwards."""
        gone: list[tuple[str, str, int]] = []
        self._was_leased = False
        for key in await self._ledger.read(choose):
            await self._strikes.attempt(key[0], partial(self._take_back, key, gone), PARKING)
        if unserved and len(gone) < MOST_WITHDRAWN:
            # What is leased now runs, or comes back to a worker. Set before anything is waited for: a worker that leaves meanwhile sets it anew.
            # What a mailbox shares comes back to one that does not know it, so it is looked for again.
            self._ledger.book.lost_at = self._now() if self._was_leased else None
        # A message may be absent because its work has just ended: then it is not recorded as taken back.
        await self._results.drain()
        await self._strikes.commit_all(
            [
                RecordWithdrawn(by="leader", job_id=job_id, workflow=name, attempt=attempt)
                for job_id, name, attempt in gone
            ],
            PARKING,
        )
        return len(gone)

    def _shared_at(self) -> float:
        book = self._ledger.book
        if book.lost_at is None or book.lost_at == self._looked_for:
            return math.inf
        return max(book.lost_at, book.state.elected_at) + SHARED_AFTER_S

    def _unserved_at(self) -> float:
        book = self._ledger.book
        return math.inf if book.lost_at is None else max(book.lost_at, book.state.elected_at) + WITHDRAW_AFTER_S

    def _paused_at(self) -> float:
        book = self._ledger.book
        return self._looked_at + PAUSED_AGAIN_S if book.paused and to_take_back(book, limit=1) else math.inf

    async def _take_back(self, key: WorkflowKey, gone: list[tuple[str, str, int]]) -> None:
        info = self._ledger.book.jobs[key[0]]
        workflow = info.workflows[key[1]]
        mailbox = self._mailbox(mailbox_of(info, workflow))
        found = await self._calls.run(mailbox.withdraw, message_key(*key), workflow.generation)
        self._was_leased = self._was_leased or (found is Withdrawal.LEASED and not workflow.by_workflow)
        # One that is absent was taken back by a leader that died before it recorded that.
        if found is not Withdrawal.LEASED and workflow.state is WorkflowState.QUEUED:
            gone.append((*key, workflow.attempt))
