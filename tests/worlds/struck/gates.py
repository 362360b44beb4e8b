"""Three datacenters under two gates, in which calls of our own code raise: no node ends, at most the struck job is withdrawn, all else ends well."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import ClassVar

from tenure.jobs.decisions import Rule
from tenure.jobs.model import JobSubmission
from tenure.sim.scenario import run_one
from tenure.sim.world import Host, World
from tests.worlds.gates.cast import Pace, Plan
from tests.worlds.gates.clients import Client
from tests.worlds.gates.misfortunes import Misfortune
from tests.worlds.gates.scenario import Gates
from tests.worlds.struck.striker import Blow, Striker, plan, targets

PATIENCE = 3
"""How often a client asks again that is told that our own code failed."""


class GaveUpError(Exception):
    """A client was told too often that its request fails."""


class PatientClient(Client):
    """Goes on with its other requests when it gave up one."""

    async def submit_all(self, jobs: Sequence[JobSubmission]) -> None:
        with suppress(GaveUpError):
            await super().submit_all(jobs)

    async def submit_one(self, job: JobSubmission) -> None:
        with suppress(GaveUpError):
            await super().submit_one(job)

    async def cancel(self, job_ids: Sequence[str], after_s: float, before: Sequence[JobSubmission] = ()) -> None:
        with suppress(GaveUpError):
            await super().cancel(job_ids, after_s, before)


class StruckGates(Gates):
    """Few jobs, in one datacenter or in both; two functions are struck, one of them by turn."""

    plan: ClassVar[Plan] = Plan.of(3, 2, pace=Pace.brisk())
    duration_s = 60.0
    jobs: ClassVar[int] = 6
    submit_until_s: ClassVar[float] = 0.5
    most_others: ClassVar[int] = 0
    greedy_share: ClassVar[float] = 0.0
    turns: ClassVar[tuple[Misfortune, ...]] = (Misfortune.NONE,)

    def __init__(self) -> None:
        super().__init__()
        self.refused: Counter[str] = Counter()

    def blows(self, world: World) -> list[Blow]:
        return plan(world.random("blows"), calls_of(type(self)), world.seed)

    def setup(self, world: World) -> None:
        self.striker = Striker(self.blows(world), world, ["client"])
        self.striker.install()
        super().setup(world)

    def objects(self, why: str) -> None:
        """A client that is told that our own code failed asks again, and gives up when it is told so again and again."""
        if "a blow at" not in why:
            super().objects(why)
            return
        self.refused[why] += 1
        if self.refused[why] > PATIENCE:
            raise GaveUpError(why)

    async def _ask(self, host: Host) -> None:
        client = PatientClient(host, self.plan, self)
        await client.ask_for(self.jobs, self.submit_until_s)
        self.served = True
        while not self.agreed:
            await asyncio.sleep(0.5)
            self.agreed = self._all_ended() and await self._agree(client)
        await asyncio.Event().wait()

    def accepted(self, submission: JobSubmission) -> None:
        """Of many that are submitted at once, one may have been refused: its client was told so."""
        if submission.job_id in self.gates.jobs:
            super().accepted(submission)

    def check(self, world: World) -> None:
        self.striker.looking = True
        super().check(world)
        self.striker.looking = False

    def finish(self, world: World) -> None:
        plan = self.plan
        for name in (*plan.gates, *(one for some in (*plan.managers.values(), *plan.workers.values()) for one in some)):
            node = world.nodes[name]
            self.require(node.running and node.incarnation == 1, f"{name} ended: {self._told()}")
        self.require(self.served, f"the client was not served: {self._told()}")
        stuck_to = {blow.job_id for blow in self.striker.blows if blow.sticks and blow.struck}
        for job_id in self.asked:
            owned = self.gates.jobs.get(job_id)
            self.require(owned is not None, f"{job_id} was accepted, and the gates do not know it: {self._told()}")
            ended = owned is not None and owned.ended is not None
            self.require(ended or job_id in stuck_to, f"{job_id} has not ended everywhere: {self._told()}")
        for name, book in self.books.items():
            for job_id, there in book.jobs.items():
                self.require(there.ended or job_id in stuck_to, f"{job_id} has not ended in {name}: {self._told()}")
        withdrawn = self._withdrawn()
        most = sum(1 for blow in self.striker.blows if blow.struck)
        self.require(len(withdrawn) <= most, f"{sorted(withdrawn)} were withdrawn for {most} blows: {self._told()}")
        for job_id in withdrawn:
            self.require(
                job_id in stuck_to or most > 1, f"{job_id} was withdrawn, and nothing stuck to it: {self._told()}"
            )
        self.require(
            self.agreed or stuck_to, f"not every node agrees how everything ended: {self.behind}: {self._told()}"
        )

    def _withdrawn(self) -> set[str]:
        """Jobs that a gate withdrew, or a datacenter failed, because our own code failed on them."""
        found = {job_id for job_id, owned in self.gates.jobs.items() if owned.decided_rule is Rule.PRODUCT_FAILED}
        for book in self.books.values():
            found |= {job_id for job_id, rule in book.rules.items() if rule is Rule.PRODUCT_FAILED}
        return found

    def _told(self) -> str:
        return "; ".join(map(str, self.striker.blows))

    def tally(self, world: World) -> Counter[str]:
        """Also the end of the run: what was struck is whole again."""
        self.striker.remove()
        found = Counter({"jobs": len(self.asked), "failed": len(self._withdrawn()), "refused": self.refused.total()})
        for blow in self.striker.blows:
            if blow.struck:
                found[f"struck {blow.label}"] += 1
                found["sticking" if blow.sticks else "once"] += 1
        return found


@cache
def calls_of(scenario: type[StruckGates]) -> dict[str, int]:
    """How often each function is called in a run in which nothing is struck."""
    counting = type(
        "Counting", (scenario,), {"blows": lambda self, world: [Blow(one, -1, KeyError) for one in targets()]}
    )
    made: list[StruckGates] = []

    def make() -> StruckGates:
        made.append(counting())
        return made[0]

    outcome = run_one(make, 0)
    assert outcome.ok, outcome.details
    return {blow.label: blow.calls for blow in made[0].striker.blows if blow.calls}
