"""The slots of a simulated worker: they claim, extend and settle at the engine as real ones do, and play scripts.

A `SlotRunner`: the same `WorkerNode` drives it that drives the supervisor of processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from tenure.beat.board import Phase
from tenure.control.messages.workers import AttemptReport
from tenure.engines.contracts import Mailbox, Message
from tenure.errors import KeyRefusedError, ReceiptHandleExpiredError, TenureError
from tenure.nodes.manager.results import RESULTS
from tenure.nodes.slot_runner import SlotsView
from tenure.sim.node import Host
from tenure.work.attempt_handle import CancelCode
from tenure.work.envelope import Cause, WorkFailure, WorkItem, WorkResult
from tenure.work.slots.attempt_watch import Act
from tenure.work.slots.claim_filter import ClaimFilter
from tests.worlds.datacenter.plays import PLAYS, Play, ScriptedFailure, play_of
from tests.worlds.datacenter.stage import Died, Stage
from tests.worlds.datacenter.times import DECLINE_S, SLOTS

Delivery = Message[WorkItem, WorkResult]


class Onlooker(Protocol):
    """Who is told what slots do, and may object."""

    def begins(self, slots: ScriptedSlots, stage: Stage) -> None:
        """An attempt begins to run."""

    def counts(self, stage: Stage) -> None:
        """The engine has confirmed its start: its fence may be used outside from now on."""

    def works(self, stage: Stage) -> None:
        """It is looked at while it runs."""

    def obeys(self, slots: ScriptedSlots, what: str) -> None:
        """The node had something done."""

    def is_stale(self, item: WorkItem) -> bool:
        """Whether the journal has a later attempt than this."""


class ScriptedSlots:
    """`run` until cancelled."""

    def __init__(self, host: Host, onlooker: Onlooker) -> None:
        self.name = host.name
        self._host, self._clock, self._call, self._onlooker = host, host.clock, host.calls.run, onlooker
        self._mailbox: Mailbox[WorkItem, WorkResult] = host.engine.mailbox(SLOTS.queue, WorkItem, WorkResult)
        self._results: Mailbox[WorkResult, WorkItem] = host.engine.mailbox(RESULTS, WorkResult, WorkItem)
        self._lives = 1
        self._serial = 0
        self._most: int | None = None
        self._peers = 0
        self._claim_filter = ClaimFilter(self.name, patience_s=DECLINE_S)
        self._bell: Callable[[], None] = lambda: None
        self._completed = self._failed = self._past_steps = 0
        self.stages: dict[int, Stage] = {}
        """What runs, by slot."""
        self._seats: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()
        self._busy = asyncio.Event()
        self._zombies: set[asyncio.Task[None]] = set()

    # What the node asks

    @property
    def incarnation(self) -> str:
        return f"{self._host.id}.{self._lives}"

    def view(self) -> SlotsView:
        running = [stage for stage in self.stages.values() if stage.phase is Phase.RUNNING]
        attempts = [stage.report() for stage in running]
        for stage in running:
            if play_of(stage) is Play.FALSE_ATTEMPTS:
                attempts += self._lies(stage)
        steps = self._past_steps + sum(stage.steps for stage in self.stages.values())
        return SlotsView(
            attempts=tuple(attempts),
            slots=SLOTS.slots,
            free=SLOTS.slots - len(self.stages),
            accepting=True,
            lanes=(SLOTS.queue,),
            completed=self._completed,
            failed=self._failed,
            steps=steps,
        )

    def _lies(self, stage: Stage) -> list[AttemptReport]:
        said = stage.report()
        return [
            msgspec.structs.replace(said, attempt=said.attempt + 1, steps=1_000),
            msgspec.structs.replace(said, job_id="nobody's", steps=1_000),
            msgspec.structs.replace(said, workflow="unheard-of"),
        ]

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell = bell

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        self._onlooker.obeys(self, f"allows {most}")
        self._most, self._peers = most, peers
        self._make_room()

    def cancel(self, job: str, *, workflow_id: str = "", attempt: int = 0, reason: str = "") -> bool:
        self._onlooker.obeys(self, f"cancels {job}/{workflow_id} attempt {attempt}")
        found = [
            stage
            for stage in self.stages.values()
            if stage.item.job_id == job
            and workflow_id in ("", stage.item.workflow_id)
            and attempt in (0, stage.item.attempt)
        ]
        for stage in found:
            if stage.watch.code is CancelCode.NONE and stage.phase is Phase.RUNNING:
                stage.watch.cancel(CancelCode.CANCEL, reason, self._clock.monotonic())
                self._ask_to_end(stage)
        return bool(found)

    def evict(self, reason: str) -> None:
        self._onlooker.obeys(self, "is evicted")
        self._host.record(f"{self.incarnation} is evicted: {reason}")
        for seat in self._seats:
            seat.cancel()
        self.stages.clear()
        self._lives += 1
        self._most = 0
        self._completed = self._failed = self._past_steps = 0
        self._seat_all()
        self._bell()

    # The life of slots

    async def run(self) -> None:
        self._seat_all()
        while True:
            await self._busy.wait()
            while self.stages:
                await self._clock.async_sleep(SLOTS.tick_s)
                self._look()
            self._busy.clear()

    def _seat_all(self) -> None:
        self._seats = [asyncio.create_task(self._serve(index)) for index in range(SLOTS.slots)]

    async def _serve(self, index: int) -> None:
        while True:
            while not self._has_room():
                self._room.clear()
                await self._room.wait()
            try:
                claimed = await self._call(self._mailbox.receive, 1, SLOTS.claim_s, SLOTS.wait_s, provisional=True)
            except TenureError:
                await self._clock.async_sleep(0.2 + 0.4 * self._host.random.random())
                continue
            for message in claimed:
                if self.declines(message.body):
                    await self._give_back(message)
                    await self._clock.async_sleep(self._claim_filter.pause_s * (0.5 + self._host.random.random()))
                elif self._has_room():
                    await self._perform(index, message)
                else:
                    await self._give_back(message)

    def declines(self, item: WorkItem) -> bool:
        return self._claim_filter.declines(item, self._peers, self._clock.monotonic())

    def _has_room(self) -> bool:
        return self._most is None or len(self.stages) < self._most

    def _make_room(self) -> None:
        if self._has_room():
            self._room.set()

    async def _give_back(self, message: Delivery) -> None:
        try:
            await self._call(message.release)
        except TenureError as error:
            self._host.record(f"could not give {message.id} back: {type(error).__name__}")

    async def _perform(self, index: int, message: Delivery) -> None:
        self._serial += 1
        stage = self.stages[index] = Stage(message, self.name, self.incarnation, self._clock, self._serial)
        self._onlooker.begins(self, stage)
        if play_of(stage) is Play.STALE and stage.item.attempt > 1:
            self._in_background(self._bring_stale(stage))
        self._busy.set()
        self._bell()
        try:
            failure = await self._play(stage)
            if play_of(stage) is Play.LATE and stage.watch.code is CancelCode.LEASE_LOST:
                self._haunt(stage)
            stage.phase = Phase.SETTLING
            await self._settle(stage, failure)
        finally:
            if self.stages.get(index) is stage:  # else it was evicted, and counts no more
                del self.stages[index]
                self._past_steps += stage.steps
                self._make_room()
                self._bell()

    async def _play(self, stage: Stage) -> WorkFailure | None:
        task = stage.task = asyncio.create_task(self._script(stage))
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                task.cancel()  # it is us who are to end: the worker was evicted
                raise
            return stage.failure_of_cancel()
        except ScriptedFailure as error:
            return WorkFailure(cause=Cause.EXCEPTION, reason=str(error))
        except Died as death:
            return WorkFailure(cause=death.cause, reason="its slot died, as its script says")
        return None

    async def _script(self, stage: Stage) -> None:
        await PLAYS[play_of(stage)](stage)

    async def _settle(self, stage: Stage, failure: WorkFailure | None) -> None:
        """As `Settler` does: again and again while the lease is ours."""
        if failure is not None and failure.cause is Cause.LEASE_LOST:
            return
        result, pause = stage.result(failure), 0.05
        while True:
            try:
                await self._call(stage.message.settle, result)
            except (ReceiptHandleExpiredError, KeyRefusedError):
                return
            except TenureError:
                if self._clock.boottime() + pause >= stage.watch.lease_until:
                    return
                await self._clock.async_sleep(pause)
                pause = min(2.0, pause * 2)
            else:
                self._completed += failure is None
                self._failed += failure is not None
                return

    # What a supervisor does

    def _look(self) -> None:
        monotonic, boottime = self._clock.monotonic(), self._clock.boottime()
        for stage in list(self.stages.values()):
            self._onlooker.works(stage)
            verdict = stage.watch.step(stage.reading(), monotonic, boottime)
            if verdict.act is Act.EXTEND and not stage.extending:
                stage.extending = True
                stage.watch.extending(stage.reading(), monotonic)
                self._in_background(self._extend(stage))
            elif verdict.act is Act.CANCEL:
                self._ask_to_end(stage)
            elif verdict.act is Act.KILL and stage.task is not None:
                stage.task.cancel()

    def _ask_to_end(self, stage: Stage) -> None:
        if stage.cooperates and stage.task is not None:
            stage.task.cancel()

    async def _extend(self, stage: Stage) -> None:
        watch = stage.watch
        try:
            await self._call(stage.message.extend_visibility, SLOTS.lease_s)
            watch.extended(stage.message.lease_until)
            self._onlooker.counts(stage)
        except ReceiptHandleExpiredError as error:
            if watch.code is CancelCode.NONE and stage.phase is Phase.RUNNING:
                watch.cancel(CancelCode.LEASE_LOST, str(error), self._clock.monotonic())
                self._ask_to_end(stage)
        except TenureError:
            watch.extension_failed(self._clock.monotonic(), retry_in_s=SLOTS.lease_s / 20)
        finally:
            stage.extending = False

    def _in_background(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._zombies.add(task)
        task.add_done_callback(self._zombies.discard)

    def _haunt(self, stage: Stage) -> None:
        self._in_background(self._bring_late(stage))

    async def _bring_late(self, stage: Stage) -> None:
        """It was not killed after all: its result comes when somebody else may have the work, and comes twice."""
        await self._clock.async_sleep(3.0 * self._host.random.random())
        for _ in range(2):
            try:
                await self._call(stage.message.settle, stage.result(None))
            except TenureError as error:
                self._host.record(f"late result of {stage.message.id}: {type(error).__name__}")
            if self._onlooker.is_stale(stage.item):
                await self._bring_around(stage.result(None))

    async def _bring_stale(self, stage: Stage) -> None:
        await self._bring_around(stage.result(None, attempts_ago=1))

    async def _bring_around(self, result: WorkResult) -> None:
        """Around the receipt: only the leader can refuse it now."""
        try:
            await self._call(self._results.send, result)
        except TenureError as error:
            self._host.record(f"a result around the receipt: {type(error).__name__}")
