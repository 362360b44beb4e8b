"""Everything that one manager's `/metrics` shows: its own counters and gauges, those of its port, and those of its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest

from tenure.clock import Clock
from tenure.nodes.fleet.census import verdicts
from tenure.nodes.manager.metrics import ManagerGauges, ManagerMetrics

if TYPE_CHECKING:
    from tenure.nodes.manager.candidacy import Candidacy
    from tenure.nodes.manager.manager import Manager

_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0)


class NodeMetrics:
    """A registry of its own for each node, so that several in one process do not count into each other's numbers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.manager = ManagerMetrics(self.registry)
        self._requests = Counter(
            "tenure_http_requests",
            "Requests that were answered, by operation and status.",
            ["operation", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tenure_http_request_seconds",
            "How long an answer took, with what it was asked to wait.",
            ["operation"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def watch(self, candidacy: Candidacy, manager: Manager, clock: Clock) -> None:
        def workers() -> dict[str, int]:
            return verdicts(manager.standings(), candidacy.ledger.book.state.drained)

        self.registry.register(ManagerGauges(candidacy, lambda: manager.observer.alarms, workers))

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Operations are a closed list; what is none of them counts as `other`."""
        name = operation or "other"
        self._requests.labels(name, str(status)).inc()
        self._seconds.labels(name).observe(seconds)

    def render(self) -> tuple[bytes, str]:
        return generate_latest(self.registry) + generate_latest(REGISTRY), CONTENT_TYPE_LATEST
