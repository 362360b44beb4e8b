"""Urgent work among batches, on real nodes in virtual time, while a worker and the manager crash (decision 0570)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from tests.worlds.patching import environment_of
from tests.worlds.planes import SimCaller, serve

from tenure import workflow
from tenure.control.messages.jobs import Done, Submit
from tenure.control.messages.queues import ChangeQueue
from tenure.control.messages.wire import Request
from tenure.errors import NodeUnavailableError
from tenure.jobs.attempts import charged
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import JobSettings
from tenure.jobs.states import AttemptCause, JobState
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.worker.inline_slots import InlineSlots
from tenure.nodes.worker.worker import ManagedWorker, ReportSettings
from tenure.sim.world import Host, World
from tenure.work.registry import Registry
from tenure.work.slots.settings import SlotSettings

MANAGER, WORKERS, SLOTS = "m1:1", 3, 2
BATCHES, STEPS, STEP_S = 8, 30, 20.0
URGENT, EVERY_S, TAKES_S, PATIENCE_S = 12, 45.0, 30.0, 15.0


class PreemptingWorld:
    """More batches than slots, and urgent work that comes now and then and finds no slot free."""

    def __init__(self, seed: int, preempt_after: float | None) -> None:
        self.world = World(seed, keep_trace=None)
        self.began: dict[str, float] = {}
        self.active: dict[str, set[str]] = {}
        """Maps each batch to the workers that run it now."""
        self.together: list[str] = []
        """Jobs of which two attempts ran at once."""
        self._preempt_after = preempt_after
        self.manager: Manager | None = None
        self.nodes = [self.world.node(MANAGER, self._manage, engine="a")]
        self.nodes += [self.world.node(f"w{number}", self._work, engine="a") for number in range(WORKERS)]
        for node in (*self.nodes, self.world.node("client", self._submit, engine="a")):
            node.start()

    async def _manage(self, host: Host) -> None:
        self.manager = Manager(
            host.id, host.name, environment_of(host), ManagerSetup("a", 10.0, JobSettings()), gates=SimCaller(host)
        )
        serve(host, self.manager.answer)
        await self.manager.run()

    async def _work(self, host: Host) -> None:
        settings = SlotSettings(
            queue="default.p9", more_queues=("default.p0",), slots=SLOTS, lease_s=60.0, tick_s=1.0, wait_s=20.0
        )
        slots = InlineSlots(environment_of(host), Registry(self._functions(host)), settings, worker=host.name)
        node = ManagedWorker(host.name, slots, environment_of(host), SimCaller(host), ReportSettings(every_s=2.0))
        await asyncio.gather(node.run(), slots.run())

    def _functions(self, host: Host) -> list[Any]:
        @workflow
        async def batch(ctx: Any) -> None:
            on = self.active.setdefault(ctx.job, set())
            if on:
                self.together.append(ctx.job)
            on.add(host.name)
            try:
                for step in range(ctx.resume or 0, STEPS):
                    await host.clock.async_sleep(STEP_S)
                    ctx.save(step + 1)
                    ctx.beat()
            finally:
                on.discard(host.name)

        @workflow
        async def urgent(ctx: Any) -> None:
            self.began.setdefault(ctx.job, self.world.now)
            await host.clock.async_sleep(TAKES_S)
            ctx.beat()

        return [batch, urgent]

    async def _submit(self, host: Host) -> None:
        await self._ask(host, ChangeQueue(queue="default", preempt_after=self._preempt_after))
        for number in range(BATCHES):
            await self._ask(host, self._job(f"batch-{number}", "batch", 0))
        for number in range(URGENT):
            await host.clock.async_sleep(EVERY_S)
            await self._ask(host, self._job(f"urgent-{number}", "urgent", 9))

    def _job(self, job_id: str, name: str, priority: int) -> Submit:
        spec = WorkflowSpec(name=name, max_attempts=3)
        return Submit(submission=JobSubmission(job_id=job_id, workflows=(spec,), priority=priority, park=True))

    async def _ask(self, host: Host, request: Request) -> None:
        while True:
            with suppress(NodeUnavailableError):
                if isinstance(await SimCaller(host).ask(MANAGER, request, 10.0), Done):
                    return
            await host.clock.async_sleep(1.0)

    def run(self, seconds: float) -> None:
        self.world.run_for(seconds)
        self.world.require_no_unread_errors()

    def crash(self, number: int) -> None:
        """Ends a node without a word: nothing of what it ran goes on."""
        self.nodes[number].crash()
        for on in self.active.values():
            on.discard(f"w{number - 1}")

    def waited(self) -> list[float]:
        """Returns how long each urgent job that began had waited."""
        assert self.manager is not None
        jobs = self.manager.ledger.book.jobs
        offset = self.manager.now() - self.world.now
        return [at - (jobs[job_id].job.submitted_at - offset) for job_id, at in self.began.items()]

    def batches(self) -> list[Any]:
        assert self.manager is not None
        return [self.manager.ledger.book.jobs[f"batch-{number}"] for number in range(BATCHES)]


def test_urgent_work_begins_soon_and_every_batch_completes_uncharged() -> None:
    made = PreemptingWorld(1, PATIENCE_S)
    made.run(URGENT * EVERY_S + 120.0)
    assert len(made.began) == URGENT
    # Its patience, until an attempt has saved, a report and the claim; a claim in eight is left to lower priorities, which costs one more round.
    assert max(made.waited()) < PATIENCE_S + STEP_S + 45.0
    made.run(2_000.0)
    assert [one.state for one in made.batches()] == [JobState.COMPLETED] * BATCHES
    assert [charged(one.workflows["batch"]) for one in made.batches()] == [0] * BATCHES
    assert any(one.workflows["batch"].cause is AttemptCause.PREEMPTED for one in made.batches())
    assert not made.together
    made.world.close()


def test_without_the_rule_urgent_work_waits_for_a_batch_to_end() -> None:
    made = PreemptingWorld(1, None)
    made.run(URGENT * EVERY_S + 30.0)
    assert not made.began, "every slot has a batch that takes longer"
    made.world.close()


def test_a_crashed_worker_and_a_crashed_leader_change_no_promise() -> None:
    made = PreemptingWorld(2, PATIENCE_S)
    made.run(200.0)
    made.crash(1)
    made.run(30.0)
    made.nodes[1].start()
    made.run(60.0)
    made.crash(0)
    made.run(15.0)
    made.nodes[0].start()
    made.run(3_600.0)
    assert [one.state for one in made.batches()] == [JobState.COMPLETED] * BATCHES
    assert len(made.began) == URGENT
    assert not made.together
    made.world.close()
