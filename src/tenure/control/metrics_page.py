"""Renders every node's `/metrics`: how its port answers, its process, and the metrics that the node adds."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest

_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0)


class PortMetrics:
    """A registry of its own for each node, so that several in one process do not count into each other's numbers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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

        self._dropped = Counter(
            "tenure_http_dropped",
            "Connections and bodies that were cut off, by the bound of the port that they met.",
            ["bound"],
            registry=self.registry,
        )

    def dropped(self, bound: str) -> None:
        """Bounds are a closed list: fields of `HttpLimits`, and `ahead_bytes`."""
        self._dropped.labels(bound).inc()

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Operations are a closed list; what is none of them counts as `other`."""
        name = operation or "other"
        self._requests.labels(name, str(status)).inc()
        self._seconds.labels(name).observe(seconds)

    def render(self) -> tuple[bytes, str]:
        return generate_latest(self.registry) + generate_latest(REGISTRY), CONTENT_TYPE_LATEST
