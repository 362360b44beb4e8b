"""Runs a gate as a process: makes it of an open engine and port, and shows its metrics to Prometheus.

Counters count durable decisions; a scrape reads the gauges (`nodes.metrics`).
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from tenure.bound_checks import check
from tenure.bounds import DatacenterName
from tenure.clock import Clock, SystemClock
from tenure.control.access_log import PortMetrics
from tenure.control.caller import parse_address
from tenure.control.messages.gates import DatacenterWord
from tenure.control.messages.wire import GATE_PORT
from tenure.errors import ConfigurationError
from tenure.health.overload import OverloadConfig, OverloadState, RequestKind
from tenure.jobs.decisions import Event
from tenure.jobs.gate_decisions import GateJobEnded, GlobalDecisionMade
from tenure.jobs.gate_jobs import GateJobAccepted, GateJobRebuilt
from tenure.jobs.gate_outbox import OwedKind
from tenure.jobs.messages import JobLeaderTransfer, JobTimeoutReport
from tenure.jobs.settings import GateSettings
from tenure.jobs.states import JobState
from tenure.logs import NodeLog
from tenure.nodes.gate.gate import Gate, GateSetup
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.node_process import AnsweringNode, NodeGauges, NodeSettings, gauge, gauges, node_process, readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class GateNodeSettings(NodeSettings):
    """The settings of one gate process."""

    datacenters: Mapping[str, Sequence[str]]
    """The addresses of each datacenter's managers, by its name."""
    peers: Sequence[str] = ()
    """The addresses of the other gates on the same engine."""
    port: int = GATE_PORT
    gate: GateSettings = field(default_factory=GateSettings)
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    overload: OverloadConfig = field(default_factory=OverloadConfig)

    def __post_init__(self) -> None:
        NodeSettings.__post_init__(self)  # `super()` does not find the class that `slots` makes anew
        for name in self.datacenters:
            check(name, DatacenterName, field="datacenter")
        for address in [*self.peers, *(one for addresses in self.datacenters.values() for one in addresses)]:
            parse_address(address)

    @property
    def setup(self) -> GateSetup:
        return GateSetup(self.datacenters, self.peers, self.term_s, self.gate, self.probes, self.overload)


def parse_datacenters(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parses `name=host:port,host:port`, one text for each datacenter."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, addresses = text.partition("=")
        known = [address for address in addresses.split(",") if address]
        if not equals or not name or not known or name in found:
            raise ConfigurationError(
                f"{text!r} does not name a datacenter and its managers",
                remedy="Write each once, as eu=10.0.0.1:8470,10.0.0.2:8470",
            )
        for address in known:
            parse_address(address)
        found[name] = known
    return found


async def serve_gate(
    settings: GateNodeSettings,
    stop: asyncio.Event,
    *,
    log: NodeLog,
    on_ready: Callable[[str], None] = lambda address: None,
    clock: Clock | None = None,
) -> None:
    """Serves until `stop` is set. Then the gate resigns, so that the next leader need not wait for the end of its term."""
    clock, metrics = clock or SystemClock(), PortMetrics()
    async with node_process(
        settings, {"node": "gate"}, metrics, kind="gate", clock=clock, log=log, stop=stop
    ) as process:
        gate = Gate(
            settings.name,
            process.address,
            process.environment,
            settings.setup,
            process.caller,
            metrics=GateMetrics(metrics.registry, settings.datacenters),
            tokens=process.tokens,
        )
        metrics.registry.register(GateGauges(gate))
        await process.run(AnsweringNode(gate.answer, gate.stream, lambda: _ready(gate)), gate.run, stop, on_ready)


def _ready(gate: Gate) -> tuple[bool, dict[str, Any]]:
    """Returns the readiness of a gate. One that does not lead is ready, too, when its engine answers and its link is not suspect."""
    seen = {place.name: {"health": place.health, "reason": place.reason} for place in gate.watch.views()}
    return readiness(gate.unready, gate.failures.alarms(), datacenters=seen)


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


class GateGauges(NodeGauges):
    """The gauges of one gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__("gate", gate.leadership)
        self._gate = gate

    def shown(self) -> Iterator[GaugeMetricFamily]:
        gate, places = self._gate, self._gate.watch.views()
        yield gauge("tenure_gate_link_suspect", "1 while its own link is doubted first.", gate.watch.link_suspect())
        load = {state.value: gate.load.state is state for state in OverloadState}
        yield gauges("tenure_gate_overload", "1 for how loaded this gate is.", ["state"], load)
        peers = {peer.address: peer.known and not peer.misses for peer in gate.fitness.prober.nodes.values()}
        yield gauges("tenure_gate_peer_answers", "1 while a peer answers.", ["peer"], peers)
        judged = {(peer, gate.fitness.verdict(peer).decision.value): 1 for peer in peers}
        yield gauges("tenure_gate_peer", "1 for the verdict on a peer.", ["peer", "verdict"], judged)
        yield gauges(
            "tenure_gate_datacenter",
            "1 for the class of a datacenter, and the rule that gave it.",
            ["datacenter", "class", "rule"],
            {(place.name, place.health, place.rule): 1 for place in places},
        )
        verdicts = {(place.name, one.address, one.verdict): 1 for place in places for one in place.managers}
        yield gauges(
            "tenure_gate_manager", "1 for the verdict on a manager.", ["datacenter", "manager", "verdict"], verdicts
        )
        capacity = {place.name: place.capacity for place in places}
        yield gauges(
            "tenure_gate_datacenter_capacity", "Free slots, as far as this gate knows.", ["datacenter"], capacity
        )
        latency = {place.name: place.latency_ms / 1000 for place in places}
        yield gauges(
            "tenure_gate_datacenter_latency_seconds", "Of its nearest manager that answers.", ["datacenter"], latency
        )

    def led(self) -> Iterator[GaugeMetricFamily]:
        leader, standings = self._gate.leadership.leader, self._gate.leadership.ledger.book.standings
        yield gauges(
            "tenure_gate_jobs", "Jobs that are tracked.", ["state"], {one: standings[one] for one in STANDINGS}
        )
        counts = leader.owed if leader is not None else Counted()
        names = dict.fromkeys([*self._gate.watch.datacenters, *(name for name, _ in counts)])
        yield gauges(
            "tenure_gate_owed",
            "What a datacenter has not acknowledged yet.",
            ["datacenter", "what"],
            {(name, kind.value): counts[name, kind] for name in names for kind in OwedKind},
        )
