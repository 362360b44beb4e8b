"""The slots of a simulated worker: those of a worker in threads (`InlineSlots`), with scripts for functions and deaths that cost nothing.

They claim, decline, extend, settle and give back by the code of production; the engine's calls travel and get lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from tenure import workflow
from tenure.beat.lease import ExtensionOutcome
from tenure.beat.record import BeatReading
from tenure.control.messages.workers import AttemptReport
from tenure.engines.contracts import Fence, Mailbox
from tenure.errors import TenureError
from tenure.nodes.manager.ledger import RESULTS
from tenure.nodes.process import Environment
from tenure.nodes.slot_runner import SlotsView
from tenure.nodes.worker.inline_slots import InlineSlots, SeatedAttempt
from tenure.sim.world import Host
from tenure.work.attempt import Attempt
from tenure.work.delivery import CancelCode, EngineDelivery, WorkFailure, WorkItem, WorkResult
from tenure.work.registry import Registry, Workflow
from tenure.work.slots.claims import ClaimFilter
from tenure.work.watched_attempt import WatchedAttempt
from tests.changed import changed
from tests.worlds.datacenter.plays import PLAYS, Play, play_of
from tests.worlds.datacenter.stage import Stage
from tests.worlds.datacenter.times import DECLINE_S, SLOTS


class Onlooker(Protocol):
    """The observer that is told what slots do, and may object."""

    def begins(self, slots: ScriptedSlots, stage: Stage) -> None:
        """An attempt begins to run."""

    def counts(self, stage: Stage) -> None:
        """The engine has confirmed its start: its fence may be used outside from now on."""

    def works(self, stage: Stage) -> None:
        """It is looked at while it runs."""

    def obeys(self, slots: ScriptedSlots, what: str) -> None:
        """The node had something done."""

    def is_stale(self, item: WorkItem) -> bool:
        """Returns True when the journal has a later attempt than this."""


class ScriptedSlots(InlineSlots):
    """Call `run` until it is cancelled."""

    def __init__(self, host: Host, onlooker: Onlooker) -> None:
        super().__init__(
            Environment(host.engine, host.calls, host.clock, host.random, host.ids),
            Registry([scripted(self._stage_of)]),
            SLOTS,
            worker=host.name,
        )
        self.name = host.name
        self._host, self._onlooker = host, onlooker
        self._results: Mailbox[WorkResult, WorkItem] = host.engine.mailbox(RESULTS, WorkResult, WorkItem)
        self._claim_filter = ClaimFilter(self.name, knows=self.registry.knows, patience_s=DECLINE_S)
        self._peers = 0
        self._lives = 1

    def _stage_of(self, context: Any) -> Stage:
        return next(one for one in self._stages() if one.attempt.handle is context._handle)

    def _stages(self) -> list[Stage]:
        return [one for one in self._seated.values() if isinstance(one, Stage)]

    # Called by the node

    @property
    def incarnation(self) -> str:
        return f"{self._host.id}.{self._lives}"

    def view(self) -> SlotsView:
        view = super().view()
        lies = [lie for stage in self._stages() if play_of(stage) is Play.FALSE_ATTEMPTS for lie in _lies(stage)]
        return changed(view, attempts=(*view.attempts, *lies))

    def allow(self, most: int | None, *, peers: int = 0) -> None:
        self._onlooker.obeys(self, f"allows {most}")
        super().allow(most, peers=peers)

    def cancel(
        self, job: str, *, workflow_id: str = "", attempt: int = 0, fence: Fence | None = None, reason: str = ""
    ) -> bool:
        self._onlooker.obeys(self, f"cancels {job}/{workflow_id} attempt {attempt}")
        return super().cancel(job, workflow_id=workflow_id, attempt=attempt, fence=fence, reason=reason)

    def evict(self, reason: str) -> None:
        """Kills everything at once, as the end of a supervisor does: nothing is handed over."""
        self._onlooker.obeys(self, "is evicted")
        self._host.record(f"{self.incarnation} is evicted: {reason}")
        for task in self._tasks.values():
            task.cancel()
        for stage in self._stages():
            stage.kill()
        self._seated.clear()
        self._lives += 1
        self._most = 0
        self._completed = self._failed = self._steps = 0
        self._seat_all()
        self._bell()

    # The life of slots

    async def run(self) -> None:
        self._seat_all()
        await self._watch()

    async def keep_seat(self, seat: int) -> None:
        await self._serve(seat)  # nothing keeps it: an error of our own ends the run of the simulation

    async def fail_alone(self, delivery: EngineDelivery, error: Exception) -> None:
        raise error

    def _seat(self, attempt: Attempt, watched: WatchedAttempt) -> Stage:
        stall_s = attempt.item.args.get("stall") or attempt.occupant.stall_s
        attempt.occupant = attempt.handle.occupant = msgspec.structs.replace(attempt.occupant, stall_s=stall_s)
        attempt.record.describe(attempt.occupant)
        watched.watch.occupant = attempt.occupant
        stage = Stage(attempt, watched, self.incarnation, self._clock)
        self._onlooker.begins(self, stage)
        if play_of(stage) is Play.STALE and stage.item.attempt > 1:
            self._in_background(partial(self._bring_around, stage.result(attempts_ago=1)))
        return stage

    def look_at(self, one: SeatedAttempt) -> None:
        assert isinstance(one, Stage)
        self._onlooker.works(one)
        super().look_at(one)

    async def extend_lease(self, one: SeatedAttempt, reading: BeatReading) -> ExtensionOutcome:
        extension = await super().extend_lease(one, reading)
        if extension is ExtensionOutcome.GRANTED and isinstance(one, Stage):
            self._onlooker.counts(one)
        return extension

    def _abandon(self, one: SeatedAttempt) -> None:
        """Kills the script. Unlike a thread, a process can be killed."""
        assert isinstance(one, Stage)
        one.kill()

    def blamed(self, one: SeatedAttempt, result: WorkResult) -> WorkResult:
        assert isinstance(one, Stage)
        if play_of(one) is Play.LATE and one.watch.code is CancelCode.LEASE_LOST:
            self._in_background(partial(self._bring_late, one))
        if one.death is not None and result.failure is not None:
            return one.attempt.result(WorkFailure(cause=one.death, reason="its slot died, as its script says"))
        return _without_trace(super().blamed(one, result))

    # Results that should not come

    async def _bring_late(self, stage: Stage) -> None:
        """It was not killed after all: its result comes when somebody else may have the work, and comes twice."""
        await self._clock.async_sleep(3.0 * self._host.random.random())
        result, delivery = stage.result(), stage.attempt.delivery
        assert isinstance(delivery, EngineDelivery)
        for _ in range(2):
            try:
                await self._calls.run(delivery.settle, result, stage.occupant.retry)
            except TenureError as error:
                self._host.record(f"late result of {stage.ticket.id}: {type(error).__name__}")
            if self._onlooker.is_stale(stage.item):
                await self._bring_around(result)

    async def _bring_around(self, result: WorkResult) -> None:
        """Sends a result around the receipt: only the leader can refuse it now."""
        try:
            await self._calls.run(self._results.send, result)
        except TenureError as error:
            self._host.record(f"a result around the receipt: {type(error).__name__}")


def scripted(stage_of: Callable[[Any], Stage]) -> Workflow[..., Any]:
    """Returns the workflow that every job of the simulation runs. Its arguments name what each attempt does."""

    @workflow(name="scripted")
    async def play(
        ctx: Any, plays: list[str], steps: int = 3, stall: float | None = None, cooperates: bool = False
    ) -> dict[str, Any]:
        stage = stage_of(ctx)
        stage.context = ctx
        await PLAYS[play_of(stage)](stage)
        return stage.made_by()

    return play


def _lies(stage: Stage) -> list[AttemptReport]:
    said = stage.report()
    if said is None:
        return []
    return [
        msgspec.structs.replace(said, attempt=said.attempt + 1, steps=1_000),
        msgspec.structs.replace(said, job_id="nobody's", steps=1_000),
        msgspec.structs.replace(said, workflow="unheard-of"),
    ]


def _without_trace(result: WorkResult) -> WorkResult:
    """Takes out the traceback: it names paths and is worded by the Python that runs, and a seed must give the same run everywhere."""
    if result.failure is None:
        return result
    evidence = {name: value for name, value in result.failure.evidence.items() if name != "traceback"}
    return msgspec.structs.replace(result, failure=msgspec.structs.replace(result.failure, evidence=evidence))


class KeptSlots(ScriptedSlots):
    """Scripted slots with the guards of the product: a seat goes on after an error of our own, and the delivery fails alone."""

    async def run(self) -> None:
        self._seat_all()
        await self._keeper.keep("watch over the attempts", self._watch)

    async def keep_seat(self, seat: int) -> None:
        await InlineSlots.keep_seat(self, seat)

    async def fail_alone(self, delivery: EngineDelivery, error: Exception) -> None:
        await InlineSlots.fail_alone(self, delivery, error)
