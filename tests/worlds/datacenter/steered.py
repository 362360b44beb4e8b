"""The datacenter with somebody who pauses, resumes, retimes and moves its jobs at random while things fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from tenure.control.messages.jobs import (
    JobList,
    ListJobs,
    MoveRunningJob,
    PauseRunningJob,
    ResumePausedJob,
    RetimeRunningJob,
    SteeringRequest,
)
from tenure.errors import NodeRefusedError, UnknownJobError
from tenure.randomness import Random
from tenure.sim.world import Host, World
from tests.worlds.datacenter.clients import ScriptedClient
from tests.worlds.datacenter.scenario import Datacenter

STEERS_UNTIL_S = 14.0


class Steered(Datacenter):
    """Everything that is paused is resumed in the end, so every job ends here, too."""

    steerers: ClassVar[Sequence[str]] = ("z",)

    def setup(self, world: World) -> None:
        super().setup(world)
        for name in self.steerers:
            world.node(name, self._steer).start()

    async def _steer(self, host: Host) -> None:
        client = ScriptedClient(host, self.managers, self)
        while self._world.now < STEERS_UNTIL_S:
            await asyncio.sleep(host.random.uniform(0.05, 0.4))
            await self._act(client, host.random)
        while paused := [job_id for job_id, one in self.journal.accounts.items() if one.paused_at is not None]:
            for job_id in paused:
                await self._ask_once(client, ResumePausedJob(job_id=job_id, reason="the end", by="z"))
            await asyncio.sleep(0.2)
        await asyncio.Event().wait()

    async def _act(self, client: ScriptedClient, random: Random) -> None:
        listed = await client.ask(ListJobs())
        assert isinstance(listed, JobList)
        live = [row for row in listed.jobs if not row.state.terminal]
        if not live:
            return
        row = random.choice(live)
        if row.paused and random.random() < 0.8:
            await self._ask_once(client, ResumePausedJob(job_id=row.job_id, reason="scripted", by="z"))
            return
        moved = MoveRunningJob(job_id=row.job_id, reason="scripted", by="z")
        choices: list[SteeringRequest] = [
            PauseRunningJob(job_id=row.job_id, reason="scripted", by="z"),
            moved,
            moved,
            RetimeRunningJob(job_id=row.job_id, reason="scripted", by="z", add_s=2.0),
        ]
        await self._ask_once(client, random.choice(choices))

    async def _ask_once(self, client: ScriptedClient, request: SteeringRequest) -> None:
        with suppress(NodeRefusedError, UnknownJobError):  # it has just ended
            await client.ask(request)
