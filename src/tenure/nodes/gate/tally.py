"""Keeps the counts of workflows from the newest report of each datacenter, for lists. Only the leader has them, in memory."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.jobs.messages import JobProgressReport
from tenure.jobs.model import GateJobTrackingInfo
from tenure.nodes.job_views import WorkflowCounts


class Tally:
    """The counts of workflows, by job and datacenter."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], WorkflowCounts] = {}

    def heard(self, report: JobProgressReport) -> None:
        self._newest[report.job_id, report.datacenter] = WorkflowCounts(
            report.workflows_total,
            report.workflows_completed,
            report.workflows_failed,
            report.workflows_running,
            report.attempts,
        )

    def of(self, info: GateJobTrackingInfo) -> WorkflowCounts:
        """Returns the sum of a job's counts over its datacenters."""
        places = [(info.job_id, name) for name in info.target_datacenters]
        known = [self._newest[place] for place in places if place in self._newest]
        return WorkflowCounts(*(sum(column) for column in zip(*known, strict=True))) if known else WorkflowCounts()

    def forget(self, job_id: str, datacenters: Iterable[str]) -> None:
        for name in datacenters:
            self._newest.pop((job_id, name), None)
