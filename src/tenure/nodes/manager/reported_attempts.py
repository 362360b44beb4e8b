"""Finds attempts and workers in the newest reports of workers. The memory of one leader: it dies with the term."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenure.control.messages.nodes import RunningAttempt
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.nodes.job_views import report_grants


class HeardReport(NamedTuple):
    """A report, and the engine's time at which it came. The seconds in the report count from then."""

    report: WorkerReport
    at: float


class ReportedAttempt(NamedTuple):
    """The newest report of an attempt, and the start of a worker that sent it."""

    attempt: AttemptReport
    start: str


class ReportedAttempts:
    """The newest report of each start of a worker, with two indexes over the attempts in it.

    Reports are kept by start (incarnation), not by worker: two starts under one name must not hide each other's attempts.
    """

    def __init__(self) -> None:
        self._reports: dict[str, HeardReport] = {}
        """Maps each start to its newest report. The indexes below hold the attempts of these reports, and no others."""
        self._attempts: dict[tuple[str, str], ReportedAttempt] = {}
        """Maps (job, workflow) to the newest report of its attempt."""
        self._starts: dict[str, dict[str, None]] = {}
        """Maps each job to the starts that run something of it, in the order in which they reported it."""

    def remember(self, report: WorkerReport, now: float) -> None:
        """Replaces the report of this start. A report that a newer one overtook on its way changes nothing."""
        before = self._reports.get(report.start)
        if before is not None and report.number < before.report.number:
            return
        self._drop(report.start)
        self._reports[report.start] = HeardReport(report, now)
        for one in report.attempts:
            self._attempts[(one.job_id, one.workflow)] = ReportedAttempt(one, report.start)
            self._starts.setdefault(one.job_id, {})[report.start] = None

    def forget(self, start: str) -> None:
        self._drop(start)
        self._reports.pop(start, None)

    def _drop(self, start: str) -> None:
        """Takes the attempts of a start out of the indexes."""
        heard = self._reports.get(start)
        for one in heard.report.attempts if heard is not None else ():
            key = one.job_id, one.workflow
            newest = self._attempts.get(key)
            if newest is not None and newest.start == start:  # else another start has reported this attempt since
                del self._attempts[key]
            starts = self._starts.get(one.job_id, {})
            starts.pop(start, None)
            if not starts:
                self._starts.pop(one.job_id, None)

    def attempt(self, job_id: str, workflow: str) -> ReportedAttempt | None:
        return self._attempts.get((job_id, workflow))

    def report(self, start: str) -> HeardReport | None:
        return self._reports.get(start)

    def reports(self) -> Iterator[WorkerReport]:
        """Yields the newest report of each start. The caller may forget starts meanwhile."""
        return iter([heard.report for heard in self._reports.values()])

    def starts_of_job(self, job_id: str) -> list[str]:
        """Returns the starts that run something of this job."""
        return list(self._starts.get(job_id, ()))

    def starts_of_worker(self, worker: str) -> list[str]:
        return [start for start, heard in self._reports.items() if heard.report.worker == worker]

    def running(self) -> dict[str, list[RunningAttempt]]:
        """Maps each worker to the attempts that it runs, by its newest report."""
        found: dict[str, list[RunningAttempt]] = {}
        for report, at in self._reports.values():
            found.setdefault(report.worker, []).extend(
                RunningAttempt(
                    job_id=one.job_id,
                    workflow=one.workflow,
                    attempt=one.attempt,
                    steps=one.steps,
                    fraction=one.fraction,
                    note=one.note,
                    grants=report_grants(one, at),
                )
                for one in report.attempts
            )
        return found
