"""How many workers a datacenter has and how much they could take: what a gate places jobs by. A leader's own memory."""

from __future__ import annotations

from typing import NamedTuple

from tenure.nodes.worker_messages import WorkerReport

HEARD_WITHIN_S = 30.0
"""A worker that was silent for longer does not count (document 001)."""


class Room(NamedTuple):
    workers: int
    capacity: int


class Census:
    """The newest word of every worker."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, int]] = {}

    def heard(self, report: WorkerReport, now: float) -> None:
        """A worker that does not tell its slots counts as one with room for one more."""
        free = report.free if report.slots else 1
        self._heard[report.start] = (now, free if report.accepting else 0)

    def room(self, now: float) -> Room:
        self._heard = {name: said for name, said in self._heard.items() if now - said[0] <= HEARD_WITHIN_S}
        return Room(len(self._heard), sum(free for _, free in self._heard.values()))
