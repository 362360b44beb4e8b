"""Makes the body of a work message from an order and from the book. It does not know when an order is sent."""

from __future__ import annotations

from typing import Any

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
            stuck_s=self._stuck_s(order.job_id),
            tries=order.tries,
            excluded=self._excluded(order),
            managed=True,
            trace=self._trace(order.job_id),
            results=order.results,
            **self._wake_up(order),
        )

    def _wake_up(self, order: Dispatch) -> dict[str, Any]:
        """Returns what work that was suspended, or gets signals, has to know."""
        info = self._ledger.book.jobs.get(order.job_id)
        if info is None:
            return {}
        known = info.workflows[order.workflow]
        woken = known.waits.step if known.waits is not None and known.woken_by_time else ""
        return {
            "woken": woken,
            "woken_before": known.suspensions > 0,
            "signals": tuple(info.signals),
            "undo_of": info.job.submission.undo_of,
        }

    def _stuck_s(self, job_id: str) -> float | None:
        """Returns the stuck threshold that the submission asked for; None where we derived it: the worker knows the stall that counts."""
        info = self._ledger.book.jobs.get(job_id)
        return chosen_stuck_s(info, self._ledger.book) if info is not None else None

    def _trace(self, job_id: str) -> str:
        info = self._ledger.book.jobs.get(job_id)
        return info.job.submission.labels.get(tracing.LABEL, "") if info is not None else ""

    def _excluded(self, order: Dispatch) -> tuple[str, ...]:
        """Returns the workers that must leave this order to others; empty when that would exclude every able worker and strand the work."""
        able = self._fleet.able(order.lane)
        return () if able and able <= set(order.excluded) else order.excluded
