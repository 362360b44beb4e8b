"""A datacenter in which calls of our own code raise: no node ends, at most the struck job fails and says so, everything else completes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import msgspec

from tenure.control.messages.jobs import Submit
from tenure.errors import TenureError
from tenure.jobs.decisions import Rule
from tenure.jobs.endings import JobEnded
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import JobState
from tenure.jobs.topics import decode_event
from tenure.nodes.manager.manager import Manager
from tenure.sim.faults import FaultProfile
from tenure.sim.scenario import run_one
from tenure.sim.world import Host, World
from tests.worlds.datacenter.clients import RETRY, ScriptedClient
from tests.worlds.datacenter.plays import Play
from tests.worlds.datacenter.scenario import Datacenter
from tests.worlds.datacenter.slots import KeptSlots
from tests.worlds.struck.striker import Blow, Striker, plan, targets

TIMEOUT_S = 45.0
"""Much more than anything here takes: a job that ends by its deadline was held up by something that was not its own."""


class StruckClient(ScriptedClient):
    """Submits work that goes well. One that is refused because our own code failed on it is told so, and goes on."""

    def _next(self) -> Submit:
        self._number += 1
        names = ("a", "b") if self._random.random() < 0.3 else ("a",)
        specs = tuple(
            WorkflowSpec(
                name=name,
                function="scripted",
                arguments={"plays": [Play.ADVANCE], "steps": self._random.randint(1, 2)},
                after=("a",) if name == "b" else (),
                retry=msgspec.structs.replace(RETRY, max_attempts=6),
            )
            for name in names
        )
        job_id = f"{self._host.id}-{self._number}"
        return Submit(
            submission=JobSubmission(
                job_id=job_id, workflows=specs, timeout_seconds=TIMEOUT_S, stuck_threshold=0.9 * TIMEOUT_S
            )
        )


class Struck(Datacenter):
    """Two managers, two workers and one client; two functions are struck, one of them by turn."""

    duration_s = 60.0
    managers: ClassVar[Sequence[str]] = ("m1:1", "m2:1")
    workers: ClassVar[Sequence[str]] = ("w1", "w2")
    clients: ClassVar[Sequence[str]] = ("x",)
    submit_until_s: ClassVar[float] = 1.4
    faults = FaultProfile(most=0)
    slots = KeptSlots  # blows fall on the product's slots too, so the product's guards stand around them

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Manager] = []
        self.refused: set[str] = set()
        self.product_failed: dict[str, JobEnded] = {}
        self.ends: dict[str, JobState] = {}

    def blows(self, world: World) -> list[Blow]:
        return plan(world.random("blows"), calls_of(type(self)), world.seed)

    def setup(self, world: World) -> None:
        self.striker = Striker(self.blows(world), world, self.clients)
        self.striker.install()
        super().setup(world)

    def manager(self, *args: Any, **options: Any) -> Manager:  # type: ignore[override]
        made = Manager(*args, **options)
        self.made.append(made)
        return made

    async def _ask(self, host: Host) -> None:
        client = StruckClient(host, self.managers, self)
        while self._world.now < self.submit_until_s:
            try:
                await client.one_job()
            except (TenureError, AssertionError) as error:
                self.insist("a blow at" in str(error), f"a client was told: {error}")
                self.refused.add(str(error))
            await asyncio.sleep(host.random.uniform(0.1, 0.4))
        self.asked.add(host.name)
        await asyncio.Event().wait()

    def check(self, world: World) -> None:
        before, self.striker.looking = self.journal.seq, True
        super().check(world)
        self.striker.looking = False
        for seq in range(before + 1, self.journal.seq + 1):
            for encoded in self.journal.entries.get(seq, ()):
                if b'"JobEnded"' in encoded:
                    event = decode_event(encoded)
                    assert isinstance(event, JobEnded)
                    self.ends[event.job_id] = event.state
                    if event.rule is Rule.PRODUCT_FAILED:
                        self.product_failed[event.job_id] = event

    def finish(self, world: World) -> None:
        for name in (*self.managers, *self.workers):
            node = world.nodes[name]
            self.require(node.running and node.incarnation == 1, f"{name} ended: {self._told()}")
        aside = self._set_aside()
        for job_id, at in self.accepted_at.items():
            account = self.journal.accounts[job_id]
            self.require(
                account.ended or job_id in aside, f"{job_id}, accepted at {at:.3f} s, has not ended: {self._told()}"
            )
        self.require(self.asked >= set(self.clients), f"the client was not served: {self._told()}")
        self._finish_ends()
        if not aside:
            self.require(self.engine.is_empty(), f"work or results are left in the engine: {self._told()}")

    def _set_aside(self) -> set[str]:
        """Jobs that a blow sticks to, that cannot even be failed, and that their leader says so of."""
        stuck_to = {blow.job_id for blow in self.striker.blows if blow.sticks and blow.struck}
        leaders = [one.leadership.leader for one in self.made if one.leadership.leader is not None]
        return {job_id for leader in leaders for job_id in leader.strikes.aside if job_id in stuck_to}

    def settled(self, world: World) -> bool:
        aside = self._set_aside()
        ended = all(account.ended or job_id in aside for job_id, account in self.journal.accounts.items())
        return self.asked >= set(self.clients) and ended and (bool(aside) or self.engine.is_empty())

    def _finish_ends(self) -> None:
        struck = [blow for blow in self.striker.blows if blow.struck]
        most = len(struck)
        self.require(
            len(self.product_failed) <= most,
            f"{len(self.product_failed)} jobs failed for {most} blows: {sorted(self.product_failed)}: {self._told()}",
        )
        stuck_to = {blow.job_id for blow in struck if blow.sticks}
        for job_id, event in self.product_failed.items():
            # Each thing is tried twice: without a blow that sticks, it takes two to fail a job.
            self.require(
                job_id in stuck_to or most > 1,
                f"{job_id} failed, and no blow stuck to it: {event.reason}: {self._told()}",
            )
            said = "a blow at" in event.reason and "a blow at" in event.evidence["traceback"]
            self.require(said, f"{job_id} does not say why it failed: {event}")
        for job_id, state in self.ends.items():
            well = state in (JobState.COMPLETED, JobState.CANCELLED)
            self.require(
                well or job_id in self.product_failed or job_id in stuck_to,
                f"{job_id} ended as {state}, and nothing struck it: {self._told()}",
            )

    def _told(self) -> str:
        return "; ".join(map(str, self.striker.blows))

    def tally(self, world: World) -> Counter[str]:
        """Also the end of the run: what was struck is whole again."""
        self.striker.remove()
        found = Counter({"jobs": len(self.journal.accounts), "failed": len(self.product_failed)})
        found["refused"] += len(self.refused)
        for blow in self.striker.blows:
            if blow.struck:
                found[f"struck {blow.label}"] += 1
                found["sticking" if blow.sticks else "once"] += 1
        return found


@cache
def calls_of(scenario: type[Struck]) -> dict[str, int]:
    """How often each function is called in a run in which nothing is struck: those that are called, in a fixed order."""
    counting = type(
        "Counting", (scenario,), {"blows": lambda self, world: [Blow(one, -1, KeyError) for one in targets()]}
    )
    made: list[Struck] = []

    def make() -> Struck:
        made.append(counting())
        return made[0]

    outcome = run_one(make, 0)
    assert outcome.ok, outcome.details
    return {blow.label: blow.calls for blow in made[0].striker.blows if blow.calls}
