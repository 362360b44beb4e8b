"""The metrics of gates, for Prometheus. docs/metrics.md lists every name; a test keeps the two equal.

Counters count durable decisions. Gauges are read from indexes at each scrape, so that a scrape costs the same however many jobs there are.
Labels are states, rules and the datacenters that an operator named, and never a text that a caller may choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tenure.control.messages.gates import DatacenterWord
from tenure.health.overload import OverloadState, RequestKind
from tenure.jobs.decisions import Event
from tenure.jobs.gate_decisions import GateJobEnded, GlobalDecisionMade
from tenure.jobs.gate_jobs import GateJobAccepted, GateJobRebuilt
from tenure.jobs.gate_outbox import OwedKind
from tenure.jobs.messages import JobLeaderTransfer, JobTimeoutReport
from tenure.jobs.states import JobState

if TYPE_CHECKING:
    from tenure.nodes.gate.gate import Gate

OTHER = "other"
"""The label for any datacenter that the operator did not name to this gate."""
STANDINGS = ("running", "ending", *(state.value for state in JobState if state.terminal))


class GateMetrics:
    """The counters of one gate. `count` gets each event that became durable while this gate leads."""

    def __init__(self, registry: CollectorRegistry, datacenters: Iterable[str]) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self._known = frozenset(datacenters)
        self.accepted = counter("tenure_gate_jobs_accepted", "Jobs that were accepted.")
        self.rebuilt = counter("tenure_gate_jobs_rebuilt", "Jobs that were learned back from a datacenter's report.")
        self.ended = counter("tenure_gate_jobs_ended", "Jobs that ended in every datacenter, by how.", "state")
        self.decisions = counter(
            "tenure_gate_decisions", "Decisions for every datacenter: timed_out or cancelled.", "state"
        )
        self.reports = counter("tenure_gate_reports", "What datacenters reported, by kind.", "datacenter", "kind")
        self.shed = counter("tenure_gate_shed", "Requests that were turned away for overload.", "asked", "priority")
        self.elections = counter("tenure_gate_elections_won", "How often this gate became the leader.")
        self.failures = counter(
            "tenure_gate_product_failures", "What this gate's own code raised on, by what it handled.", "on"
        )
        self._count: dict[type[Event], Callable[[Any], None]] = {
            GateJobAccepted: lambda event: self.accepted.inc(),
            GateJobRebuilt: lambda event: self.rebuilt.inc(),
            GateJobEnded: lambda event: self.ended.labels(event.state.value).inc(),
            GlobalDecisionMade: lambda event: self.decisions.labels(event.state.value).inc(),
        }

    def count(self, events: Iterable[Event]) -> None:
        for event in events:
            counted = self._count.get(type(event))
            if counted is not None:
                counted(event)

    def heard(self, datacenter: str, words: Iterable[DatacenterWord]) -> None:
        name = datacenter if datacenter in self._known else OTHER
        for word in words:
            self.reports.labels(name, _kind(word)).inc()

    def failed_on(self, what: str) -> None:
        self.failures.labels(what).inc()

    def turned_away(self, asked: RequestKind, priority: int) -> None:
        """Counts a shed request as of low, default or high priority: priorities are unbounded numbers, and labels must be a closed set."""
        rank = "low" if priority < 0 else "high" if priority > 0 else "default"
        self.shed.labels(asked.value, rank).inc()


def _kind(word: DatacenterWord) -> str:
    if isinstance(word, JobTimeoutReport):
        return "timeout"
    return "transfer" if isinstance(word, JobLeaderTransfer) else "progress"


class GateGauges(Collector):
    """The gauges of one gate, read at each scrape."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Returns nothing. Without this method, registering the collector would already read every value."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        gate, node = self._gate, self._gate.leadership
        yield _one("tenure_gate_leads", "1 on the gate that leads.", gate.leads)
        epoch = max(node.epoch, node.ledger.book.epoch)
        yield _one("tenure_gate_epoch", "The newest epoch that this gate knows.", epoch)
        yield _one("tenure_gate_journal_sequence", "How far this gate has read the journal.", node.ledger.seq)
        yield _one("tenure_gate_engine_answers", "0 while the engine does not answer.", node.engine_answers)
        yield _one("tenure_gate_clock_skew_seconds", "This machine's clock minus the engine's.", node.time.skew_s)
        yield _one("tenure_gate_link_suspect", "1 while its own link is doubted first.", gate.watch.link_suspect())
        overload = GaugeMetricFamily("tenure_gate_overload", "1 for how loaded this gate is.", labels=["state"])
        for state in OverloadState:
            overload.add_metric([state.value], float(gate.load.state is state))
        yield overload
        peers = GaugeMetricFamily("tenure_gate_peer_answers", "1 while a peer answers.", labels=["peer"])
        for peer in gate.fitness.prober.nodes.values():
            peers.add_metric([peer.address], float(peer.known and not peer.misses))
        yield peers
        yield from self._datacenters()
        if gate.leads:
            yield from self._led()

    def _datacenters(self) -> Iterator[GaugeMetricFamily]:
        health = GaugeMetricFamily(
            "tenure_gate_datacenter",
            "1 for the class of a datacenter, and the rule that gave it.",
            labels=["datacenter", "class", "rule"],
        )
        capacity = GaugeMetricFamily(
            "tenure_gate_datacenter_capacity", "Free slots, as far as this gate knows.", labels=["datacenter"]
        )
        latency = GaugeMetricFamily(
            "tenure_gate_datacenter_latency_seconds", "Of its nearest manager that answers.", labels=["datacenter"]
        )
        for place in self._gate.watch.views():
            health.add_metric([place.name, place.health, place.rule], 1)
            capacity.add_metric([place.name], place.capacity)
            latency.add_metric([place.name], place.latency_ms / 1000)
        yield from (health, capacity, latency)

    def _led(self) -> Iterator[GaugeMetricFamily]:
        leader, standings = self._gate.leadership.leader, self._gate.leadership.ledger.book.standings
        jobs = GaugeMetricFamily("tenure_gate_jobs", "Jobs that are tracked.", labels=["state"])
        for standing in STANDINGS:
            jobs.add_metric([standing], standings[standing])
        yield jobs
        owed = GaugeMetricFamily(
            "tenure_gate_owed", "What a datacenter has not acknowledged yet.", labels=["datacenter", "what"]
        )
        if leader is not None:
            counts = leader.owed
            for name in dict.fromkeys([*self._gate.watch.datacenters, *(name for name, _ in counts)]):
                for kind in OwedKind:
                    owed.add_metric([name, kind.value], counts[name, kind])
        yield owed


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))
