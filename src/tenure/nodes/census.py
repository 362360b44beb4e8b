"""How many workers a datacenter has and how much they could take: what a gate places jobs by. A leader's own memory."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tenure.health.signals import RoutingDecision
from tenure.jobs.alarms import Crew
from tenure.nodes.worker_messages import WorkerReport

HEARD_WITHIN_S = 30.0
"""A worker that was silent for longer does not count (document 001)."""


class Room(NamedTuple):
    workers: int
    capacity: int


class Census:
    """The newest word of every worker."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, WorkerReport]] = {}

    def heard(self, report: WorkerReport, now: float) -> None:
        if report.leaving:
            self._heard.pop(report.start, None)
        else:
            self._heard[report.start] = (now, report)

    def room(self, now: float) -> Room:
        present = self._present(now)
        return Room(len(present), sum(map(_free, present)))

    def crew(self, mailbox: str, now: float) -> Crew:
        """Those who serve one mailbox; a worker that does not say which it serves may serve this one."""
        serving = [report for report in self._present(now) if mailbox in report.lanes or not report.lanes]
        accepting = [report for report in serving if _takes(report)]
        return Crew(len(serving), len(accepting), sum(map(_free, accepting)))

    def verdicts(self, now: float) -> dict[str, int]:
        """How many workers act under each verdict."""
        return dict(Counter(report.verdict.value if report.verdict else "unknown" for report in self._present(now)))

    def _present(self, now: float) -> list[WorkerReport]:
        self._heard = {name: said for name, said in self._heard.items() if now - said[0] <= HEARD_WITHIN_S}
        return [report for _, report in self._heard.values()]


def _takes(report: WorkerReport) -> bool:
    return report.accepting and report.verdict not in (RoutingDecision.DRAIN, RoutingDecision.EVICT)


def _free(report: WorkerReport) -> int:
    """A worker that does not tell its slots counts as one with room for one more."""
    return (report.free if report.slots else 1) if report.accepting else 0
