"""A datacenter of real managers and real workers, whose slots play scripts, and an observer who believes nobody.

Every node is the class that runs in production (`Manager`, `ManagedWorker`), on the simulated network and the simulated engine.
What is promised is checked after each event, at the journal and at the engine; see `journal_watch` and `engine_watch`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from tenure.control.messages.jobs import Done, JobView
from tenure.control.messages.wire import MANAGER_ELECTION, Reply
from tenure.control.messages.workers import WorkerDirective
from tenure.errors import InvariantError
from tenure.health.extension import HealthcheckExtensionRequest
from tenure.health.overload import OverloadState
from tenure.health.signals import RoutingDecision
from tenure.jobs import JobSettings
from tenure.jobs.decisions import Outcome
from tenure.nodes.fleet.member import FleetSettings
from tenure.nodes.manager.ledger import JOURNAL
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.slot_runner import SlotsView
from tenure.nodes.worker.directives import Earning
from tenure.nodes.worker.worker import ManagedWorker
from tenure.randomness import Random
from tenure.sim.faults import Fault, FaultKind, FaultProfile
from tenure.sim.scenario import Scenario
from tenure.sim.world import Host, World
from tenure.work.delivery import WorkItem
from tests.worlds.datacenter.clients import ScriptedClient
from tests.worlds.datacenter.engine_watch import EngineWatch
from tests.worlds.datacenter.journal_watch import JournalWatch
from tests.worlds.datacenter.plays import play_of
from tests.worlds.datacenter.slots import ScriptedSlots
from tests.worlds.datacenter.stage import Stage
from tests.worlds.datacenter.times import DECLINE_S, FLEET, REPORTS, SETTLE_S, STUCK_S, TERM_S
from tests.worlds.patching import environment_of
from tests.worlds.planes import SimCaller, serve

GREEDY_SHARE = 0.15
SNAPSHOT_EVERY = 20
"""Managers take snapshots, and truncate, often enough for a run to see it."""


class Greed(Earning):
    """Asks for time whenever it reports, and says that it has done ever more."""

    def __init__(self) -> None:
        super().__init__()
        self._said = 0

    def request(
        self, worker: str, view: SlotsView, now: float, wall: float, overload: OverloadState
    ) -> HealthcheckExtensionRequest | None:
        self._said += 1
        return HealthcheckExtensionRequest(worker, "long_workflow", 0.5, 0.0, 0, progress_counter=self._said)


class Datacenter(Scenario):
    """Clients submit for seven seconds while things fail; then everything that was accepted has to end."""

    duration_s = 60.0
    managers: ClassVar[Sequence[str]] = ("m1:1", "m2:1")
    workers: ClassVar[Sequence[str]] = ("w1", "w2", "w3")
    clients: ClassVar[Sequence[str]] = ("x", "y")
    submit_until_s: ClassVar[float] = 7.0
    faults = FaultProfile(
        kinds=(
            *(FaultKind.CRASH, FaultKind.REBOOT, FaultKind.STALL, FaultKind.SUSPEND, FaultKind.SKEW, FaultKind.DRIFT),
            *(FaultKind.PARTITION, FaultKind.SPLIT, FaultKind.ONE_WAY, FaultKind.DELAY, FaultKind.BREAK),
            *(FaultKind.LOSS, FaultKind.DUPLICATE),
            *(FaultKind.ENGINE_OUTAGE, FaultKind.ENGINE_REFUSES, FaultKind.ENGINE_FORGETS),
            *(FaultKind.ENGINE_LATE, FaultKind.ENGINE_SLOW),
        ),
        most=6,
        until_s=9.0,
        duration_s=(0.3, 5.0),
    )
    term_s: ClassVar[float] = TERM_S
    raise_format: ClassVar[bool | None] = False
    fleet: ClassVar[FleetSettings] = FLEET
    manager: ClassVar[type[Manager]] = Manager
    worker: ClassVar[type[ManagedWorker]] = ManagedWorker
    slots: ClassVar[type[ScriptedSlots]] = ScriptedSlots

    one_step: ClassVar[bool | None] = None
    """Whether the engine appends and sends in one step, as all but NATS do. None: one world in four has an engine that does not."""

    def __init__(self) -> None:
        self.accepted_at: dict[str, float] = {}
        """Jobs that a client was told are accepted, and when."""
        self.asked: set[str] = set()
        self.plays: Counter[str] = Counter()
        """How often each play began."""
        self._heard: dict[str, int] = {}
        self._last: dict[Any, tuple[str, WorkerDirective]] = {}

    def setup(self, world: World) -> None:
        self._world = world
        engine = world.backend.engine
        engine.appends_in_one_step = world.seed % 4 != 3 if self.one_step is None else self.one_step
        self._offset = engine.now() - world.now
        pages = engine.store(f"{JOURNAL}.pages")
        self.journal = JournalWatch(engine.journal(JOURNAL), pages, self.insist, self.disturbed)
        self.engine = EngineWatch(engine, self.journal, self.insist)
        self._election, self._led_last = engine.election(MANAGER_ELECTION), self.managers[0]
        world.roles["leader"] = self._leading
        for name in self.managers:
            world.node(name, self._manage).start()
        for name in self.workers:
            world.node(name, self._work).start()
        for name in self.clients:
            world.node(name, self._ask).start()

    def insist(self, holds: object, promise: str) -> None:
        """As `require`, from within what runs: nodes must not take a broken promise for an error of the engine."""
        if not holds:
            self._world.kernel.fail(InvariantError(promise))

    def disturbed(self, since: float, until: float) -> float:
        """How many seconds between two moments of the engine's time had a fault in them."""
        spans = sorted((fault.at_s, fault.at_s + fault.duration_s) for fault in self.planned)
        begin, end, total = since - self._offset, until - self._offset, 0.0
        for first, last in spans:
            first, last = max(first, begin), min(last, end)
            if last > first:
                total += last - first
                begin = last
        return total

    def misfortunes(self, world: World, random: Random) -> tuple[Fault, ...]:
        """Some of what happens to managers happens to whoever leads; now and then all of them are gone, or a leader sleeps on."""
        targets = ["leader", *self.managers, *self.workers, self.clients[0]]
        faults = list(self.faults.generate(random, targets, world.engines)) if self.faults.most else []
        if faults and (extra := random.random()) < 0.25:
            at_s, chance = round(1 + 5 * random.random(), 3), random.random()
            if extra < 0.1:
                faults.append(Fault(at_s, FaultKind.CRASH, tuple(self.managers), round(5 + 5 * chance, 3)))
            else:
                # Long enough for a successor, short enough for what it had begun to be waited for.
                faults.append(Fault(at_s, FaultKind.STALL, ("leader",), round(1.1 * TERM_S + 2 * chance, 3)))
        return tuple(sorted(faults, key=lambda fault: fault.at_s))

    def _leading(self) -> str:
        """Whoever leads by the engine's word, or led last."""
        leader = self._election.current()
        if leader is not None:
            self._led_last = leader.candidate.partition("@")[0]
        return self._led_last

    # Who takes part

    async def _manage(self, host: Host) -> None:
        setup = ManagerSetup(
            term_s=self.term_s,
            fleet=self.fleet,
            jobs=JobSettings(stuck_threshold=STUCK_S, archive_after=4.0, id_memory=3_600.0),
            snapshot_every=SNAPSHOT_EVERY,
            raise_format=self.raise_format,
        )
        manager = self.manager(host.name, host.name, environment_of(host), setup)
        serve(host, manager.answer)
        await manager.run()

    async def _work(self, host: Host) -> None:
        slots = self.slots(host, self)
        greedy = self._world.random(f"cast/{host.name}").random() < GREEDY_SHARE
        node = self.worker(
            host.name,
            slots,
            environment_of(host),
            SimCaller(host, lambda reply: self._directed(host, reply)),
            REPORTS,
        )
        if greedy:
            node.earning = Greed()
        await asyncio.gather(slots.run(), node.run())

    async def _ask(self, host: Host) -> None:
        client = ScriptedClient(host, self.managers, self)
        while self._world.now < self.submit_until_s:
            await client.one_job()
            await asyncio.sleep(host.random.uniform(0.2, 1.6))
        self.asked.add(host.name)
        await asyncio.Event().wait()

    # What workers do

    def begins(self, slots: ScriptedSlots, stage: Stage) -> None:
        """Work that excludes this worker is left to others, where there are any: seen when all has been calm for a while."""
        self.plays[f"play {play_of(stage)}"] += 1
        now = self._offset + self._world.now
        fresh = now - stage.ticket.enqueued_at < 0.5 * DECLINE_S and not self._was_taken_back(stage.item)
        if slots.name in stage.item.excluded and fresh:
            able = [name for name in self.workers if self._has_been_able(name, now) and name not in stage.item.excluded]
            calm = not self.disturbed(now - 3 * DECLINE_S, now)
            self.insist(not (able and calm), f"{slots.name} took {stage.item.job_id}, which excludes it, from {able}")

    def _was_taken_back(self, item: WorkItem) -> bool:
        """A message that was taken back and sent again is younger than the wish that it be left to others."""
        info = self.journal.book.jobs.get(item.job_id)
        return info is not None and info.workflows[item.workflow_id].withdrawn > 0

    def _has_been_able(self, worker: str, now: float) -> bool:
        """Long enough for everybody to have heard of it."""
        record = self.journal.book.state.workers.get(worker)
        return record is not None and record.verdict == RoutingDecision.ROUTE and now - record.since > DECLINE_S

    def counts(self, stage: Stage) -> None:
        self.engine.counts(stage)

    def works(self, stage: Stage) -> None:
        self.engine.works(stage)

    def is_stale(self, item: WorkItem) -> bool:
        return self.engine.is_stale(item)

    def _directed(self, host: Host, reply: Reply) -> None:
        if isinstance(reply, WorkerDirective):
            self._last[asyncio.current_task()] = (host.id, reply)
            self._heard[host.id] = max(self._heard.get(host.id, 0), reply.epoch)

    def obeys(self, slots: ScriptedSlots, what: str) -> None:
        found = self._last.get(asyncio.current_task())
        if found is not None:
            life, directive = found
            newest = self._heard[life]
            self.insist(
                directive.epoch >= newest, f"{life} {what} for epoch {directive.epoch}, and had heard of {newest}"
            )

    # What clients are told

    def accepted(self, job_id: str, done: Done) -> None:
        self.insist(done.job_id == job_id, f"{job_id} was answered as {done.job_id}")
        self.insist(done.outcome in (Outcome.ACCEPTED, Outcome.ALREADY), f"{job_id} was {done.outcome}: {done.reason}")
        self.insist(job_id in self.journal.accounts, f"{job_id} was accepted, and the journal does not know it")
        self.accepted_at.setdefault(job_id, self._world.now)

    def cancelled(self, job_id: str) -> None:
        account = self.journal.accounts.get(job_id)
        ended = account.ended if account is not None else self.journal.tombstones.get(job_id)
        self.insist(ended, f"the cancel of {job_id} was answered, and the journal does not show it")

    def shown(self, view: JobView) -> None:
        account = self.journal.accounts.get(view.job_id)
        self.insist(account, f"{view.job_id} was shown, and the journal does not know it")
        if account is not None and view.ended:
            self.insist(account.ended is view.state, f"{view.job_id} was shown as {view.state}, and is {account.ended}")

    def denied(self, job_id: str) -> None:
        self.insist(job_id not in self.accepted_at, f"{job_id} was accepted, and then said to be unknown")

    # What must hold

    def check(self, world: World) -> None:
        self.journal.catch_up()
        self.engine.check()

    def settled(self, world: World) -> bool:
        return (
            world.now > self._quiet_since()
            and self.asked >= set(self.clients)
            and all(account.ended for account in self.journal.accounts.values())
            and self.engine.is_empty()
        )

    def _quiet_since(self) -> float:
        ends = [fault.at_s + fault.duration_s for fault in self.planned]
        return max([*ends, *self.accepted_at.values()], default=0.0)

    def finish(self, world: World) -> None:
        for job_id, at in self.accepted_at.items():
            account = self.journal.accounts[job_id]
            self.require(account.ended, f"{job_id}, accepted at {at:.3f} s, has not ended")
        self.require(self.asked >= set(self.clients), f"only {sorted(self.asked)} of the clients were served")
        self.require(self.engine.is_empty(), "work or results are left in the engine")
        took = world.now - self._quiet_since()
        self.require(took <= SETTLE_S, f"it took {took:.3f} s after the last fault until all had settled")

    def tally(self, world: World) -> Counter[str]:
        """How often each play began, and how often each kind of event was written, by its state, its cause and its rule."""
        return self.journal.seen + self.plays


class Paged(Datacenter):
    """The same, with the state in pages, as every new datacenter has it."""

    raise_format: ClassVar[bool | None] = None
