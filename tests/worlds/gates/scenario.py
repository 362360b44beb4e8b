"""Five datacenters, three gates and hundreds of jobs under faults: what a gate accepted ends everywhere, once, in time, whatever is cut, killed or lost.

Gates, managers and workers are those of production. The observer reads every journal as it is written (`tests.worlds.gates.accounts`) and checks what
was promised (document 002; the invariants of "Jobs and deadlines"). When all is over, every node is asked for every job, and has to agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import ClassVar

from tenure.control.messages.wire import GATE_ELECTION, MANAGER_ELECTION, address_of
from tenure.engines.contracts import Journal
from tenure.errors import InvariantError
from tenure.jobs.model import JobSubmission
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import JobState
from tenure.nodes.gate.gate import Gate
from tenure.nodes.gate.leader import JOURNAL as GATE_JOURNAL
from tenure.nodes.manager.ledger import JOURNAL, RESULTS
from tenure.randomness import Random
from tenure.sim.calls import Backend
from tenure.sim.faults import Fault, FaultProfile
from tenure.sim.network import NetworkLink
from tenure.sim.scenario import Scenario
from tenure.sim.world import Host, World
from tests.worlds.gates.accounts import DatacenterBook, GateBook, Owned, There
from tests.worlds.gates.cast import Pace, Plan, keep_gate, manage, work
from tests.worlds.gates.clients import EARNING, Client
from tests.worlds.gates.hands import QUEUE
from tests.worlds.gates.misfortunes import GATE_LEADER, TURNS, Calm, Misfortune, leader_of, misfortunes

WIDE = NetworkLink(delay_s=(0.02, 0.06))
"""Between a gate and a datacenter there is an ocean."""
SETTLE_S = 12.0
"""How long a decision may take to be made, and an end to be known everywhere, once faults are over: two terms, a check, the longest resend, a
report, and an answer that was waited for in vain."""
PROMPT_S = 0.5
"""How long where nothing is disturbed: a check that is due at its time, a round trip, and four appends."""
ALONE_S = 1.5
"""How late a datacenter may be that has only itself to ask: results are drained first, and its own leader looks."""
RECOVER_S = 9.0
"""How long after a fault a place may still be busy with it: three terms."""


class Gates(Scenario):
    """One world. Its seed's turn brings one misfortune, chance brings others."""

    plan: ClassVar[Plan] = Plan.of(5, 3, managers={"a": 2, "c": 2}, pace=Pace.brisk())
    duration_s = 60.0
    faults: ClassVar[FaultProfile] = FaultProfile(most=0)
    jobs: ClassVar[int] = 100
    submit_until_s: ClassVar[float] = 3.5
    most_others: ClassVar[int] = 4
    greedy_share: ClassVar[float] = 0.04
    impatient_share: ClassVar[float] = 0.0
    turns: ClassVar[tuple[Misfortune, ...]] = TURNS
    gate: ClassVar[type[Gate]] = Gate
    manager_settings: ClassVar[JobSettings] = plan.pace.jobs

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}
        """Jobs that a client was told are accepted, and when."""
        self.cancelled_at: dict[str, float] = {}
        self.decisions: dict[str, set[JobState]] = {}
        """What gates ever decided about a job, also those whose journal was lost."""
        self.lost: Counter[str] = Counter()
        """Places that lost their journal, and how often."""
        self.served = self.agreed = False
        self.behind = ""
        """Who does not agree yet."""
        self.prompt = 0
        """Decisions that were seen to arrive within a round trip."""
        self._backends: dict[str, Backend] = {}
        self._journals: dict[str, Journal] = {}
        self._read: dict[str, int] = {}
        self._led_last: dict[str, str] = {}

    def setup(self, world: World) -> None:
        self._world, plan = world, self.plan
        self.books: dict[str, DatacenterBook] = {}
        for place in plan.places:
            self._open(place)
        world.roles[GATE_LEADER] = partial(self._leading, plan.gate_engine, GATE_ELECTION, plan.gates[0])
        random, pace = world.random("cast"), replace(plan.pace, jobs=self.manager_settings)
        for name, addresses in plan.managers.items():
            world.roles[leader_of(name)] = partial(self._leading, name, MANAGER_ELECTION, addresses[0])
            for address in addresses:
                program = partial(manage, datacenter=name, pace=pace)
                world.node(address, program, engine=name).start()
            for worker in plan.workers[name]:
                greedy = random.random() < self.greedy_share
                world.node(worker, partial(work, pace=plan.pace, greedy=greedy), engine=name).start()
        for address in plan.gates:
            world.node(address, partial(keep_gate, plan=plan, gate_class=self.gate), engine=plan.gate_engine).start()
        for gate in plan.gates:
            for far in (one for some in plan.managers.values() for one in some):
                world.network.set_link(gate, far, WIDE)
                world.network.set_link(far, gate, WIDE)
        world.node("client", self._ask, engine="nobody's").start()

    def misfortunes(self, world: World, random: Random) -> tuple[Fault, ...]:
        turn = self.turns[world.seed % len(self.turns)]
        return misfortunes(self.plan, turn, random, self.most_others)

    def _open(self, place: str) -> None:
        """A journal begins, or begins anew after everything was lost."""
        world, plan = self._world, self.plan
        self._backends[place] = backend = world.backend_of(place)
        self._read[place] = 0
        now = partial(getattr, world, "now")
        if place == plan.gate_engine:
            self._journals[place] = backend.engine.journal(GATE_JOURNAL)
            self.gates = GateBook(place, self.require, now, self.decisions)
        else:
            self._journals[place] = backend.engine.journal(JOURNAL)
            self.books[place] = DatacenterBook(place, self.require, now, plan.pace.jobs, self.decisions)

    def _leading(self, place: str, election: str, first: str) -> str:
        """Whoever leads there by the engine's word, or led last."""
        leader = self._world.backend_of(place).engine.election(election).current()
        if leader is not None:
            self._led_last[place] = address_of(leader.candidate)
        return self._led_last.get(place, first)

    # What clients do and are told

    async def _ask(self, host: Host) -> None:
        client = Client(host, self.plan, self, impatient_share=self.impatient_share)
        await client.ask_for(self.jobs, self.submit_until_s)
        self.served = True
        while not self.agreed:
            await asyncio.sleep(0.5)
            self.agreed = self._all_ended() and await self._agree(client)
        await asyncio.Event().wait()

    def objects(self, why: str) -> None:
        self._world.kernel.fail(InvariantError(why))

    def accepted(self, submission: JobSubmission) -> None:
        job_id = submission.job_id
        if job_id not in self.gates.jobs and not self.lost[self.plan.gate_engine]:
            self.objects(f"{job_id} was accepted, and the gates' journal does not know it")
        self.asked.setdefault(job_id, self._world.now)

    def cancelled(self, job_id: str) -> None:
        """An answered cancel is in the journal: as the decision, as a tombstone, or as an end that came before it."""
        owned = self.gates.jobs.get(job_id)
        if owned is not None and owned.decided is None and owned.ended is None:
            self.objects(f"the cancel of {job_id} was answered, and the gates' journal does not show it")
        self.cancelled_at[job_id] = self._world.now

    def _all_ended(self) -> bool:
        return (
            self._world.now > self.calm.over_at
            and not self.gates.open
            and not any(book.open for book in self.books.values())
            and not self._left_over()
        )

    def _left_over(self) -> str:
        """Names a mailbox in which work or results are left; empty when none has any."""
        for place in self.books:
            engine = self._world.backend_of(place).engine
            for name in (QUEUE, RESULTS):
                if sum(engine.box(name).state.depth(engine.clock.boottime())):
                    return f"{name} of {place}"
        return ""

    async def _agree(self, client: Client) -> bool:
        """Ask every node for every job that it knows. False while one does not answer, or has not read so far: a standby may be behind."""
        addresses = [*self.plan.gates, *(one for some in self.plan.managers.values() for one in some)]
        lists = await asyncio.gather(*map(client.listed, addresses))
        if None in lists:
            return False
        of = {address: name for name, some in self.plan.managers.items() for address in some}
        for address, found in zip(addresses, lists, strict=True):
            assert found is not None
            book = self.books[of[address]] if address in of else self.gates
            known = {job_id: job.ended for job_id, job in book.jobs.items()}
            shown = {row.job_id: row.state for row in found.jobs}
            for job_id in {**known, **shown} if shown != known else ():
                state, ended = shown.get(job_id), known.get(job_id)
                if state is not ended:
                    self.behind = f"{address} shows {job_id} as {state}, and it is {ended}"
                    if state is not None and state.terminal:
                        self.objects(self.behind)
                    return False
        return True

    # What must hold

    @property
    def calm(self) -> Calm:
        if self._calm is None:
            self._calm = Calm(self.plan, list(self.planned))
        return self._calm

    _calm: Calm | None = None

    def check(self, world: World) -> None:
        for place, backend in self._backends.items():
            if backend.written != self._read[place]:
                self._read[place] = backend.written
                book = self.gates if place == self.plan.gate_engine else self.books[place]
                for entry in self._journals[place].read(book.seq):
                    book.take(entry)
        if world.losses != sum(self.lost.values()):
            for place in self.plan.places:
                if world.backend_of(place) is not self._backends[place]:
                    self.lost[place] += 1
                    self._open(place)

    def settled(self, world: World) -> bool:
        return self.agreed

    def finish(self, world: World) -> None:
        self.require(self.served, "a client was not served")
        for job_id, at in self.asked.items():
            owned = self.gates.jobs.get(job_id)
            if owned is None:
                self._finish_unknown(job_id, at)
            else:
                self._finish_job(job_id, owned, at)
        for name, book in self.books.items():
            for job_id, there in book.jobs.items():
                self._finish_in(name, job_id, there)
        self.require(not self._left_over(), f"work or results are left in {self._left_over()}")
        self.require(self.agreed, f"not every node could be asked how everything ended: {self.behind}")
        took = world.now - max(self.calm.over_at, max(self.asked.values(), default=0.0))
        self.require(took < 2 * SETTLE_S, f"it took {took:.3f} s after the last fault until all had settled")

    def _finish_unknown(self, job_id: str, at: float) -> None:
        """Only where the gates lost their journal, before any datacenter had the job or after all had told its end."""
        self.require(self.lost[self.plan.gate_engine], f"{job_id}, accepted at {at:.3f}, is not known to the gates")
        for name, book in self.books.items():
            there = book.jobs.get(job_id)
            self.require(there is None or there.acked, f"{name} has {job_id}, and no gate knows of it")

    def _finish_job(self, job_id: str, owned: Owned, at: float) -> None:
        """Decided in time, ended everywhere soon after."""
        due = at + owned.timeout + max(owned.extensions.values(), default=0.0)
        first = owned.decided_seen if owned.decided is not None else owned.ended_seen
        self.require(owned.ended is not None, f"{job_id}, due at {due:.3f}, has not ended; decided: {owned.decided}")
        latest = max(self.calm.over_at, due) + SETTLE_S
        self.require(first <= latest, f"{job_id}: due at {due:.3f}, decided or ended at {first:.3f}")
        gates = {self.plan.gate_engine}
        # One that was rebuilt has its time counted from when it came to the datacenter that told of it.
        # Where time may have been earned at the last moment, the gates wait for reports.
        earning = int(job_id[1:]) % EARNING == 0
        prompt_s = PROMPT_S + 2 * self.plan.pace.gate.report_interval * earning
        if first > due + prompt_s and not owned.rebuilt and self.calm.at(gates, due - RECOVER_S, first):
            self.require(False, f"{job_id}: due at {due:.3f}, decided at {first:.3f}, and nothing disturbed the gates")
        if owned.decided is None:
            return
        for name in owned.statuses:
            there = self.books[name].jobs.get(job_id)
            if there is not None and there.seen < first and not self.lost[name]:
                self._finish_decided(job_id, owned, name, there)

    def _finish_decided(self, job_id: str, owned: Owned, name: str, there: There) -> None:
        first, ended = owned.decided_seen, there.ended_seen
        if ended <= first + PROMPT_S:
            self.prompt += ended > first
            return
        calm = self.calm.at({self.plan.gate_engine, name}, first - RECOVER_S, ended)
        self.require(not calm, f"{job_id}: decided at {first:.3f}, ended in {name} at {ended:.3f}, undisturbed")
        latest = max(self.calm.over_at, first) + SETTLE_S
        self.require(ended <= latest, f"{job_id}: decided at {first:.3f}, ended in {name} at {ended:.3f}")

    def _finish_in(self, name: str, job_id: str, there: There) -> None:
        """Nothing runs on, whether or not a gate was in reach; and the gates know how it ended."""
        what, pace = f"{job_id} in {name}", self.plan.pace
        self.require(there.ended is not None, f"{what} has not ended")
        alone = there.seen + there.timeout + there.extended + pace.jobs.fallback_after + ALONE_S
        if there.ended_seen > alone and self.calm.inside(name, there.seen - RECOVER_S, there.ended_seen):
            self.require(False, f"{what} ended at {there.ended_seen:.3f}; its own leader had to end it by {alone:.3f}")
        owned = self.gates.jobs.get(job_id)
        if owned is None:
            self.require(self.lost[self.plan.gate_engine] and there.acked, f"no gate knows of {what}")
            return
        known = owned.statuses.get(name)
        self.require(known is there.ended, f"{what} ended as {there.ended}, and the gates have {known}")
        self.require(there.acked, f"{name} does not know that the gates know how {job_id} ended")
        if not there.by_gate and owned.decided is None and not owned.rebuilt:  # an answer to a question tells no more
            told = owned.extensions.get(name, 0.0)
            self.require(
                abs(told - there.extended) < 1e-6, f"{what} was given {there.extended} s, the gates know {told}"
            )

    # What happened

    def tally(self, world: World) -> Counter[str]:
        """How often each kind of fault, of job and of end occurred in this run."""
        found = Counter({"runs": 1, "jobs": len(self.asked), "prompt decisions": self.prompt})
        found[f"turn: {self.turns[world.seed % len(self.turns)]}"] += 1
        for fault in self.planned:
            found[f"fault: {fault.kind}"] += 1
        for owned in self.gates.jobs.values():
            found[f"end: {owned.ended}"] += 1
            found[f"in {len(owned.statuses)} datacenters"] += 1
            found["rebuilt from reports"] += owned.rebuilt
            found["deadline extended"] += any(owned.extensions.values())
            if owned.decided_rule is not None:
                found[f"decided: {owned.decided_rule}"] += 1
        for book in self.books.values():
            found.update(f"there: {rule}" for rule in book.rules.values())
            found["tombstones"] += len(book.tombstones)
            found["elections"] += book.epoch
        found["gate elections"] += self.gates.epoch
        found["cancels"] += len(self.cancelled_at)
        return found


class CalmGates(Gates):
    """Nothing fails: every deadline and every cancel is kept within a round trip."""

    most_others: ClassVar[int] = 0
    turns: ClassVar[tuple[Misfortune, ...]] = (Misfortune.NONE,)


class BusyGates(Gates):
    """The same world with three times the jobs: batches are longer, and a lost journal or a dead leader leaves more behind."""

    jobs: ClassVar[int] = 300


class ImpatientGates(CalmGates):
    """Nothing fails but the patience of clients: they hang up while they are answered, and ask again (decision 0182)."""

    impatient_share: ClassVar[float] = 0.6
