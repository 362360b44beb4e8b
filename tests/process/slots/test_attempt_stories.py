"""The same stories of attempts in slot processes, in slots on an event loop and in the simulator's slots: the engine sees the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.patience import PATIENCE_S
from tests.process.slots import story_app
from tests.worlds.datacenter.plays import Play
from tests.worlds.datacenter.slots import ScriptedSlots
from tests.worlds.datacenter.times import SLOTS

from tenure.beat.record import Phase
from tenure.clock import Clock, SystemClock
from tenure.engines import Engine
from tenure.engines.aio import Calls, calling
from tenure.nodes.process import Environment
from tenure.nodes.worker.inline_slots import InlineSlots
from tenure.randomness import fresh_random, new_id
from tenure.sim import Scenario, run_one
from tenure.sim.world import Host, World
from tenure.work.delivery import WorkItem, WorkResult
from tenure.work.log_lines import log_key, read_log
from tenure.work.registry import Registry
from tenure.work.slots.settings import SlotSettings
from tenure.work.slots.supervisor import Supervisor

WORKER = "worker-of-the-stories"
SETTINGS = SlotSettings(
    queue=SLOTS.queue,
    slots=1,
    lease_s=9.0,  # an attempt is not to lose its lease because the machine is busy
    claim_s=4.5,
    stall_s=20.0,
    grace_s=1.0,
    wait_s=1.0,
    courier="tests.process.slots.story_app:connect",
)


@dataclass(frozen=True)
class Story:
    """A workflow, an event while it runs, and the things that the engine must have seen at the end."""

    workflow: str
    play: Play | None
    """The play that stands for it in the simulator; None where the story needs threads, which the simulator has not."""
    cause: str = ""
    value: Any = None
    attempt: int = 1
    managed: bool = True
    meanwhile: str = ""
    """`cancel`: the runner is told to end it. `revoke`: its lease is taken away."""
    answered: bool = True
    log: str = ""
    children: tuple[str, ...] = ()
    left: int = 0
    """The messages that are still in the queue."""
    stuck_s: float | None = None
    reason: str = ""
    """A part of the failure's sentence."""


STORIES = {
    "success": Story("succeeds", Play.ADVANCE, value=3),
    "failure": Story("fails", Play.FAIL, cause="exception"),
    "retry": Story("succeeds_later", None, value=2, attempt=2, managed=False),
    "cancel": Story("beats_for_ever", Play.LONG, cause="cancelled", meanwhile="cancel"),
    "lease lost": Story("beats_for_ever", Play.LONG, meanwhile="revoke", answered=False),
    "stall": Story("falls_silent", Play.HANG, cause="stall"),
    "a helper thread beats while the work hangs": Story(
        "hangs_while_a_helper_beats", Play.HELPED, cause="stall", reason="other threads beat"
    ),
    "beats at one item for ever": Story(
        "stays_at_item_7", Play.REPEAT, cause="stall", stuck_s=2.0, reason="spinning: "
    ),
    "checkpoint": Story("resumes", None, value={"at": 7}, attempt=2, managed=False),
    "submit of a child": Story(
        "submits", None, value="submit of a child/w/child-1", children=("submit of a child/w/child-1",)
    ),
    "log lines": Story("logs", None, log="a line of the story"),
    "unknown workflow declined": Story("nobody's", Play.ADVANCE, answered=False, left=1),
}


@dataclass(frozen=True)
class Seen:
    """What the engine saw of a story."""

    answered: bool
    cause: str = ""
    told: bool = True
    """True when the failure says what the story wants to hear."""
    value: Any = None
    attempt: int = 0
    worker: str = ""
    logged: bool = False
    children: tuple[str, ...] = ()
    left: int = 0


def expected(story: Story, *, scripted: bool = False) -> Seen:
    if not story.answered:
        return Seen(answered=False, left=story.left)
    value = None if scripted else story.value
    return Seen(True, story.cause, True, value, story.attempt, WORKER, bool(story.log), story.children, story.left)


@dataclass
class Desk:
    """The place from which stories are told: an engine, a way to call it, and the runner of the slots."""

    engine: Engine
    calls: Calls
    clock: Clock
    runs: Callable[[str], bool]
    """Returns True while an attempt of this job runs."""
    cancel: Callable[[str], object]

    async def until(self, true: Callable[[], bool]) -> None:
        for _ in range(int(PATIENCE_S / 0.02)):
            if true():
                return
            await self.clock.async_sleep(0.02)
        raise AssertionError("it did not happen")

    async def tell(self, job: str, story: Story, *, scripted: bool = False) -> Seen:
        work = self.engine.mailbox(SETTINGS.queue, WorkItem, WorkResult)
        replies = self.engine.mailbox("replies", WorkResult)
        known = scripted and story.answered | bool(story.meanwhile)
        item = WorkItem(
            workflow="scripted" if known else story.workflow,
            args={"plays": [story.play], "steps": 3, "cooperates": True} if known else {},
            job_id=job,
            workflow_id="w",
            attempt=1 if story.managed else 0,
            managed=story.managed,
            stuck_s=story.stuck_s,
        )
        await self.calls.run(work.send, item, key=f"{job}/w", reply_to="replies")
        if story.meanwhile:
            await self.until(lambda: self.runs(job))
        if story.meanwhile == "cancel":
            self.cancel(job)
        elif story.meanwhile == "revoke":
            await self.calls.run(work.revoke, f"{job}/w")
            await self.until(lambda: not self.runs(job))
        found = await self.calls.run(replies.receive, 1, 60, PATIENCE_S if story.answered else 1.0)
        left = await self.calls.run(work.approximate_count)
        if not found:
            await self.calls.run(work.purge)
            return Seen(answered=False, left=left)
        [reply] = found
        await self.calls.run(reply.acknowledge)
        return await self._seen(job, story, reply.body, left, scripted)

    async def _seen(self, job: str, story: Story, result: WorkResult, left: int, scripted: bool) -> Seen:
        log = read_log(await self.calls.run(self.engine.store("logs").get, log_key(job, "w", result.attempt)))
        children = await self.calls.run(self.engine.mailbox(story_app.CHILDREN, str).receive, 10, 60, 0)
        for child in children:
            await self.calls.run(child.acknowledge)
        value = None if scripted else result.value
        cause = result.failure.cause.value if result.failure is not None else ""
        told = story.reason in (result.failure.reason if result.failure is not None else "")
        submitted = tuple(child.body for child in children)
        return Seen(
            True,
            cause,
            told,
            value,
            result.attempt,
            result.worker,
            b"a line of the story" in log,
            submitted,
            left,
        )


@contextmanager
def slot_processes(url: str) -> Iterator[tuple[Callable[[str], bool], Callable[[str], object]]]:
    supervisor = Supervisor(["tests.process.slots.story_app"], url, SETTINGS, worker=WORKER)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        assert supervisor.ready.wait(PATIENCE_S)
        supervisor.admit(None, peers=1)
        yield (
            lambda job: any(
                reading.phase is Phase.RUNNING and reading.occupant is not None and reading.occupant.job == job
                for _, reading in supervisor.board.readings()
            ),
            supervisor.cancel,
        )
    finally:
        supervisor.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@asynccontextmanager
async def slots_on_a_loop(url: str, engine: Engine, calls: Calls) -> AsyncIterator[InlineSlots]:
    slots = InlineSlots(
        Environment(engine, calls, SystemClock(), fresh_random(), new_id),
        Registry(story_app.WORKFLOWS),
        SETTINGS,
        worker=WORKER,
        courier=lambda: story_app.connect(url, ""),
    )
    slots.allow(None, peers=1)
    running = asyncio.create_task(slots.run())
    try:
        yield slots
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def in_processes(url: str) -> dict[str, Seen]:
    async def tell() -> dict[str, Seen]:
        with slot_processes(url) as (runs, cancel):
            async with calling(Engine.open(url)) as calls:
                desk = Desk(Engine.open(url), calls, SystemClock(), runs, cancel)
                with desk.engine:
                    return {job: await desk.tell(job, story) for job, story in STORIES.items()}

    seen = asyncio.run(tell())
    # Renewals are counted as those of loops are (document 003): the supervisor of the slots runs in this process.
    labels = {"kind": "stays_at_item_7", "during": "", "outcome": "granted"}
    assert REGISTRY.get_sample_value("tenure_lease_extensions_total", labels)
    return seen


def on_a_loop(url: str) -> dict[str, Seen]:
    async def tell() -> dict[str, Seen]:
        engine = Engine.open(url)
        async with calling(engine) as calls, slots_on_a_loop(url, engine, calls) as slots:
            desk = Desk(
                engine,
                calls,
                SystemClock(),
                lambda job: any(one.job_id == job for one in slots.view().attempts),
                slots.cancel,
            )
            return {job: await desk.tell(job, story) for job, story in STORIES.items()}

    return asyncio.run(tell())


@pytest.mark.parametrize("told", [in_processes, on_a_loop], ids=["slot processes", "event loop"])
def test_the_engine_sees_the_same_of_an_attempt_whatever_runs_it(
    tmp_path: Path, told: Callable[[str], dict[str, Seen]]
) -> None:
    assert told(f"sqlite:///{tmp_path}/t.db") == {job: expected(story) for job, story in STORIES.items()}


class Calm:
    """An onlooker that objects to nothing."""

    def begins(self, slots: ScriptedSlots, stage: Any) -> None: ...

    def counts(self, stage: Any) -> None: ...

    def works(self, stage: Any) -> None: ...

    def obeys(self, slots: ScriptedSlots, what: str) -> None: ...

    def is_stale(self, item: WorkItem) -> bool:
        return False


class Told(Scenario):
    """One worker with scripted slots, and a client that tells the stories."""

    duration_s = 300.0

    def __init__(self) -> None:
        self.slots: ScriptedSlots | None = None
        self.seen: dict[str, Seen] = {}

    def setup(self, world: World) -> None:
        world.node(WORKER, self._work).start()
        world.node("client", self._tell).start()

    async def _work(self, host: Host) -> None:
        self.slots = ScriptedSlots(host, Calm())
        self.slots.allow(None, peers=1)
        await self.slots.run()

    async def _tell(self, host: Host) -> None:
        desk = Desk(host.engine, host.calls, host.clock, self._runs, self._cancel)
        for job, story in STORIES.items():
            if story.play is not None:
                self.seen[job] = await desk.tell(job, story, scripted=True)

    def _runs(self, job: str) -> bool:
        return self.slots is not None and any(one.job_id == job for one in self.slots.view().attempts)

    def _cancel(self, job: str) -> bool:
        assert self.slots is not None
        return self.slots.cancel(job)

    def settled(self, world: World) -> bool:
        return len(self.seen) == sum(story.play is not None for story in STORIES.values())

    def finish(self, world: World) -> None:
        wanted = {job: expected(story, scripted=True) for job, story in STORIES.items() if story.play is not None}
        self.require(self.seen == wanted, f"seen {self.seen}, wanted {wanted}")


def test_the_engine_sees_the_same_of_the_simulators_slots() -> None:
    outcome = run_one(Told, 1)
    assert outcome.ok, outcome
