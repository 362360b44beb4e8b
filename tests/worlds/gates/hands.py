"""The slots of a worker in a simulated world: many at once, one tick for all of them, each playing its script.

A `SlotRunner`: the `ManagedWorker` that drives it is the one of production. What slots do to leases, stalls and kills is played by
`tests.worlds.datacenter`; here a worker only has to take work, advance, hang, fail, and stop what nobody wants any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

import msgspec

from tenure.attempt_data import WaitsFor
from tenure.control.messages.workers import AttemptReport, HeldName
from tenure.engines.contracts import Fence, Mailbox, Message
from tenure.errors import ReceiptHandleExpiredError, TenureError
from tenure.nodes.slot_runner import SlotsView
from tenure.sim.world import Host
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult

STEP_S = 0.6
SLOTS = 40
QUEUE = "default.p0"
WAIT_S = 10.0


class End(StrEnum):
    """How a scripted attempt ends."""

    WELL = "well"
    FAIL = "fail"
    HANG = "hang"  # its supervisor lives, and it advances no more
    WAIT = "wait"  # it is suspended until a signal `go` is there, whose payloads it returns


class Act:
    """One attempt under way."""

    def __init__(self, message: Message[WorkItem, WorkResult], now: float) -> None:
        self.message, self.item = message, message.body
        self.left: int = self.item.args["steps"]
        self.end = End(self.item.args["ends"])
        self.steps = 0
        self.beat_at = now
        self.busy = False
        """Something is asked of the engine for it."""

    def report(self, now: float) -> AttemptReport:
        return AttemptReport(
            job_id=self.item.job_id,
            workflow=self.item.workflow_id,
            attempt=self.item.attempt,
            delivery=self.message.delivery_count,
            steps=self.steps,
            silent_s=max(0.0, now - self.beat_at - STEP_S),
        )

    def result(self, worker: str) -> WorkResult:
        failed = self.end is End.FAIL
        said = [one.payload for one in self.item.signals if one.name == "go"]
        waits = WaitsFor(step="event go #1", event="go") if self.end is End.WAIT and not said else None
        return WorkResult(
            job_id=self.item.job_id,
            workflow_id=self.item.workflow_id,
            workflow=self.item.workflow,
            attempt=self.item.attempt,
            fence=self.message.fence,
            worker=worker,
            failure=WorkFailure(cause=Cause.EXCEPTION, reason="scripted") if failed else None,
            suspended=waits,
            result=msgspec.Raw(msgspec.json.encode(said) if said else b"null"),
        )


class Hands:
    """`run` until cancelled."""

    def __init__(self, host: Host, lease_s: float, *, step_s: float = STEP_S, slots: int = SLOTS) -> None:
        self._step_s, self._slots = step_s, slots
        self._host, self._lease_s, self._clock, self._call = host, lease_s, host.clock, host.calls.run
        self._mailbox: Mailbox[WorkItem, WorkResult] = host.engine.mailbox(QUEUE, WorkItem, WorkResult)
        self._lives = 1
        self._most: int | None = None
        self.acts: dict[str, Act] = {}
        """What runs, by message."""
        self._completed = self._failed = self._past_steps = 0
        self._bell: Callable[[], None] = lambda: None
        self._room, self._busy = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # What the node asks

    @property
    def incarnation(self) -> str:
        return f"{self._host.id}.{self._lives}"

    def view(self) -> SlotsView:
        now = self._clock.monotonic()
        return SlotsView(
            attempts=tuple(act.report(now) for act in self.acts.values()),
            slots=self._slots,
            free=self._slots - len(self.acts),
            accepting=True,
            lanes=(QUEUE,),
            completed=self._completed,
            failed=self._failed,
            steps=self._past_steps + sum(act.steps for act in self.acts.values()),
        )

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell = bell

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        self._most = most
        self._make_room()

    def hold(self, holds: tuple[HeldName, ...]) -> None:
        """Nothing waits for anything here."""

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, fence: Fence | None = None, reason: str = ""
    ) -> bool:
        """Dropped without a word: its message was revoked, or is another's."""
        found = [
            act
            for act in self.acts.values()
            if act.item.job_id == job and workflow_id in ("", act.item.workflow_id) and attempt in (0, act.item.attempt)
        ]
        for act in found:
            self._drop(act)
        return bool(found)

    def evict(self, reason: str) -> None:
        self._host.record(f"{self.incarnation} is evicted: {reason}")
        self.acts.clear()
        self._lives += 1
        self._completed = self._failed = self._past_steps = 0
        self._bell()

    # Their life

    async def run(self) -> None:
        await asyncio.gather(self._take(), self._tick())

    def _free(self) -> int:
        return (self._slots if self._most is None else min(self._slots, self._most)) - len(self.acts)

    def _make_room(self) -> None:
        if self._free() > 0:
            self._room.set()

    async def _take(self) -> None:
        while True:
            while self._free() <= 0:
                self._room.clear()
                await self._room.wait()
            try:
                claimed = await self._call(self._mailbox.receive, self._free(), self._lease_s, WAIT_S)
            except TenureError:
                await self._clock.async_sleep(0.2 + 0.4 * self._host.random.random())
                continue
            for message in claimed:
                self.acts[message.id] = Act(message, self._clock.monotonic())
            if claimed:
                self._busy.set()
                self._bell()

    async def _tick(self) -> None:
        while True:
            await self._busy.wait()
            while self.acts:
                await self._clock.async_sleep(self._step_s)
                for act in list(self.acts.values()):
                    self._advance(act)
            self._busy.clear()

    def _advance(self, act: Act) -> None:
        left_s = act.message.lease_until - self._clock.boottime()
        if left_s <= 0:
            self._drop(act)  # whatever it would bring, it is no longer its own
            return
        if act.left:
            act.left -= 1
            act.steps += 1
            act.beat_at = self._clock.monotonic()
        if act.busy:
            return
        if not act.left and act.end is not End.HANG:
            self._ask(act, self._settle(act))
        elif left_s < self._lease_s / 2:
            self._ask(act, self._extend(act))

    def _ask(self, act: Act, asking: Coroutine[Any, Any, None]) -> None:
        act.busy = True
        task = asyncio.create_task(asking)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, act: Act) -> None:
        try:
            await self._call(act.message.settle, act.result(self._host.name))
        except ReceiptHandleExpiredError:
            self._drop(act)
        except TenureError:
            act.busy = False  # at the next tick once more, while the lease is its own
        else:
            if self.acts.get(act.message.id) is act:
                self._completed += act.end is End.WELL
                self._failed += act.end is End.FAIL
                self._drop(act)

    async def _extend(self, act: Act) -> None:
        try:
            await self._call(act.message.extend_visibility, self._lease_s)
        except ReceiptHandleExpiredError:
            self._drop(act)
        except TenureError:
            pass
        act.busy = False

    def _drop(self, act: Act) -> None:
        if self.acts.get(act.message.id) is act:
            del self.acts[act.message.id]
            self._past_steps += act.steps
            self._make_room()
            self._bell()
