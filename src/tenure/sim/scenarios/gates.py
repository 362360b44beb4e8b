"""Datacenters and gates under faults: what a gate accepted ends everywhere, once, in time, whatever is cut, killed or lost.

Managers and gates are the real ones. The observer folds every journal himself, entry by entry, and checks what was promised (document 002; the
invariants of "Jobs and deadlines"): nothing that was accepted is lost, nothing ends twice, a decision of the gate is made once and is final,
the gate knows of each datacenter how the job ended there, and when faults are over nothing goes on running anywhere.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tenure.errors import NodeUnavailableError
from tenure.jobs.book import JobBook
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import JobInfo, JobSubmission, RetryPolicy, WorkflowSpec
from tenure.jobs.states import JobState
from tenure.nodes.calling.route import Route
from tenure.nodes.gate.candidacy import JOURNAL as GATE_JOURNAL
from tenure.nodes.gate.gate import Gate
from tenure.nodes.manager.candidacy import JOURNAL
from tenure.nodes.manager.gate_desk import GateDesk
from tenure.nodes.messages.client import Cancel, Done, Submit
from tenure.nodes.messages.wire import Request
from tenure.randomness import Random
from tenure.sim.control_plane import SimCaller
from tenure.sim.faults import FaultKind, FaultProfile
from tenure.sim.gates.cast import Plan, keep_gate, manage, work
from tenure.sim.node import Host
from tenure.sim.scenario import Scenario
from tenure.sim.world import World

SETTLE_S = 10.0
"""How long a decision may take to be made, and an end to be known everywhere, once faults are over: two terms, a check, the longest resend, a report."""

_LINK = (FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.LOSS, FaultKind.DELAY, FaultKind.BREAK)


@dataclass(frozen=True, slots=True)
class LinkFaults(FaultProfile):
    """Most link faults hit a whole datacenter, its engine too: it works on, and the world does not reach it."""

    groups: tuple[tuple[str, ...], ...] = ()

    def _targets(self, random: Random, nodes: Any, engines: Any, kind: FaultKind) -> tuple[str, ...]:
        if kind in _LINK and random.random() < 0.6:
            return self.groups[random.randrange(len(self.groups))]
        return FaultProfile._targets(self, random, nodes, engines, kind)


def link_faults(plan: Plan, most: int, until_s: float, longest_s: float) -> LinkFaults:
    return LinkFaults(
        kinds=(
            *(FaultKind.CRASH, FaultKind.CRASH, FaultKind.STALL, FaultKind.SKEW, FaultKind.DRIFT),
            *(FaultKind.PARTITION, FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.LOSS, FaultKind.DELAY),
            *(FaultKind.BREAK, FaultKind.ENGINE_OUTAGE, FaultKind.ENGINE_FORGETS, FaultKind.ENGINE_LATE),
        ),
        most=most,
        until_s=until_s,
        duration_s=(0.3, longest_s),
        groups=tuple(plan.group(name) for name in plan.managers),
    )


class Gates(Scenario):
    """Two datacenters, two gates, a client: small, so that many schedules can be played."""

    plan: ClassVar[Plan] = Plan.of(2, 2)
    duration_s = 40.0
    faults: ClassVar[FaultProfile] = link_faults(plan, 4, 12.0, 8.0)
    jobs: ClassVar[int] = 3
    submit_until_s: ClassVar[float] = 10.0
    timeout_s: ClassVar[tuple[float, float]] = (4.0, 10.0)
    settle_s: ClassVar[float] = SETTLE_S
    desk: ClassVar[type[GateDesk]] = GateDesk
    gate: ClassVar[type[Gate]] = Gate

    def __init__(self) -> None:
        self.accepted: dict[str, tuple[float, JobSubmission]] = {}
        """Jobs that a client was told are accepted: when, and what was asked."""
        self.cancelled: dict[str, float] = {}
        self.books = {name: JobBook() for name in self.plan.managers}
        self.tracker = GateJobTracker()
        self._ended: dict[tuple[str, str], JobState] = {}
        self._seen: dict[tuple[str, str], float] = {}
        """When the observer first saw a job end in a place, or a gate decide about it, in true time."""
        self._seqs: dict[str, int] = dict.fromkeys((*self.plan.managers, self.plan.gate_engine), 0)

    def setup(self, world: World) -> None:
        self._world = world
        plan = self.plan
        self._journals = {
            **{name: world.backend_of(name).engine.journal(JOURNAL) for name in plan.managers},
            plan.gate_engine: world.backend_of(plan.gate_engine).engine.journal(GATE_JOURNAL),
        }
        for name, addresses in plan.managers.items():
            for address in addresses:
                program = partial(manage, datacenter=name, pace=plan.pace, desk_class=self.desk)
                world.node(address, program, engine=name).start()
            for worker in plan.workers[name]:
                world.node(worker, partial(work, plan=plan, datacenter=name), engine=name).start()
        for address in plan.gates:
            program = partial(keep_gate, plan=plan, gate_class=self.gate)
            world.node(address, program, engine=plan.gate_engine).start()
        world.node("client", self._ask, engine=plan.gate_engine).start()

    # The client

    async def _ask(self, host: Host) -> None:
        route = Route(SimCaller(host), self.plan.gates)
        asks = [self._one(host, route, number) for number in range(self.jobs)]
        await asyncio.gather(*asks)
        await asyncio.Event().wait()

    async def _one(self, host: Host, route: Route, number: int) -> None:
        random = host.random
        await asyncio.sleep(random.uniform(0.0, max(0.1, self.submit_until_s - self._world.now)))
        submission = self.submission(random, f"{host.id}-{number}")
        await self._until_done(host, route, Submit(submission=submission))
        self.accepted.setdefault(submission.job_id, (self._world.now, submission))
        host.record(f"{submission.job_id} is accepted")
        if random.random() < 0.3:
            await asyncio.sleep(random.uniform(0.0, 6.0))
            await self._until_done(host, route, Cancel(job_id=submission.job_id, reason="enough", by="client"))
            self.cancelled[submission.job_id] = self._world.now
            host.record(f"{submission.job_id} is cancelled")

    def submission(self, random: Random, job_id: str) -> JobSubmission:
        names = list(self.plan.managers)
        targets = tuple(name for name in names if random.random() < 0.7)
        ends = random.choice(["well", "well", "fail", "hang"])
        spec = WorkflowSpec(
            name="w",
            arguments={"steps": random.randint(1, 5), "ends": ends},
            retry=RetryPolicy(max_attempts=2, delay=0.2, max_delay=1.0, jitter=0.0),
        )
        timeout_s = random.uniform(*self.timeout_s)
        return JobSubmission(
            job_id=job_id,
            workflows=(spec,),
            timeout_seconds=timeout_s,
            stuck_threshold=timeout_s * random.choice([0.5, 0.9]),
            target_datacenters=targets,
        )

    async def _until_done(self, host: Host, route: Route, request: Request) -> None:
        while True:
            try:
                reply = await route.ask(request, 2.0)
                if isinstance(reply, Done):
                    return
                self.require(False, f"a gate answered {request} with {reply}")
            except NodeUnavailableError:
                route.preferred = host.random.choice(self.plan.gates)
                await asyncio.sleep(0.2 + 0.5 * host.random.random())

    # What must hold

    def check(self, world: World) -> None:
        for name, journal in self._journals.items():
            head = journal.head().seq
            while self._seqs[name] < head:
                for entry in journal.read(self._seqs[name]):
                    self.require(entry.seq == self._seqs[name] + 1, f"{name}: entry {entry.seq} was skipped to")
                    self._seqs[name] = entry.seq
                    book = self.books.get(name) or self.tracker
                    book.replay(entry.events)  # a second end, or a second decision, is an illegal transition
                    self._look(name, book)

    def _look(self, name: str, book: JobBook | GateJobTracker) -> None:
        for job_id, info in book.jobs.items():
            if info.state.terminal:
                before = self._ended.setdefault((name, job_id), info.state)
                self.require(before is info.state, f"{job_id} ended in {name} as {before} and then as {info.state}")
                self._seen.setdefault((name, job_id), self._world.now)
        if book is self.tracker:
            for job_id, known in self.tracker.jobs.items():
                if known.decided is not None:
                    self._seen.setdefault(("decision", job_id), self._world.now)

    @property
    def quiet_at(self) -> float:
        """From here on nothing fails."""
        return self.faults.until_s + self.faults.duration_s[1] if self.faults.most else 0.0

    def finish(self, world: World) -> None:
        for job_id, (at, submission) in self.accepted.items():
            self._finish_job(world, job_id, at, submission)
        for name, book in self.books.items():
            for job_id, here in book.jobs.items():
                self._finish_in(name, job_id, here)

    def _finish_job(self, world: World, job_id: str, at: float, submission: JobSubmission) -> None:
        """Decided in time, ended everywhere soon after."""
        info = self.tracker.jobs.get(job_id)
        self.require(info is not None, f"{job_id} was accepted at {at:.3f} and is not known to the gate")
        assert info is not None
        due = max(self.quiet_at, at + submission.timeout_seconds + max(info.dc_extensions.values(), default=0.0))
        decided = self._seen.get(("decision", job_id), self._seen.get((self.plan.gate_engine, job_id)))
        if decided is None:
            self.require(
                world.now < due + self.settle_s, f"{job_id}, accepted at {at:.3f}, is {info.state} after its time"
            )
            return
        self.require(decided <= due + self.settle_s, f"{job_id}: due at {due:.3f}, decided at {decided:.3f}")
        if info.decided is None:
            return
        soon = max(self.quiet_at, decided) + self.settle_s
        for name in info.target_datacenters:
            ended = self._seen.get((name, job_id))
            if ended is not None or job_id in self.books[name].jobs:
                late = f"{job_id}: decided at {decided:.3f}, ended in {name} at {ended}"
                self.require(ended <= soon if ended is not None else world.now < soon, late)
        if job_id in self.cancelled:
            known = self._seen.get((self.plan.gate_engine, job_id))
            self.require(
                known is not None or world.now < soon, f"{job_id} was cancelled at {decided:.3f} and is not ended"
            )

    def _finish_in(self, name: str, job_id: str, here: JobInfo) -> None:
        """Nothing runs on, and the gate knows how it ended."""
        known = self.tracker.jobs.get(job_id)
        self.require(known is not None, f"{name} runs {job_id}, and no gate knows of it")
        assert known is not None
        self.require(name in known.dc_status, f"{name} has {job_id}, and it is for {known.target_datacenters}")
        self.require(here.state.terminal, f"{job_id} is {here.state} in {name} at the end of everything")
        self.require(
            known.dc_status[name] is here.state,
            f"{job_id} ended in {name} as {here.state}, and the gate has {known.dc_status[name]}",
        )
        self.require(here.gate_acked, f"{name} does not know that the gate knows how {job_id} ended")


class CalmGates(Gates):
    """Nothing fails: a deadline is kept within one check and one round trip, a cancel within a round trip."""

    faults = FaultProfile(most=0)
    duration_s = 26.0
    settle_s: ClassVar[float] = 0.3


class ManyGates(Gates):
    """Five datacenters with two managers each, three gates, hundreds of jobs."""

    plan: ClassVar[Plan] = Plan.of(5, 3, managers=2, workers=2)
    duration_s = 60.0
    faults = link_faults(plan, 12, 22.0, 8.0)
    jobs: ClassVar[int] = 200
    submit_until_s: ClassVar[float] = 20.0


class LostJournal(Gates):
    """The gates' engine loses everything in the middle: what was owned is learned back from the datacenters."""

    lost_at_s: ClassVar[float] = 11.0

    def setup(self, world: World) -> None:
        super().setup(world)
        world.at(self.lost_at_s, self._lose, world)

    def _lose(self, world: World) -> None:
        for name in self.plan.gates:
            world.nodes[name].crash()
        world.forget_backend(self.plan.gate_engine)
        world.record("fault", "the gates lost their journal")
        self._journals[self.plan.gate_engine] = world.backend_of(self.plan.gate_engine).engine.journal(GATE_JOURNAL)
        self._seqs[self.plan.gate_engine] = 0
        self.tracker = GateJobTracker()
        for seen in (self._ended, self._seen):
            for key in [key for key in seen if key[0] in (self.plan.gate_engine, "decision")]:
                del seen[key]
        for name in self.plan.gates:
            world.nodes[name].start()

    def _finish_job(self, world: World, job_id: str, at: float, submission: JobSubmission) -> None:
        """One whose only record is gone before a datacenter had it, or after all had told its end, is known to nobody."""
        here = [book.jobs[job_id] for book in self.books.values() if job_id in book.jobs]
        if job_id in self.tracker.jobs or not all(info.state.terminal and info.gate_acked for info in here):
            super()._finish_job(world, job_id, at, submission)

    def _finish_in(self, name: str, job_id: str, here: JobInfo) -> None:
        if job_id not in self.tracker.jobs:
            self.require(here.state.terminal and here.gate_acked, f"{name} runs {job_id}, and no gate knows of it")
        else:
            super()._finish_in(name, job_id, here)
