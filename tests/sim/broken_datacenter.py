"""Datacenters in which somebody forgets one rule: the observer has to find every one of them.

Not a test module: the replay commands of failing seeds name this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec
from tests.changed import changed
from tests.worlds.datacenter.scenario import Datacenter as AnyDatacenter
from tests.worlds.datacenter.slots import Onlooker, ScriptedSlots
from tests.worlds.datacenter.times import FLEET
from tests.worlds.patching import Patched

from tenure.beat.lease import ExtensionOutcome
from tenure.beat.record import BeatReading
from tenure.control.messages.jobs import Cancel
from tenure.control.messages.wire import Reply
from tenure.control.messages.workers import WorkerDirective
from tenure.control.problems import problem
from tenure.engines.contracts import Head, Message
from tenure.engines.memory.journal import MemoryJournal
from tenure.errors import ReceiptHandleExpiredError, UnknownJobError
from tenure.health.deadlines import ExtensionConfig
from tenure.jobs import Decision, JobBook, decide
from tenure.jobs.attempt_results import RecordResult
from tenure.jobs.decisions import Command, Outcome, Rule
from tenure.jobs.endings import ConfirmCleaned
from tenure.jobs.outbox import Dispatch, to_dispatch
from tenure.jobs.workers import EvictWorker
from tenure.nodes import leadership
from tenure.nodes.engine_time import EngineTime
from tenure.nodes.fleet.member import FleetSettings
from tenure.nodes.journal_checksum import checked_state
from tenure.nodes.ledger import NodeLedger
from tenure.nodes.manager import leader, ledger, manager
from tenure.nodes.manager.job_handlers import ManagerJobHandlers
from tenure.nodes.manager.leader import DatacenterLeader
from tenure.nodes.manager.ledger import RESULTS, ResultIntake
from tenure.nodes.node_journal import NO_PARTS, AppendParts
from tenure.nodes.worker.directives import Obedience
from tenure.nodes.worker.inline_slots import SeatedAttempt
from tenure.nodes.worker.worker import ManagedWorker
from tenure.sim import NetworkLink, World
from tenure.sim.faults import FaultKind, FaultProfile
from tenure.sim.world import Host
from tenure.work.delivery import WorkHead, WorkItem, WorkResult
from tenure.work.slots.claims import ClaimFilter

ViewT = TypeVar("ViewT")


# Ledgers, and what they decide by


class AnsweringEarly(NodeLedger[JobBook, Decision]):
    """Answers before the append has returned."""

    async def append(self, events: list[bytes], parts: AppendParts = NO_PARTS) -> int:
        writing = asyncio.create_task(super().append(events, parts))
        writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self.seq + 1


class ReadingAhead(NodeLedger[JobBook, Decision]):
    """Shows, and acts on, what is decided and not yet durable."""

    async def read(self, look: Callable[[JobBook], ViewT]) -> ViewT:
        return look(self.book)


def trusting_old_attempts(book: JobBook, command: Command, now: float) -> Decision:
    """Takes the result of any attempt for the one that counts."""
    if isinstance(command, RecordResult) and (info := book.jobs.get(command.job_id)) is not None:
        command = msgspec.structs.replace(command, attempt=info.workflows[command.workflow].attempt, delivery=0)
    return decide(book, command, now)


class SnapshottingAhead(NodeLedger[JobBook, Decision]):
    """Takes its snapshot while an append is under way: it holds more than it says."""

    async def snapshot_if_due(self) -> bool:
        if self._epoch is not None and self.seq - self._snapshot_at >= self.rules.snapshot_every:
            state = checked_state(self.book.snapshot(), self.seq)
            await self._calls.run(self.journal.snapshot, state, self.seq, epoch=self._epoch)
            self._snapshot_at = self.seq
        return True


def evicting_by_word(book: JobBook, command: Command, now: float) -> Decision:
    """Evicts a worker, and leaves it what it has."""
    decision = decide(book, command, now)
    return changed(decision, events=decision.events[:1]) if isinstance(command, EvictWorker) else decision


# Leaders


class ForgettingDeadlines(DatacenterLeader):
    """Takes a deadline off its heap before it knows that it can act on it."""

    async def check_deadlines(self) -> None:
        due = self._timers.pop_due(self.now())
        if due:
            await self.results.drain()
            for job_id in due:
                self._timers.set(job_id, 0.0)
            await super().check_deadlines()


class NotDraining(ResultIntake):
    """Counts a deadline without having looked for the result."""

    async def drain(self) -> None:
        self.drained_until = self._now()


class NotWaitingForTheDead(ResultIntake):
    """Takes a mailbox for empty in which somebody holds what is left."""

    async def take(self, wait_s: float) -> int:
        asked_at = self._now()
        taken = await super().take(wait_s)
        if not taken:
            self.drained_until = asked_at
        return taken


class AcknowledgingEarly(ResultIntake):
    """Acknowledges a result before the append that records it."""

    async def command_for(self, message: Message[WorkResult, WorkItem]) -> Any:
        try:
            await self._calls.run(message.acknowledge)
        except ReceiptHandleExpiredError:
            self._log.info("too late")
        return await super().command_for(message)


class ForgettingToRevoke(DatacenterLeader):
    """Says that an ended job is cleaned up, and has not done it."""

    async def _revoke(self) -> None:
        for job_id in list(self.ledger.book.uncleaned):
            await self.ledger.commit(ConfirmCleaned(by="leader", job_id=job_id))


class SendingWithoutKeys(DatacenterLeader):
    """Sends work that the engine cannot tell from what it has already."""

    async def _send(self, orders: list[Dispatch]) -> None:
        for order in orders:
            await self._calls.run(self._mailbox(order.mailbox).send, self._items.of(order), reply_to=RESULTS)


class NotResending(DatacenterLeader):
    """Takes what its predecessor decided for sent."""

    async def dispatch(self) -> None:
        took_over = self.ledger.book.state.elected_at
        for order in to_dispatch(self.ledger.book, self.now()):
            info = self.ledger.book.jobs[order.job_id]
            if info.job.submitted_at < took_over and info.workflows[order.workflow].attempt == 1:
                self.ledger.book.ready.clear()
                return
        await super().dispatch()


# Nodes


class WallTime(EngineTime):
    """Believes this machine's wall clock."""

    async def refresh(self, *given: Any, **options: Any) -> None:
        await super().refresh(*given, **options)
        self._offset = self._clock.wall() - self._clock.boottime()


class CancellingByWord(ManagerJobHandlers):
    """Says that a job is cancelled, and leaves it at that."""

    async def cancel(self, request: Cancel) -> Decision:
        return Decision([], Outcome.ACCEPTED, Rule.ASKED, job_id=request.job_id)


class KnowingBetter(ManagerJobHandlers):
    """Says that there is no such job, when it only has not read so far."""

    def _unknown(self, job_id: str) -> Reply:
        return problem(UnknownJobError(job_id))


class ObeyingEverybody(ManagedWorker):
    """Does what it is told, whoever tells it."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.obedience = Gullible()


class Gullible(Obedience):
    def heard(self, directive: WorkerDirective) -> bool:
        return True


class KeepingItsLease(ScriptedSlots):
    """Goes on as if its lease lasted until somebody says otherwise."""

    def look_at(self, one: SeatedAttempt) -> None:
        one.watched.watch.lease_until = float("inf")
        one.watched.record.set_lease_until(float("inf"), one.watched.serial)
        super().look_at(one)

    async def extend_lease(self, one: SeatedAttempt, reading: BeatReading) -> ExtensionOutcome:
        """Never hears that it was lost."""
        return ExtensionOutcome.FAILED


class TakingFilter(ClaimFilter):
    def declines(self, item: WorkItem | WorkHead, peers: int | None, now: float) -> bool:
        return False


class TakingEverything(ScriptedSlots):
    """Does not look whether work excludes it."""

    def __init__(self, host: Host, onlooker: Onlooker) -> None:
        super().__init__(host, onlooker)
        self._claim_filter = TakingFilter(self.name)


# Scenarios


class Datacenter(AnyDatacenter):
    """On an engine that appends, sends and acknowledges one after the other: there are more moments at which a rule may be forgotten."""

    one_step = False


class AnswersEarly(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leadership, "NodeLedger"): AnsweringEarly}


class ReadsAhead(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leadership, "NodeLedger"): ReadingAhead}


class TrustsOldAttempts(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(ledger, "decide"): trusting_old_attempts}


class SnapshotsAhead(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leadership, "NodeLedger"): SnapshottingAhead}


class EvictsByWord(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(ledger, "decide"): evicting_by_word}


class Outages(Datacenter):
    """The engine is away for moments while deadlines come due, and never for so long that a leader steps down."""

    faults = FaultProfile(
        kinds=(FaultKind.ENGINE_REFUSES, FaultKind.ENGINE_OUTAGE), most=30, until_s=20.0, duration_s=(0.2, 0.9)
    )


class ForgetsDeadlines(Patched, Outages):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(manager, "DatacenterLeader"): ForgettingDeadlines}


class DoesNotDrain(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leader, "ResultIntake"): NotDraining}


class DoesNotWaitForTheDead(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leader, "ResultIntake"): NotWaitingForTheDead}


class AcknowledgesEarly(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leader, "ResultIntake"): AcknowledgingEarly}


class ForgetsToRevoke(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(manager, "DatacenterLeader"): ForgettingToRevoke}


class SendsWithoutKeys(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(manager, "DatacenterLeader"): SendingWithoutKeys}


class DoesNotResend(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(manager, "DatacenterLeader"): NotResending}


@dataclass(frozen=True)
class GenerousSettings(FleetSettings):
    @property
    def extensions(self) -> ExtensionConfig:
        """Each grant is as long as the first."""
        return ExtensionConfig(base_deadline=self.healthcheck_s, min_grant=self.healthcheck_s)


class GrantsForEver(Datacenter):
    fleet = GenerousSettings(healthcheck_s=FLEET.healthcheck_s, brake=FLEET.brake)


class Skews(Datacenter):
    """Nothing is wrong but the wall clocks."""

    faults = FaultProfile(kinds=(FaultKind.SKEW,), most=8, until_s=9.0, duration_s=(1.0, 5.0))


class TellsTimeByTheWall(Patched, Skews):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(leadership, "EngineTime"): WallTime}


class CancelsByWord(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(manager, "ManagerJobHandlers"): CancellingByWord}


class KnowsBetter(Patched, Datacenter):
    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(manager, "ManagerJobHandlers"): KnowingBetter}


class LateWords(Datacenter):
    """Leaders die while their last words to workers are on the way."""

    faults = FaultProfile(most=0)

    def disturbed(self, since: float, until: float) -> float:
        return until - since

    def setup(self, world: World) -> None:
        super().setup(world)
        for at_s in (1.5, 6.5):
            world.at(at_s, self._slow_down, world)

    def _slow_down(self, world: World) -> None:
        leader = self._leading()
        for worker in self.workers:
            world.network.set_link(leader, worker, NetworkLink(delay_s=(3.0, 4.0)))
            world.at(world.now + 3.0, world.network.set_link, leader, worker, None)
        world.at(world.now + 0.8, world.nodes[leader].crash)
        world.at(world.now + 3.0, world.nodes[leader].restart)


class ObeysEverybody(LateWords):
    worker = ObeyingEverybody


class KeepsItsLease(Datacenter):
    slots = KeepingItsLease


class TakesEverything(Datacenter):
    slots = TakingEverything


class _EpochBlindJournal(MemoryJournal):
    def append(self, events: Any, *, epoch: int, expect: int, append_id: str) -> int:
        head = self.log.head
        self.log.head = Head(head.seq, 0)
        try:
            return super().append(events, epoch=epoch, expect=self.log.head.seq, append_id=append_id)
        except BaseException:
            self.log.head = head
            raise


class EpochBlind(Datacenter):
    """The engine takes what any leader writes."""

    def setup(self, world: World) -> None:
        engine = world.backend.engine
        engine.journal = lambda name: _EpochBlindJournal(engine, name)  # type: ignore[method-assign]
        super().setup(world)
