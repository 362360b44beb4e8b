"""The leader dies, and clients go on submitting: how long until the next submission is accepted?

Terms and patience are those that managers and clients have by default. Two deaths: the process is killed, so that whoever asks it is refused
at once; or the machine vanishes, so that nobody is told anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from tenure.control.messages.jobs import Done
from tenure.sim.faults import FaultProfile
from tenure.sim.world import Host, World
from tests.worlds.datacenter.clients import ScriptedClient
from tests.worlds.datacenter.scenario import Datacenter

TERM_S = 10.0


class Failover(Datacenter):
    """One death in each run, at a moment of the term that the seed decides."""

    duration_s = 45.0
    managers: ClassVar[Sequence[str]] = ("m1:1", "m2:1", "m3:1")
    workers: ClassVar[Sequence[str]] = ()
    faults = FaultProfile(most=0)
    term_s: ClassVar[float] = TERM_S
    vanishes: ClassVar[bool] = False

    def setup(self, world: World) -> None:
        super().setup(world)
        self.died_at = self.next_at = 0.0
        world.at(10.0 + TERM_S * world.random("death").random(), self._kill)

    def _kill(self) -> None:
        world, leader = self._world, self._leading()
        if self.vanishes:
            rest = [name for name in (*world.nodes, *world.engines) if name != leader]
            world.network.partition([leader], rest)
        world.nodes[leader].crash()
        self.died_at = world.now

    async def _ask(self, host: Host) -> None:
        client = ScriptedClient(host, self.managers, self)
        while True:
            await client.submit_one()
            await asyncio.sleep(host.random.random())

    def accepted(self, job_id: str, done: Done) -> None:
        super().accepted(job_id, done)
        if self.died_at and not self.next_at and done.epoch > 1:
            self.next_at = self._world.now

    def settled(self, world: World) -> bool:
        return self.next_at > 0

    def finish(self, world: World) -> None:
        self.require(self.died_at and self.next_at, "after the leader's death nothing was accepted any more")
        took = self.next_at - self.died_at
        self.require(took < 2 * TERM_S, f"after the leader's death it took {took:.3f} s until something was accepted")


class Vanishing(Failover):
    vanishes = True
