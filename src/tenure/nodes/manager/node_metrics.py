"""Collects everything that one manager's `/metrics` shows: its own counters and gauges, those of its port, and those of its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.clock import Clock
from tenure.control.access_log import PortMetrics
from tenure.nodes.fleet.member import verdicts
from tenure.nodes.manager.metrics import ManagerGauges, ManagerMetrics

if TYPE_CHECKING:
    from tenure.nodes.manager.candidacy import Candidacy
    from tenure.nodes.manager.manager import Manager


class NodeMetrics(PortMetrics):
    """The metrics of one manager process. `watch` adds the gauges once the manager is made."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = ManagerMetrics(self.registry)

    def watch(self, candidacy: Candidacy, manager: Manager, clock: Clock) -> None:
        def workers() -> dict[str, int]:
            return verdicts(manager.standings(), candidacy.ledger.book.state.drained)

        self.registry.register(ManagerGauges(candidacy, lambda: manager.observer.alarms, workers))
