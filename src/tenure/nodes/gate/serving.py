"""Runs a gate as a process: makes it of an open engine and port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.bound_checks import check
from tenure.bounds import DatacenterName
from tenure.clock import Clock, SystemClock
from tenure.control.access_log import PortMetrics
from tenure.control.caller import parse_address
from tenure.errors import ConfigurationError
from tenure.health.overload import OverloadConfig
from tenure.jobs.settings import GateSettings
from tenure.nodes.gate.gate import Gate, GateSetup
from tenure.nodes.gate.metrics import GateGauges, GateMetrics
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.node_process import AnsweringNode, NodeSettings, node_process, readiness

DEFAULT_PORT = 8480


@dataclass(frozen=True, slots=True, kw_only=True)
class GateNodeSettings(NodeSettings):
    """The settings of one gate process."""

    datacenters: Mapping[str, Sequence[str]]
    """The addresses of each datacenter's managers, by its name."""
    peers: Sequence[str] = ()
    """The addresses of the other gates on the same engine."""
    port: int = DEFAULT_PORT
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
    say: Callable[[str], None],
    on_ready: Callable[[str], None] = lambda address: None,
    clock: Clock | None = None,
) -> None:
    """Serves until `stop` is set. Then the gate resigns, so that the next leader need not wait for the end of its term."""
    clock, metrics = clock or SystemClock(), PortMetrics()
    async with node_process(settings, {"node": "gate"}, metrics, kind="gate", clock=clock, say=say) as process:
        gate = Gate(
            settings.name,
            process.address,
            process.environment,
            settings.setup,
            process.caller,
            metrics=GateMetrics(metrics.registry, settings.datacenters),
        )
        metrics.registry.register(GateGauges(gate))
        await process.run(AnsweringNode(gate.answer, gate.stream, lambda: _ready(gate)), gate.run, stop, on_ready)


def _ready(gate: Gate) -> tuple[bool, dict[str, Any]]:
    """Returns the readiness of a gate. One that does not lead is ready, too, when its engine answers and its link is not suspect."""
    seen = {place.name: {"health": place.health, "reason": place.reason} for place in gate.watch.views()}
    return readiness(gate.unready, gate.failures.alarms(), datacenters=seen)
