"""Metrics of engines for Prometheus: the duration of each operation, and its errors.

The instruments are made when the first operation is counted, so that opening an engine does not import the library. Labels
are the kind of engine, the operation and the class of the error: their number is bounded by the code, not by the traffic.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_lock = threading.Lock()


class _Instruments(NamedTuple):
    seconds: Histogram
    errors: Counter


# One set per registry: a second instrument of the same name would be refused by it.
_instruments: WeakKeyDictionary[CollectorRegistry, _Instruments] = WeakKeyDictionary()


def _of(registry: CollectorRegistry | None) -> _Instruments:
    import prometheus_client as prometheus

    registry = registry if registry is not None else prometheus.REGISTRY
    with _lock:
        if registry not in _instruments:
            _instruments[registry] = _Instruments(
                prometheus.Histogram(
                    "tenure_engine_operation_seconds",
                    "Round trips to the engine, by operation; waiting for a message is not part of them.",
                    ["engine", "operation"],
                    buckets=_BUCKETS,
                    registry=registry,
                ),
                prometheus.Counter(
                    "tenure_engine_errors",
                    "Operations that the engine did not do, by class of error.",
                    ["engine", "operation", "error"],
                    registry=registry,
                ),
            )
        return _instruments[registry]


class OperationMetrics:
    """Counts the operations of one engine object."""

    def __init__(self, engine: str, registry: CollectorRegistry | None = None) -> None:
        self._engine, self._registry = engine, registry
        self._timers: dict[str, Histogram] = {}

    def took(self, operation: str, seconds: float) -> None:
        timer = self._timers.get(operation)
        if timer is None:
            timer = self._timers[operation] = _of(self._registry).seconds.labels(self._engine, operation)
        timer.observe(seconds)

    def failed(self, operation: str, error: BaseException) -> None:
        _of(self._registry).errors.labels(self._engine, operation, type(error).__name__).inc()
