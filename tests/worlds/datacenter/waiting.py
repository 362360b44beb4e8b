"""The datacenter with work that records steps, sleeps, waits for signals and gathers its children, while things fail.

The functions are real async workflows on the real `ctx`; only their calls to the engine travel over the simulated network, and their children are
submitted over it. The observer knows which step was acknowledged to whom, which signals the journal has, and when each timer was due.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from tenure import workflow
from tenure.backoff import Retry
from tenure.control.messages.jobs import GetJob, JobView, SignalJob, Submit
from tenure.errors import NodeRefusedError, UnknownJobError
from tenure.jobs.attempt_results import WorkflowCompleted
from tenure.jobs.endings import JobEnded
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import JobState
from tenure.jobs.waits import SignalReceived, Suspended, Woken
from tenure.nodes.manager.ledger import JOURNAL
from tenure.nodes.worker.courier import child_view
from tenure.randomness import Random
from tenure.sim.faults import FaultProfile
from tenure.sim.world import Host, World
from tenure.work.job_submission import AsyncChildJob, ChildView
from tenure.work.registry import Workflow
from tests.worlds.datacenter.clients import ScriptedClient
from tests.worlds.datacenter.engine_watch import EngineWatch
from tests.worlds.datacenter.journal_watch import JournalWatch
from tests.worlds.datacenter.plays import PLAYS, Play, play_of
from tests.worlds.datacenter.scenario import Datacenter
from tests.worlds.datacenter.slots import Onlooker, ScriptedSlots
from tests.worlds.datacenter.stage import Stage
from tests.worlds.datacenter.times import LATE_S

STUMBLES = (Play.FAIL, Play.CRASH, Play.HANG, Play.LATE)
"""What an attempt may do in the middle of its script. The next one goes on from its steps."""
SIGNAL = "go"
CLOCK_OFF_S = 0.5
"""A leader reads the engine's time by a call, and is off by half of a slow one at most. That it wakes nobody early by its own time is judged exactly, from the journal."""
RETRY = Retry(max_attempts=12, delay=0.2, max_delay=1.0, jitter=0.0)
"""More tries than a run has misfortunes, so that a job fails only if its steps or waits do."""


class SimCourier:
    """Carries children over the simulated network. A look at them is made before it is asked for: `JobCourier` is blocking."""

    poll_s = 0.0

    def __init__(self, client: ScriptedClient) -> None:
        self._client = client
        self._seen: dict[str, ChildView] = {}

    async def submit(self, submission: JobSubmission, known: Any) -> str:
        await self._client.ask(Submit(submission=submission))
        return submission.job_id

    async def see(self, job_ids: Sequence[str]) -> None:
        """Asks for the children. What it hears may be old by the time it is used, as every answer may."""
        for job_id in job_ids:
            reply = await self._client.ask(GetJob(job_id=job_id))
            assert isinstance(reply, JobView)
            self._seen[job_id] = child_view(reply)

    def look(self, job_id: str, wait_s: float) -> ChildView:
        return self._seen[job_id]

    def cancel(self, job_id: str, reason: str) -> None:
        raise AssertionError("no script cancels its children")

    def why(self, job_id: str) -> str:
        return "it was cancelled with its parent"


class WaitingSlots(ScriptedSlots):
    """Scripted slots whose scripts use the whole of `ctx`."""

    def __init__(self, host: Host, onlooker: Onlooker) -> None:
        super().__init__(host, onlooker)
        assert isinstance(onlooker, Waiting)
        self.world = onlooker
        self.registry.add(waiter(self))
        courier: Any = SimCourier(ScriptedClient(host, onlooker.managers, onlooker))
        self._courier = lambda: courier
        self.random = host.random

    def travel(self, context: Any) -> None:
        """Lets the calls of this attempt travel to the engine, or to the managers, in place of a thread."""

        async def submit(workflow: str, arguments: Any, *, key: str, **options: Any) -> AsyncChildJob[Any]:
            courier, submission, known = context._child(workflow, (arguments,), key, options)
            job_id = await courier.submit(submission, known)
            context.beat()
            return AsyncChildJob(context, courier, job_id, workflow)

        context.in_thread, context.submit = self._calls.run, submit

    def stage_of(self, context: Any) -> Stage:
        return self._stage_of(context)


def waiter(slots: WaitingSlots) -> Workflow[..., Any]:
    """Returns the workflow of this world. Its script names what it does, one after the other."""

    @workflow(name="waiter")
    async def wait(ctx: Any, plays: list[str], script: list[str], stumbles_at: int = 99) -> dict[str, Any]:
        stage = slots.stage_of(ctx)
        stage.context = ctx
        slots.travel(ctx)
        actor = Actor(slots, ctx, stage)
        for place, act in enumerate(script):
            if place == stumbles_at and play_of(stage) in STUMBLES:
                await PLAYS[play_of(stage)](stage)
            kind, _, value = act.partition(" ")
            await ACTS[kind](actor, place, value)
        return {**stage.made_by(), "said": actor.said}

    return wait


class Actor:
    """One attempt of the workflow above."""

    def __init__(self, slots: WaitingSlots, ctx: Any, stage: Stage) -> None:
        self.slots, self.ctx, self.stage, self.world = slots, ctx, stage, slots.world
        self.said: list[Any] = []
        self._known = set(self.world.acknowledged[stage.item.job_id])
        """The steps that somebody was told are recorded, before this attempt began."""

    async def step(self, place: int, value: str) -> None:
        await self._step(f"s{place}")

    async def both(self, place: int, value: str) -> None:
        """Two steps at once, in an order that is another one in each attempt."""
        names = [f"a{place}", f"b{place}"]
        if self.slots.random.random() < 0.5:
            names.reverse()
        await asyncio.gather(*(self._step(name) for name in names))

    async def _step(self, name: str) -> None:
        async def effect() -> str:
            job_id = self.stage.item.job_id
            self.world.insist(
                name not in self._known, f"step {name} of {job_id} ran again after its result was acknowledged"
            )
            await self.stage.work(0.1)
            return f"{self.stage.incarnation}/{self.stage.ticket.receipt_handle}/{name}"

        value = await self.ctx.step(name, effect)
        self.world.step_done(self.stage.item.job_id, name, value)

    async def checkpoint(self, place: int, value: str) -> None:
        saved = self.ctx.saved
        if saved is None or saved["place"] < place:
            await self.ctx.checkpoint({"place": place})

    async def sleep(self, place: int, value: str) -> None:
        await self.ctx.sleep(minutes=float(value) / 60)
        item, journal = self.stage.item, self.world.journal
        assert isinstance(journal, WaitingJournal)
        early = journal.due.get((item.job_id, item.workflow_id), float("inf")) - self.world.engine_now()
        self.world.insist(early <= CLOCK_OFF_S, f"a sleep of {item.job_id} ended {early:.3f} s before its time")

    async def event(self, place: int, value: str) -> None:
        self.said.append(await self.ctx.wait_event(SIGNAL))

    async def gather(self, place: int, value: str) -> None:
        children = []
        for number in range(int(value)):
            arguments = {"plays": ["advance"], "script": ["step", "sleep 5.5", "step"][: 1 + number]}
            options = {"retry": RETRY, "labels": {"tenure.parent": ""}}
            children.append(await self.ctx.submit("waiter", arguments, key=f"{place}-{number}", **options))
        await children[0]._courier.see([child.id for child in children])
        results = await self.ctx.gather(children)
        self.world.insist(
            all("made_by" in one for one in results), f"{self.stage.item.job_id} got {results} of its children"
        )


ACTS: dict[str, Callable[[Actor, int, str], Coroutine[Any, Any, None]]] = {
    "step": Actor.step,
    "both": Actor.both,
    "checkpoint": Actor.checkpoint,
    "sleep": Actor.sleep,
    "event": Actor.event,
    "gather": Actor.gather,
}


def waiting_submission(job_id: str, random: Random) -> JobSubmission:
    acts = ("step", "step", "both", "checkpoint", "event", "event", "sleep 5.5", "gather 2")
    script = [random.choice(acts) for _ in range(random.randint(2, 5))] + ["step"]
    plays = [random.choice(STUMBLES) for _ in range(random.choice([0, 0, 1, 2]))] + [Play.ADVANCE]
    spec = WorkflowSpec(
        name="a",
        function="waiter",
        arguments={
            "plays": [play.value for play in plays],
            "script": script,
            "stumbles_at": random.randrange(len(script)),
        },
        retry=RETRY,
    )
    timeout = 6.0 if random.random() < 0.15 else None
    stuck = 20.0 if timeout is None else None
    return JobSubmission(job_id=job_id, workflows=(spec,), timeout_seconds=timeout, grace=0.0, stuck_threshold=stuck)


class WaitingClient(ScriptedClient):
    """Submits work that waits."""

    async def one_job(self) -> None:
        self._number += 1
        submission = waiting_submission(f"{self._host.id}-{self._number}", self._random)
        self._audience.accepted(submission.job_id, await self._done(Submit(submission=submission)))


class Sender(ScriptedClient):
    """Sends each job the signals that it waits for: early, late, and some of them twice. Cancels a few."""

    async def attend(self, job_id: str, signals: int) -> None:
        if self._random.random() < 0.1:
            await self._nap(6.0)
            await self._cancel(job_id)
        for number in range(signals):
            await self._nap(self._random.choice([0.1, 1.0, 6.0]))
            for _ in range(self._random.choice([1, 1, 2])):
                await self._signal(job_id, number)

    async def _signal(self, job_id: str, number: int) -> None:
        request = SignalJob(job_id=job_id, name=SIGNAL, signal_id=f"s{number}", payload=number, by="z")
        with suppress(NodeRefusedError, UnknownJobError):  # it has ended
            await self.ask(request)


class WaitingJournal(JournalWatch):
    """The observer of the journal, who also knows what work waits for."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.signals: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        self.due: dict[tuple[str, str], float] = {}
        """When the last wait of each workflow ends, by the journal."""
        self._judges |= {Suspended: self._suspended, Woken: self._woken, SignalReceived: self._signalled}

    def _suspended(self, event: Suspended) -> None:
        track = self._track(event)
        track.delivery, track.worker, track.incarnation = 0, "", ""  # the next generation counts from the start
        self.due[event.job_id, event.workflow] = event.until
        self.seen["Suspended over" if event.over else "Suspended waits"] += 1

    def _woken(self, event: Woken) -> None:
        due = self.due[event.job_id, event.workflow]
        self._require(event.at >= due > 0, f"{event.job_id} was woken {due - event.at:.3f} s before its time")
        calm = event.at - due - self._disturbed(due, event.at)
        self._require(
            calm <= LATE_S, f"{event.job_id} was woken {event.at - due:.3f} s late, {calm:.3f} s of them calm"
        )

    def _signalled(self, event: SignalReceived) -> None:
        account, before = self.accounts[event.job_id], self.signals[event.job_id]
        self._require(account.ended is None, f"a signal to {event.job_id} came after its end")
        twice = any(payload == event.payload for _, payload in before)
        self._require(not twice, f"signal {event.payload} to {event.job_id} was counted twice")
        before.append((event.signal_id, event.payload))

    def catch_up(self) -> None:
        before = self.seq
        super().catch_up()
        if self.seq != before:
            for worker, held in self.book.on_worker.items():
                for job_id, name in held:
                    one = self.book.jobs[job_id].workflows[name]
                    self._require(
                        one.worker == worker, f"{worker} counts as the holder of {job_id}, which is {one.state}"
                    )

    def ended(self, event: JobEnded) -> None:
        super().ended(event)
        self._require(event.state is not JobState.FAILED, f"{event.job_id} failed: {event.reason}")

    def completed(self, event: WorkflowCompleted) -> None:
        super().completed(event)
        said = event.result.get("said", [])
        came = [payload for _, payload in self.signals[event.job_id]]
        self._require(said == came[: len(said)], f"{event.job_id} was told {came}, and its waits returned {said}")


class Waiting(Datacenter):
    """Whatever was accepted, and was not cancelled or given a deadline, completes; no step that was acknowledged runs again."""

    duration_s = 120.0
    slots: ClassVar[type[ScriptedSlots]] = WaitingSlots
    faults = FaultProfile(kinds=Datacenter.faults.kinds, most=6, until_s=14.0, duration_s=(0.3, 4.0))

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged: dict[str, dict[str, str]] = defaultdict(dict)

    def engine_now(self) -> float:
        return self._offset + self._world.now

    def setup(self, world: World) -> None:
        super().setup(world)
        world.node("z", self._send).start()
        engine = world.backend.engine
        pages = engine.store(f"{JOURNAL}.pages")
        self.journal = WaitingJournal(engine.journal(JOURNAL), pages, self.insist, self.disturbed)
        self.engine = EngineWatch(engine, self.journal, self.insist)

    async def _ask(self, host: Host) -> None:
        client = WaitingClient(host, self.managers, self)
        while self._world.now < self.submit_until_s:
            await client.one_job()
            await asyncio.sleep(host.random.uniform(0.4, 2.5))
        self.asked.add(host.name)
        await asyncio.Event().wait()

    async def _send(self, host: Host) -> None:
        """No fault strikes whoever sends: signals that nobody sends would be no fault of the datacenter's."""
        attended: set[str] = set()
        while True:
            for job_id, info in list(self.journal.book.jobs.items()):
                if job_id not in attended and "/" not in job_id:  # children are left to their parents
                    attended.add(job_id)
                    signals = info.job.submission.workflows[0].arguments["script"].count("event")
                    host.loop.create_task(Sender(host, self.managers, self).attend(job_id, signals))
            await asyncio.sleep(0.1)

    def step_done(self, job_id: str, name: str, value: str) -> None:
        """A workflow was told that this is the result of the step. Every other attempt is told the same."""
        before = self.acknowledged[job_id].setdefault(name, value)
        self.insist(before == value, f"step {name} of {job_id} was acknowledged as {before}, and then as {value}")

    def finish(self, world: World) -> None:
        for job_id, at in self.accepted_at.items():
            account = self.journal.accounts[job_id]
            self.require(account.ended, f"{job_id}, accepted at {at:.3f} s, has not ended")
        self.require(self.asked >= set(self.clients), f"only {sorted(self.asked)} of the clients were served")
        self.require(self.engine.is_empty(), "work or results are left in the engine")
