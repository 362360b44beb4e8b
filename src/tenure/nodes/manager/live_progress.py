"""Keeps how the fraction of each running workflow rises on the leader, for people who look: the estimated end, and lines for a stream.

The estimate also uses what the journal has learned of the workflow and its worker (decision 0440).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from tenure.control.messages.events import ProgressLine
from tenure.control.messages.workers import AttemptReport
from tenure.jobs.eta import Eta, EtaWindow, estimate
from tenure.jobs.learned_rates import usual
from tenure.jobs.model import JobInfo
from tenure.nodes.fleet.member import ReportedAttempts
from tenure.nodes.manager.ledger import JobLedger


class LiveProgress:
    """Part of a leader. Nothing is decided by it."""

    def __init__(self, ledger: JobLedger, reported: ReportedAttempts, now: Callable[[], float]) -> None:
        self._ledger, self._reported, self._now = ledger, reported, now
        self._windows: dict[tuple[str, str], EtaWindow] = {}
        """Maps (job, workflow) to the fraction of its newest attempt over time."""

    def note(self, one: AttemptReport, now: float) -> None:
        """Notes the fraction that a worker reports of an attempt."""
        if one.fraction is None:
            return
        key, attempt = (one.job_id, one.workflow), (one.attempt, one.delivery)
        window = self._windows.get(key)
        if window is None or window.attempt != attempt:
            window = self._windows[key] = EtaWindow(attempt)
        window.look(now, one.fraction)

    def forget(self, info: JobInfo) -> None:
        """Drops what is known of a job that has ended."""
        for name in info.workflows:
            self._windows.pop((info.id, name), None)

    def eta(self, job_id: str, workflow: str, fraction: float | None) -> Eta | None:
        """Returns when a running workflow will be done; None where nobody can say."""
        book, now, window = self._ledger.book, self._now(), self._windows.get((job_id, workflow))
        info = book.jobs.get(job_id)
        known = info.workflows.get(workflow) if info is not None else None
        if known is None:
            return None
        expected = usual(book.state.rates, known.spec, known.worker)
        return estimate(expected, window, now, lasted_s=max(0.0, now - known.started_at), fraction=fraction)

    def lines(self, job_ids: list[str] | None, most: int) -> list[ProgressLine]:
        """Returns the newest progress of what runs, of some jobs or of all; at most so many."""
        return [
            ProgressLine(
                job_id=one.job_id,
                workflow=one.workflow,
                attempt=one.attempt,
                at=heard.at,
                worker=heard.report.worker,
                steps=one.steps,
                fraction=one.fraction,
                note=one.note,
                silent_s=one.silent_s,
                eta=self.eta(one.job_id, one.workflow, one.fraction),
            )
            for heard, one in islice(self._reported.running_of(job_ids), most)
        ]
