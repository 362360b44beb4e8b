"""Keeps the counts of workflows from the newest report of each datacenter, for lists. Only the leader has them, in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tenure.jobs.messages import JobProgressReport


class Counts(NamedTuple):
    total: int = 0
    completed: int = 0
    failed: int = 0
    running: int = 0


class Tally:
    """The counts of workflows, by job and datacenter."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], Counts] = {}

    def heard(self, report: JobProgressReport) -> None:
        self._newest[report.job_id, report.datacenter] = Counts(
            report.workflows_total, report.workflows_completed, report.workflows_failed, report.workflows_running
        )

    def of(self, job_id: str, datacenters: Iterable[str]) -> Counts:
        """Returns the sum of a job's counts over these datacenters."""
        known = [self._newest[job_id, name] for name in datacenters if (job_id, name) in self._newest]
        return Counts(*(sum(column) for column in zip(*known, strict=True))) if known else Counts()

    def forget(self, job_id: str, datacenters: Iterable[str]) -> None:
        for name in datacenters:
            self._newest.pop((job_id, name), None)
