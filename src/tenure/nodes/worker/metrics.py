"""Shows the metrics of a worker to Prometheus, and its readiness to an orchestrator. docs/metrics.md lists every name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tenure.beat.probes import HealthServer
from tenure.beat.watchdog import Readiness
from tenure.clock import Clock
from tenure.nodes.slot_runner import SlotsView

if TYPE_CHECKING:
    from tenure.nodes.worker.supervised_slots import SupervisedSlots
    from tenure.nodes.worker.worker import ManagedWorker

NodeOf = Callable[[], "ManagedWorker | None"]


class WorkerGauges(Collector):
    """Reads the slots at each scrape. The counters count the present incarnation: an eviction starts them anew, as a restart does."""

    def __init__(self, view: Callable[[], SlotsView], node: NodeOf, clock: Clock) -> None:
        self._view, self._node, self._clock = view, node, clock

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Returns nothing. Without this method, registering the collector would already read every value."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        view = self._view()
        slots = GaugeMetricFamily("tenure_worker_slots", "Slots, by whether they have work.", labels=["state"])
        slots.add_metric(["free"], view.free)
        slots.add_metric(["busy"], len(view.attempts))
        yield slots
        yield GaugeMetricFamily("tenure_worker_accepting", "0 while it takes no work.", value=float(view.accepting))
        silence = max((one.silent_s for one in view.attempts), default=0.0)
        yield GaugeMetricFamily("tenure_worker_longest_silence_seconds", "Since a running attempt beat.", value=silence)
        for name, text, value in (
            ("tenure_worker_completed", "Attempts that ended with a result.", view.completed),
            ("tenure_worker_failed", "Attempts that ended without one.", view.failed),
            ("tenure_worker_steps", "Steps of progress of all attempts.", view.steps),
            ("tenure_worker_mishaps", "Errors of Tenure itself that ended one attempt or one look.", view.mishaps),
        ):
            yield CounterMetricFamily(name, text, value=float(value))
        yield from self._led(self._node())

    def _led(self, node: ManagedWorker | None) -> Iterator[GaugeMetricFamily]:
        verdict = GaugeMetricFamily("tenure_worker_verdict", "1 for the verdict it acts under.", labels=["verdict"])
        if node is not None:
            verdict.add_metric([node.verdict.value if node.verdict else "unknown"], 1)
        yield verdict
        heard = self._clock.monotonic() - node.heard_at if node is not None and node.heard_at is not None else 0.0
        yield GaugeMetricFamily("tenure_worker_leader_silent_seconds", "Since a leader answered it.", value=heard)


def serve_probes(slots: SupervisedSlots, node: NodeOf, host: str, port: int, clock: Clock) -> HealthServer:
    """Serves the probes and the metrics of one worker process. The caller stops the server. Raises `PortTakenError`."""
    REGISTRY.register(WorkerGauges(slots.view, node, clock))
    server = HealthServer(port, host=host, readiness=worker_readiness(slots, node), clock=clock)
    server.start()
    return server


def worker_readiness(slots: SupervisedSlots, node: NodeOf) -> Callable[[], Readiness]:
    """Returns the readiness check of a worker: ready while it could take work.

    A worker whose leader is away is ready, because it goes on under its last verdict.
    """

    def check() -> Readiness:
        reasons = {}
        supervisor = slots.supervisor
        if supervisor.broken is not None:
            reasons["modules"] = supervisor.broken.reason
        elif not supervisor.ready.is_set():
            reasons["slots"] = "they are not up yet"
        elif not supervisor.accepting:
            reasons["slots"] = "it drains"
        present = node()
        if present is not None and present.verdict is not None and present.verdict.value in ("drain", "evict"):
            reasons["leader"] = f"the leader's verdict is {present.verdict}"
        return Readiness(not reasons, reasons)

    return check
