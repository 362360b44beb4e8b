"""A fleet of workers of mixed speeds in virtual time: after a hundred completions of a workflow its leader knows when the next run will end."""

from __future__ import annotations

import asyncio
import math
import statistics
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.sim.test_earned_time import DEFAULT, replace_report
from tests.worlds.gates import hands
from tests.worlds.gates.cast import manage
from tests.worlds.patching import environment_of
from tests.worlds.planes import SimCaller

from tenure.control.messages.jobs import Done, GetJob, JobView, Submit
from tenure.control.messages.workers import AttemptReport
from tenure.errors import NodeUnavailableError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.nodes.manager import earned_time
from tenure.nodes.worker.worker import ManagedWorker
from tenure.sim.world import Host, World

MANAGER = "m1:1"
SPEEDS = {"w1": 0.4, "w2": 0.6, "w3": 1.0, "w4": 1.0, "w5": 1.6, "w6": 2.4}
"""Maps each worker to how long it takes for what an average one does in 1."""
SPREAD = 0.2
STEPS = 60
LEARNED_FROM, JUDGED = 100, 50


class TellsHowFar(hands.Act):
    """Work that says how much of it is done."""

    def report(self, now: float) -> AttemptReport:
        done = self.steps / (self.steps + self.left) if self.steps else 0.0
        return replace_report(super().report(now), fraction=done)


async def work(host: Host) -> None:
    """One slot on a machine of its own speed."""
    slots = hands.Hands(host, DEFAULT.lease_s, step_s=hands.STEP_S * SPEEDS[host.name], slots=1)
    node = ManagedWorker(host.name, slots, environment_of(host), SimCaller(host), DEFAULT.reports)
    await asyncio.gather(slots.run(), node.run())


class Client:
    """Submits a job whenever one has ended, and compares the first estimate that it reads of each with its end."""

    def __init__(self, jobs: int) -> None:
        self.jobs, self.random = jobs, Random(3)
        self.off: list[float | None] = []
        """For each job that ended: how far off the first estimate was, as a share of what the job took; None where there was none."""

    async def run(self, host: Host) -> None:
        self._host, self._caller = host, SimCaller(host)
        numbers = iter(range(self.jobs))
        await asyncio.gather(*(self._one_after_another(numbers) for _ in SPEEDS))

    async def _one_after_another(self, numbers: Any) -> None:
        for number in numbers:
            steps = max(3, round(STEPS * math.exp(self.random.gauss(0, SPREAD))))
            spec = WorkflowSpec(name="w", arguments={"steps": steps, "ends": "well"})
            await self._ask(Submit(submission=JobSubmission(job_id=f"j{number}", workflows=(spec,))))
            await self._follow(f"j{number}")

    async def _follow(self, job_id: str) -> None:
        expected: float | None = None
        while True:
            view = await self._ask(GetJob(job_id=job_id))
            assert isinstance(view, JobView)
            [one] = view.workflows
            if view.ended:
                took = one.ended_at - one.started_at
                self.off.append(abs(expected - one.ended_at) / took if expected is not None else None)
                return
            if expected is None and one.eta is not None:
                expected = view.now + one.eta.left_s
            await self._host.clock.async_sleep(1.0)

    async def _ask(self, request: Any) -> Any:
        while True:
            with suppress(NodeUnavailableError):
                reply = await self._caller.ask(MANAGER, request, 10.0)
                if isinstance(reply, (Done, JobView)):
                    return reply
            await self._host.clock.async_sleep(1.0)  # nobody leads yet


def fleet() -> list[float | None]:
    world = World(1, keep_trace=None)
    client = Client(LEARNED_FROM + JUDGED)
    world.node(MANAGER, partial(manage, datacenter="a", pace=DEFAULT), engine="a").start()
    for name in SPEEDS:
        world.node(name, work, engine="a").start()
    world.node("client", client.run, engine="a").start()
    try:
        while len(client.off) < client.jobs:
            assert world.now < 5_000
            world.run_for(20.0)
            world.require_no_unread_errors()
    finally:
        world.close()
    return client.off


@pytest.mark.parametrize("act", [hands.Act, TellsHowFar], ids=["beats only", "says how far it is"])
def test_after_a_hundred_completions_the_first_estimate_is_within_a_fifth_on_median(
    act: type[hands.Act], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "Act", act)
    judged = fleet()[LEARNED_FROM:]
    known = [one for one in judged if one is not None]
    assert len(known) == len(judged)  # each was estimated
    assert statistics.median(known) <= 0.2


def test_without_what_was_learned_of_the_workers_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = earned_time.usual
    monkeypatch.setattr(earned_time, "usual", lambda rates, spec, worker: sound(rates, spec))
    known = [one for one in fleet()[LEARNED_FROM:] if one is not None]
    assert statistics.median(known) > 0.2
