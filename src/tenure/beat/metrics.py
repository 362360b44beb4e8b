"""Counters of this folder for Prometheus, made when they are prepared or first counted, so that importing this costs nothing.

Loading the Prometheus client takes about a tenth of a second: whoever counts on a hot path prepares before it.

Labels are kinds of work and names of loops, never ids: their number is bounded by the code, not by the traffic.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter

    from tenure.beat.watchdog import Readiness

_lock = threading.Lock()
# One set of instruments per registry: a second counter of the same name would be refused by it.
_counters: WeakKeyDictionary[CollectorRegistry, dict[str, Counter]] = WeakKeyDictionary()


def counter(name: str, text: str, labels: list[str], registry: CollectorRegistry | None) -> Counter:
    """Returns the counter of this name in this registry (the process's own, when None)."""
    import prometheus_client

    registry = registry if registry is not None else prometheus_client.REGISTRY
    with _lock:
        counters = _counters.setdefault(registry, {})
        if name not in counters:
            counters[name] = prometheus_client.Counter(name, text, labels, registry=registry)
        return counters[name]


def prepare_messages(registry: CollectorRegistry | None = None) -> None:
    """Load what `count_message` needs."""
    _messages(registry)


def count_message(loop: str, ending: str, registry: CollectorRegistry | None = None) -> None:
    """`tenure_messages_total{loop, ending}`: what became of the deliveries that a loop took."""
    _messages(registry).labels(loop, ending).inc()


def _messages(registry: CollectorRegistry | None) -> Counter:
    text = "Deliveries that a loop took, by what became of them."
    return counter("tenure_messages", text, ["loop", "ending"], registry)


_EXTENSION = ["kind", "during", "outcome"]


class LeaseMetrics:
    """Counts the renewals of one kind of work."""

    def __init__(self, kind: str, registry: CollectorRegistry | None = None) -> None:
        self._kind = kind
        self._registry = registry
        self._extensions: Counter | None = None

    def prepare(self) -> Counter:
        """Load and make what `count` needs, so that no beat has to."""
        if self._extensions is None:
            text = "Attempts to renew a message's lease on a beat, by kind of work, by what it was at, and by outcome."
            self._extensions = counter("tenure_lease_extensions", text, _EXTENSION, self._registry)
        return self._extensions

    def count(self, outcome: str, during: str = "") -> None:
        """`tenure_lease_extensions_total{kind, during, outcome}`; the sum over outcomes is the number of attempts.

        `during` is the heartbeat's activity, such as the tool that an agent used.
        """
        self.prepare().labels(self._kind, during, outcome).inc()


def render_metrics(registry: CollectorRegistry | None, readiness: Readiness | None) -> tuple[bytes, str]:
    """Returns everything in this registry, and the state of each loop as it is now; with its content type."""
    import prometheus_client

    body = prometheus_client.generate_latest(registry if registry is not None else prometheus_client.REGISTRY)
    if readiness is not None:
        body += prometheus_client.generate_latest(_loop_gauges(readiness))
    return body, prometheus_client.CONTENT_TYPE_LATEST


def _loop_gauges(readiness: Readiness) -> CollectorRegistry:
    """Made for each scrape: an age is true only at the moment when it is asked for."""
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    age = Gauge("tenure_loop_beat_age_seconds", "Seconds since the last beat.", ["loop"], registry=registry)
    silence = Gauge("tenure_loop_silence_seconds", "Seconds of undeclared silence.", ["loop"], registry=registry)
    beats = Gauge("tenure_loop_beats", "Beats since the loop was made.", ["loop"], registry=registry)
    ready = Gauge("tenure_loop_ready", "1 when the loop takes work.", ["loop", "state"], registry=registry)
    for name, vitals in readiness.loops.items():
        age.labels(name).set(vitals.beat_age_s)
        silence.labels(name).set(vitals.silent_s)
        beats.labels(name).set(vitals.beats)
        ready.labels(name, vitals.state).set(name not in readiness.reasons)
    return registry
