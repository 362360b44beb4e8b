"""Who takes part: managers and gates as they are in production, workers that play scripts, clients that submit, retry and cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.engines.contracts import Mailbox
from tenure.errors import EngineError, NodeUnavailableError, ReceiptHandleExpiredError, TenureError
from tenure.jobs.commands import Identity
from tenure.jobs.settings import GateSettings, JobSettings
from tenure.nodes.calling.blocking import parse_address
from tenure.nodes.calling.route import Route
from tenure.nodes.gate.gate import Gate
from tenure.nodes.gate.probing import ProbeSettings
from tenure.nodes.manager.candidacy import Candidacy
from tenure.nodes.manager.gate_desk import GateDesk
from tenure.nodes.manager.manager import Manager
from tenure.nodes.messages.client import candidate_at
from tenure.nodes.messages.worker import AttemptReport, WorkerDirective, WorkerReport
from tenure.sim.control_plane import SimCaller, serve
from tenure.sim.node import Host
from tenure.work.envelope import Cause, WorkFailure, WorkItem, WorkResult

STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Every duration of a world, a tenth or so of what document 002 says."""

    term_s: float = 3.0
    lease_s: float = 3.0
    jobs: JobSettings = field(
        default_factory=lambda: JobSettings(report_interval=1.5, fallback_after=20.0, stuck_threshold=8.0)
    )
    gate: GateSettings = field(
        default_factory=lambda: GateSettings(
            check_interval=1.5, stuck_threshold=10.0, resend_first=0.5, resend_most=3.0
        )
    )
    probes: ProbeSettings = field(default_factory=lambda: ProbeSettings(interval_s=3.0, timeout_s=2.0, suspicion_s=8.0))


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

    @classmethod
    def of(cls, datacenters: int, gates: int, *, managers: int = 1, workers: int = 1) -> Plan:
        names = [chr(ord("a") + number) for number in range(datacenters)]
        return cls(
            managers={name: [f"{name}-m{number + 1}:1" for number in range(managers)] for name in names},
            workers={name: [f"{name}-w{number + 1}" for number in range(workers)] for name in names},
            gates=[f"g{number + 1}:1" for number in range(gates)],
        )


async def manage(host: Host, datacenter: str, pace: Pace, desk_class: type[GateDesk] = GateDesk) -> None:
    """A manager: the program of one node."""
    candidacy = Candidacy(
        candidate_at(host.id, host.name),
        host.engine,
        host.calls,
        clock=host.clock,
        random=host.random,
        ids=host.ids,
        ttl_s=pace.term_s,
        settings=pace.jobs,
        say=host.record,
    )
    manager = Manager(candidacy, host.engine, host.calls, clock=host.clock, say=host.record)
    desk_class(
        manager, candidacy, SimCaller(host), Identity(datacenter, host.id, *parse_address(host.name)), clock=host.clock
    )
    serve(host, manager.answer)
    await manager.run()


async def keep_gate(host: Host, plan: Plan, gate_class: type[Gate] = Gate) -> None:
    """A gate: the program of one node."""
    gate = gate_class(
        host.id,
        host.name,
        host.engine,
        host.calls,
        SimCaller(host),
        datacenters=plan.managers,
        peers=plan.gates,
        clock=host.clock,
        random=host.random,
        ids=host.ids,
        ttl_s=plan.pace.term_s,
        settings=plan.pace.gate,
        probes=plan.pace.probes,
        memory=lambda: 0.0,
        say=host.record,
    )
    serve(host, gate.answer)
    await gate.run()


class Worker:
    """Takes work, plays its script, reports what it runs, and stops what nobody wants any more."""

    def __init__(self, host: Host, managers: Sequence[str], pace: Pace) -> None:
        self._host, self._lease_s = host, pace.lease_s
        self._route = Route(SimCaller(host), managers)
        self._mailbox: Mailbox[WorkItem, WorkResult] = host.engine.mailbox("default.p0", WorkItem, WorkResult)
        self._running: dict[str, AttemptReport] = {}

    async def run(self) -> None:
        while True:
            try:
                for message in await self._host.calls.run(self._mailbox.receive, 4, self._lease_s, 5.0):
                    asyncio.create_task(self._play(message))  # noqa: RUF006  the loop holds it, and the run ends with it
            except EngineError:
                await asyncio.sleep(0.5)

    async def _play(self, message: Any) -> None:
        """So many steps, each kept alive by an extension; then a result, a failure, or a hang without a beat."""
        item: WorkItem = message.body
        steps, ends = item.args["steps"], item.args["ends"]
        run = self._host.calls.run
        try:
            for step in range(steps):
                await asyncio.sleep(STEP_S)
                await run(message.extend_visibility, self._lease_s)
                if not await self._wanted(item, message, step + 1):
                    return
            silent_s = 0.0
            while ends == "hang":  # its supervisor lives, and it advances no more
                await asyncio.sleep(STEP_S)
                silent_s += STEP_S
                await run(message.extend_visibility, self._lease_s)
                if not await self._wanted(item, message, steps, silent_s):
                    return
            failure = WorkFailure(cause=Cause.EXCEPTION, reason="scripted") if ends == "fail" else None
            result = WorkResult(
                job_id=item.job_id,
                workflow_id=item.workflow_id,
                workflow=item.workflow,
                attempt=item.attempt,
                fence=message.fence,
                worker=self._host.id,
                failure=failure,
            )
            await run(message.settle, result)
        except (ReceiptHandleExpiredError, EngineError, TenureError):
            return  # it is another's now, or nobody's
        finally:
            self._running.pop(message.id, None)

    async def _wanted(self, item: WorkItem, message: Any, steps: int, silent_s: float = 0.0) -> bool:
        self._running[message.id] = AttemptReport(
            job_id=item.job_id,
            workflow=item.workflow_id,
            attempt=item.attempt,
            delivery=message.delivery_count,
            steps=steps,
            silent_s=silent_s,
        )
        attempts = tuple(self._running.values())  # a report is everything that it runs
        report = WorkerReport(worker=self._host.name, incarnation=self._host.id, attempts=attempts, slots=9, free=5)
        try:
            reply = await self._route.ask(report, 0.5)
        except NodeUnavailableError:
            return True  # with nobody to ask it goes on
        unwanted = reply.cancels if isinstance(reply, WorkerDirective) else ()
        return not any(one.job_id == item.job_id and one.attempt == item.attempt for one in unwanted)


async def work(host: Host, plan: Plan, datacenter: str) -> None:
    """A worker: the program of one node."""
    await Worker(host, plan.managers[datacenter], plan.pace).run()
