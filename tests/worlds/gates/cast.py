"""Who takes part: gates, managers and workers as they are in production, at times that are a fraction of the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tenure.jobs.settings import GateSettings, JobSettings
from tenure.nodes.fleet.member import FleetSettings
from tenure.nodes.gate.gate import Gate, GateSetup
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.worker.worker import ManagedWorker, ReportSettings
from tenure.sim.world import Host
from tests.worlds.datacenter.scenario import Greed
from tests.worlds.gates.hands import Hands
from tests.worlds.patching import environment_of
from tests.worlds.planes import SimCaller, serve


@dataclass(frozen=True, slots=True)
class Pace:
    """Every duration of a world, a tenth or so of what document 002 says."""

    term_s: float = 3.0
    lease_s: float = 6.0
    jobs: JobSettings = field(
        default_factory=lambda: JobSettings(report_interval=1.5, fallback_after=20.0, stuck_threshold=8.0)
    )
    gate: GateSettings = field(
        default_factory=lambda: GateSettings(
            check_interval=1.5, report_interval=1.5, stuck_threshold=10.0, resend_first=0.5, resend_most=3.0
        )
    )
    probes: ProbeSettings = field(default_factory=lambda: ProbeSettings(interval_s=3.0, timeout_s=2.0, suspicion_s=8.0))
    fleet: FleetSettings = field(default_factory=FleetSettings)
    reports: ReportSettings = field(
        default_factory=lambda: ReportSettings(
            every_s=2.4, idle_every_s=4.0, gap_s=0.8, listen_s=8.0, answer_s=2.0, rest_s=0.5
        )
    )

    @classmethod
    def brisk(cls) -> Pace:
        """With the long waits cut short, so that a story of twenty seconds has room for a fallback."""
        return cls(
            jobs=JobSettings(report_interval=1.5, fallback_after=4.0, stuck_threshold=4.0, history_limit=0),
            gate=GateSettings(
                check_interval=1.5,
                report_interval=1.5,
                stuck_threshold=8.0,
                resend_first=0.5,
                resend_most=2.0,
                history_limit=0,
            ),
            probes=ProbeSettings(interval_s=4.0, timeout_s=2.0, suspicion_s=8.0),
            fleet=FleetSettings(healthcheck_s=5.0, forget_s=60.0),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Which nodes there are: addresses by datacenter, and the gates."""

    managers: Mapping[str, Sequence[str]]
    workers: Mapping[str, Sequence[str]]
    gates: Sequence[str]
    gate_engine: str = "gates"
    pace: Pace = field(default_factory=Pace)

    def group(self, datacenter: str) -> tuple[str, ...]:
        """All of a datacenter, its engine too: cut off together, they still reach each other."""
        return (*self.managers[datacenter], *self.workers[datacenter], datacenter)

    @property
    def gate_group(self) -> tuple[str, ...]:
        return (*self.gates, self.gate_engine)

    @property
    def places(self) -> tuple[str, ...]:
        """Wherever there is a journal."""
        return (*self.managers, self.gate_engine)

    @classmethod
    def of(
        cls, datacenters: int, gates: int, *, managers: int | Mapping[str, int] = 1, pace: Pace | None = None
    ) -> Plan:
        """Datacenters a, b, c, …, with one worker and one manager each, or with as many as is said."""
        names = [chr(ord("a") + number) for number in range(datacenters)]
        count = dict.fromkeys(names, managers) if isinstance(managers, int) else {**dict.fromkeys(names, 1), **managers}
        return cls(
            managers={name: [f"{name}-m{number + 1}:1" for number in range(count[name])] for name in names},
            workers={name: [f"{name}-w1"] for name in names},
            gates=[f"g{number + 1}:1" for number in range(gates)],
            pace=pace or Pace(),
        )


async def manage(host: Host, datacenter: str, pace: Pace) -> None:
    """A manager: the program of one node."""
    setup = ManagerSetup(datacenter, pace.term_s, pace.jobs, pace.fleet)
    manager = Manager(host.id, host.name, environment_of(host), setup, gates=SimCaller(host))
    serve(host, manager.answer)
    await manager.run()


async def keep_gate(host: Host, plan: Plan, gate_class: type[Gate] = Gate) -> None:
    """A gate: the program of one node."""
    pace = plan.pace
    setup = GateSetup(plan.managers, plan.gates, pace.term_s, gate=pace.gate, probes=pace.probes, memory=lambda: 0.0)
    gate = gate_class(host.id, host.name, environment_of(host), setup, SimCaller(host))
    serve(host, gate.answer)
    await gate.run()


async def work(host: Host, pace: Pace, *, greedy: bool = False) -> None:
    """A worker: the program of one node. A greedy one asks for more time whenever it reports."""
    hands = Hands(host, pace.lease_s)
    node = ManagedWorker(host.name, hands, environment_of(host), SimCaller(host), pace.reports)
    if greedy:
        node.earning = Greed()
    await asyncio.gather(hands.run(), node.run())
