"""Keeps how the fraction of each running workflow rises on the leader, for people who look: the estimated end, and lines for a stream."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from tenure.control.messages.events import ProgressLine
from tenure.control.messages.workers import AttemptReport
from tenure.jobs.eta import Eta, EtaWindow
from tenure.jobs.model import JobInfo
from tenure.nodes.fleet.member import ReportedAttempts


class LiveProgress:
    """Part of a leader. Nothing is decided by it."""

    def __init__(self, reported: ReportedAttempts, now: Callable[[], float]) -> None:
        self._reported, self._now = reported, now
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
        """Returns when a running workflow will be done at its rate; None where nobody can say."""
        window = self._windows.get((job_id, workflow))
        return window.eta(self._now(), fraction) if window is not None and fraction is not None else None

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
