"""Agents that wait for one provider, on the nodes of production in virtual time: manager, workers, slots, engine and network. Only the provider is scripted.

A call takes two seconds while the provider is up. While it is down, a call fails after two seconds, or hangs until it is back, as the agent's manner has it.
An agent tries again as `agent/evaluation.py` does: with pauses, and where it is held, when its turn has come. It gives up after five tries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tenure import workflow
from tenure.backoff import Retry
from tenure.beat.record import Brake
from tenure.control.messages.jobs import Done, Submit
from tenure.errors import NodeUnavailableError
from tenure.health.outage import OutageSettings
from tenure.jobs.attempts import charged
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.outages import OutagePhase
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import AttemptCause
from tenure.nodes.fleet.member import FleetSettings
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.worker.inline_slots import InlineSlots
from tenure.nodes.worker.worker import ManagedWorker, ReportSettings
from tenure.sim.world import Host, World
from tenure.work.registry import Registry
from tenure.work.slots.settings import SlotSettings
from tests.worlds.patching import environment_of
from tests.worlds.planes import SimCaller, serve

PROVIDER, MANAGER = "anthropic", "m1:1"
CALL_S, STALL_S, TRIES = 2.0, 300.0, 5
REPORT_S, TICK_S, TURN_S = 3.0, 1.0, 10.0
BACKOFF = Retry(delay=0.5, max_delay=30.0)


class ProviderDown(Exception):
    """A call failed."""


class AgentWorld:
    """One manager, workers with as many agents each, and a provider that `down` turns off."""

    def __init__(
        self,
        outages: OutageSettings,
        *,
        workers: int,
        each: int,
        manners: Sequence[str] = ("hangs", "fails"),
        seed: int = 1,
    ) -> None:
        self.world = World(seed, keep_trace=None)
        self.down = False
        self.hung = ""
        """The job whose agent hangs by itself next, waiting for nothing. Its next attempt does not."""
        self.released: list[float] = []
        """When each agent that was held was let try, by the engine's clock."""
        self.phases: dict[float, OutagePhase] = {}
        """When each phase of the outage began."""
        self.jobs = [f"j{number}" for number in range(workers * each)]
        self._outages, self._each, self._manners = outages, each, manners
        self._manager: Manager | None = None
        self.world.node(MANAGER, self._manage, engine="a").start()
        for number in range(workers):
            self.world.node(f"w{number}", self._work, engine="a").start()
        self.world.node("client", self._submit, engine="a").start()

    @property
    def manager(self) -> Manager:
        assert self._manager is not None, "it has started"
        return self._manager

    async def _manage(self, host: Host) -> None:
        fleet = FleetSettings(outages=self._outages)
        setup = ManagerSetup("a", 10.0, JobSettings(history_limit=0), fleet)
        self._manager = Manager(host.id, host.name, environment_of(host), setup, gates=SimCaller(host))
        serve(host, self._manager.answer)
        await self._manager.run()

    async def _work(self, host: Host) -> None:
        settings = SlotSettings(
            queue="default.p0", slots=self._each, lease_s=120.0, stall_s=STALL_S, tick_s=TICK_S, wait_s=20.0
        )
        registry = Registry([self._agent(host)])
        slots = InlineSlots(environment_of(host), registry, settings, worker=host.name)
        reports = ReportSettings(every_s=REPORT_S)
        node = ManagedWorker(host.name, slots, environment_of(host), SimCaller(host), reports)
        await asyncio.gather(node.run(), slots.run())

    async def _submit(self, host: Host) -> None:
        caller = SimCaller(host)
        for number, job_id in enumerate(self.jobs):
            manner = self._manners[number % len(self._manners)]
            spec = WorkflowSpec(name="agent", arguments={"manner": manner}, max_attempts=3)
            job = JobSubmission(job_id=job_id, workflows=(spec,), park=True)
            while True:
                with suppress(NodeUnavailableError):
                    if isinstance(await caller.ask(MANAGER, Submit(submission=job), 10.0), Done):
                        break
                await host.clock.async_sleep(1.0)

    # Agents

    def _agent(self, host: Host) -> Any:
        @workflow
        async def agent(ctx: Any, manner: str) -> None:
            while True:
                with ctx.depends(PROVIDER):
                    await self._call_until_it_answers(ctx, host, manner)
                if ctx.job == self.hung:
                    self.hung = ""
                    await host.clock.async_sleep(10**7)
                ctx.beat()
                await host.clock.async_sleep(host.random.uniform(1, TURN_S))

        return agent

    async def _call_until_it_answers(self, ctx: Any, host: Host, manner: str) -> None:
        failures = 0
        while ctx.job != self.hung:
            try:
                await self._call(host, manner)
                return
            except ProviderDown:
                failures += 1
                ctx.call_failed()
                if ctx.brake is not Brake.NONE:
                    failures = min(failures, TRIES - 1)
                if failures >= TRIES:
                    raise
            await host.clock.async_sleep(BACKOFF.delay_s(failures, host.random.random()))
            await self._until_let_go(ctx, host)

    async def _until_let_go(self, ctx: Any, host: Host) -> None:
        was_held = False
        while ctx.brake is Brake.HELD and ctx.job != self.hung:
            was_held = True
            await host.clock.async_sleep(TICK_S)
        if was_held:
            self.released.append(self.manager.now())

    async def _call(self, host: Host, manner: str) -> None:
        await host.clock.async_sleep(CALL_S)
        while self.down and manner == "hangs":
            await host.clock.async_sleep(5.0)
        if self.down:
            raise ProviderDown("503")

    # The story

    def run_for(self, seconds: float) -> None:
        for _ in range(round(seconds / 2)):
            self.world.run_for(2.0)
            self.world.require_no_unread_errors()
            record = self.manager.ledger.book.state.outages.get(PROVIDER)
            if record is not None:
                self.phases[record.changed_at] = record.phase

    def play(self, *, outage_s: float, hung: str = "") -> None:
        """A minute of work, the outage, in whose middle one agent hangs by itself, and what follows."""
        self.run_for(60.0 + 0.2 * len(self.jobs))
        self.down = True
        self.run_for(outage_s / 2)
        self.hung = hung
        self.run_for(outage_s / 2)
        self.down = False
        self.run_for(2 * STALL_S)

    @property
    def held(self) -> bool:
        return PROVIDER in self.manager.ledger.book.state.outages

    def charged(self) -> dict[str, int]:
        """Returns the jobs that were charged an attempt, with the attempts that were."""
        book = self.manager.ledger.book
        found = {job_id: charged(book.jobs[job_id].workflows["agent"]) for job_id in self.jobs}
        return {job_id: count for job_id, count in found.items() if count}

    def over(self) -> list[str]:
        book = self.manager.ledger.book
        return [job_id for job_id in self.jobs if job_id not in book.jobs or book.jobs[job_id].state.terminal]

    def stalled(self) -> list[str]:
        book = self.manager.ledger.book
        return [job_id for job_id in self.jobs if book.jobs[job_id].workflows["agent"].cause is AttemptCause.STALL]

    def running(self) -> int:
        return sum(map(len, self.manager.ledger.book.on_worker.values()))

    def too_many(self, rate: float, canaries: int) -> list[float]:
        """Returns when more agents had been let try, since a release began, than the rate allows; the canaries of the time before count, too."""
        found = []
        for began in [at for at, phase in self.phases.items() if phase is OutagePhase.RELEASING]:
            let_go = sorted(at for at in self.released if at >= began)
            found += [at for number, at in enumerate(let_go, 1) if number > rate * (at - began + TICK_S) + canaries]
        return found

    def close(self) -> None:
        self.world.close()
