"""Collects everything that one manager's `/metrics` shows: its own counters and gauges, those of its port, and those of its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.control.access_log import PortMetrics
from tenure.nodes.fleet.member import verdicts
from tenure.nodes.manager.metrics import ManagerGauges, ManagerMetrics

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager


class NodeMetrics(PortMetrics):
    """The metrics of one manager process. `watch` adds the gauges once the manager is made."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = ManagerMetrics(self.registry)

    def watch(self, manager: Manager) -> None:
        def workers() -> dict[str, int]:
            return verdicts(manager.standings(), manager.ledger.book.state.drained)

        self.registry.register(ManagerGauges(manager.leadership, lambda: manager.observer.alarms, workers))
