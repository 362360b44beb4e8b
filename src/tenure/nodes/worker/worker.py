"""A worker as a node: it reports to the leader what its slots do, receives the leader's directives, and makes the slots follow them.

This is the asyncio shell around a `SlotRunner`. It keeps two requests to the leader under way. One reports: on a cadence, and at once when an
attempt began or ended. The other listens: the leader holds its answer until something changes, so that a cancel or a verdict reaches the slots
at once. The worker finds the leader through the engine, so it needs no addresses. When no leader answers, work goes on under the last
verdict, and results wait in the engine. Each report is the whole state, so a lost report needs no repair.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tenure.control.async_caller import AsyncCaller
from tenure.control.messages.wire import MANAGER_ELECTION, Problem, Redirect, Reply, Request, address_of
from tenure.control.messages.workers import (
    ExtendDeadline,
    ExtensionReply,
    NearDeadline,
    Unwanted,
    WorkerDirective,
    WorkerReport,
)
from tenure.engines.contracts import Fence
from tenure.errors import EngineWentBackError, NodeUnavailableError, TenureError
from tenure.health.overload import HybridOverloadDetector, OverloadState
from tenure.health.signals import RoutingDecision
from tenure.jobs.catalogue import offer_digest
from tenure.nodes.loop_keeper import FailedOn, LoopKeeper, ProductFailures
from tenure.nodes.process import Environment
from tenure.nodes.slot_runner import SlotRunner, SlotsView
from tenure.nodes.worker.directives import INTAKE, Earning, Obedience
from tenure.served_workflow import ServedWorkflow

ReplyT = TypeVar("ReplyT", bound=Reply)


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """A worker's cadences, in seconds, and its version."""

    every_s: float = 1.0
    """The seconds between two reports while an attempt runs."""
    idle_every_s: float = 5.0
    gap_s: float = 0.1
    """The least seconds between two reports, however much happens."""
    listen_s: float = 20.0
    """The seconds for which the leader may hold back its answer to the listening request."""
    answer_s: float = 3.0
    rest_s: float = 1.0
    """The seconds that a worker rests, give or take a half, after no leader answered."""
    version: str = ""
    """The release of Tenure that each report names."""


class ManagedWorker:
    """One worker of a datacenter. `run` it until it is cancelled; call `leave` when its slots have ended."""

    def __init__(
        self,
        name: str,
        runner: SlotRunner,
        environment: Environment,
        caller: AsyncCaller,
        settings: ReportSettings | None = None,
        *,
        on_view: Callable[[SlotsView, OverloadState], None] = lambda view, overload: None,
        number: int = 0,
        keeper: LoopKeeper | None = None,
    ) -> None:
        self.name, self._runner, self._calls, self._caller = name, runner, environment.calls, caller
        self._clock, self._random, self._log = environment.clock, environment.random, environment.log
        self.keeper = keeper or LoopKeeper(self._clock, self._random, ProductFailures(self._clock, self._log))
        self._on_view = on_view
        """Called with each view of the slots. The worker's health in the gossip pool comes from it."""
        self.settings = settings or ReportSettings()
        self._election = environment.engine.election(MANAGER_ELECTION)
        self.obedience = Obedience()
        self.verdict: RoutingDecision | None = None
        """The verdict that this worker acts under; None before the leader gave this incarnation one."""
        self.address = ""
        """The address of the leader; empty while it is not known."""
        self.heard_at: float | None = None
        """When a leader last answered, in this clock's monotonic time."""
        self._evicted = ""
        self._trouble = ""
        self.number = number
        """The number of the last report. A node that replaces a failed one in this process counts on, because the leader takes a report
        with a lower number for a late one, and ignores its contents."""
        self.earning = Earning()
        self._overload = HybridOverloadDetector()
        self._changed = asyncio.Event()
        self._offer: tuple[tuple[str, ...], tuple[ServedWorkflow, ...], str] | None = None
        self._registered = "", ""
        """The incarnation and the digest that the leader has registered. While they are not ours, reports carry the workflows."""

    async def run(self) -> None:
        """Reports and listens until it is cancelled, whatever happens to the leader."""
        ring = _bell(self._changed)
        self._runner.listen(ring)
        try:
            await self.keeper.keep_all({"report": self._tell, "listen": self._listen})
        finally:
            self._runner.listen(lambda: None)

    async def leave(self) -> None:
        """Tells the leader that this worker ends, so that the leader does not wait for its next report. It tries once."""
        try:
            await self._ask(self._report(*self._look(), leaving=True), self.settings.answer_s, WorkerDirective)
        except TenureError:
            return

    # The two standing requests

    async def _tell(self) -> None:
        while True:
            self._changed.clear()
            start, view = self._look()
            self._on_view(view, self._overload.state)
            try:
                await self._tell_once(start, view)
                self._trouble = ""
            except EngineWentBackError:
                raise
            except TenureError as error:
                if error.fact != self._trouble:
                    self._trouble = error.fact
                    self._log.warning(f"cannot report: {error.fact}; work goes on under the last verdict")
                # The report is still owed. An idle worker must not keep it for its whole cadence: until the first one, nobody knows what it serves.
                await self._rest()
                continue
            await self._nap(self.settings.gap_s)
            every = self.settings.every_s if view.attempts else self.settings.idle_every_s
            # Under a leader with short deadlines the worker reports more often: at least four times within its deadline.
            await self._until_due(min(every, self.earning.span / 4) if self.earning.span else every)

    def _look(self) -> tuple[str, SlotsView]:
        """Returns a view of the slots with its incarnation. It reads the incarnation twice, because another thread may change it meanwhile."""
        while True:
            start, view = self._runner.incarnation, self._runner.view()
            if start == self._runner.incarnation:
                return start, view

    async def _tell_once(self, start: str, view: SlotsView) -> None:
        asked = self._clock.monotonic()
        directive = await self._ask(self._report(start, view), self.settings.answer_s, WorkerDirective)
        if not self._obey(directive, asked):
            return
        earning, now = self.earning, self._clock.monotonic()
        earning.look(view, now)
        await self._earn_for_jobs(start, directive.near)
        request = earning.request(self.name, view, now, self._clock.wall(), self._overload.state)
        if request is None:
            return
        asked = self._clock.monotonic()
        extension = ExtendDeadline(request=request, incarnation=start)
        reply = await self._ask(extension, self.settings.answer_s, ExtensionReply)
        earning.answered(reply, view.steps, asked)
        self._tell_of_extension(reply)

    async def _earn_for_jobs(self, start: str, near: tuple[NearDeadline, ...]) -> None:
        """Asks for time for each job whose deadline is near and which advances here."""
        jobs, pace = self.earning.jobs, self.earning.pace
        jobs.keep_only({one.job_id for one in near})
        for one in near:
            request = jobs.request(one, self.name, pace, self._clock.monotonic(), self._clock.wall())
            if request is None:
                continue
            request = msgspec.structs.replace(request, incarnation=start)
            reply = await self._ask(request, self.settings.answer_s, ExtensionReply)
            jobs.answered(one.job_id, request.request.progress_counter or 0)
            self._tell_of_extension(reply, f" for job {one.job_id}")

    def _tell_of_extension(self, reply: ExtensionReply, whom: str = "") -> None:
        response = reply.response
        if not response.granted:
            self._log.warning(f"was denied more time{whom}: {response.denial_reason}")
        elif response.warning:
            self._log.info(f"was granted {response.extension_seconds:g} s more{whom}: {response.warning}")

    async def _listen(self) -> None:
        while True:
            try:
                directive = await self._ask(
                    self._report(*self._look(), wait_s=self.settings.listen_s),
                    self.settings.listen_s + self.settings.answer_s,
                    WorkerDirective,
                )
            except EngineWentBackError:
                raise
            except TenureError:
                await self._rest()
                continue
            # The leader counts the seconds left when it answers, and it may have held the request for long: count them from now.
            self._obey(directive, self._clock.monotonic())
            await self._nap(self.settings.gap_s)  # so that the next request already shows the effect on the slots

    def _report(self, start: str, view: SlotsView, *, wait_s: float = 0.0, leaving: bool = False) -> WorkerReport:
        self.number += 1
        workflows: tuple[ServedWorkflow, ...] = ()
        serves = ""
        if view.serves is not None:
            serves = self._digest(view.lanes, view.serves)
            workflows = () if (start, serves) == self._registered else view.serves
        return WorkerReport(
            worker=self.name,
            incarnation=start,
            attempts=view.attempts,
            slots=view.slots,
            free=view.free,
            accepting=view.accepting and not leaving,
            lanes=view.lanes,
            completed=view.completed,
            failed=view.failed,
            steps=view.steps,
            overload=self._overload.state.value,
            version=self.settings.version,
            wall=self._clock.wall(),
            number=self.number,
            verdict=self.verdict,
            leaving=leaving,
            wait_s=wait_s,
            serves=serves,
            workflows=workflows,
        )

    def _digest(self, lanes: tuple[str, ...], served: tuple[ServedWorkflow, ...]) -> str:
        """Returns the digest of what this worker serves. It is computed once, because the slots give the same objects each time."""
        if self._offer is None or self._offer[0] is not lanes or self._offer[1] is not served:
            self._offer = lanes, served, offer_digest(lanes, served)
        return self._offer[2]

    # Directives of the leader

    def _obey(self, directive: WorkerDirective, asked: float) -> bool:
        """Carries out a directive. Returns False for one of a deposed leader, which it ignores."""
        if not self.obedience.heard(directive):
            self._log.warning(
                f"refused the word of a deposed leader (epoch {directive.epoch} < {self.obedience.epoch})"
            )
            return False
        self.heard_at = self._clock.monotonic()
        self._registered = directive.incarnation, directive.serves or ""
        for one in directive.cancels:
            self._cancel(one)
        incarnation = self._runner.incarnation
        if directive.incarnation != incarnation or self._evicted == incarnation:
            return True  # the verdict is about an incarnation that is over, or that is being evicted
        if directive.verdict is not self.verdict:
            self._log.info(f"the verdict of epoch {directive.epoch} is {directive.verdict}: {directive.reason}")
        if directive.verdict is RoutingDecision.EVICT:
            self._go(incarnation, directive.reason)
            return True
        self.verdict = directive.verdict
        self._runner.allow(INTAKE[directive.verdict], peers=directive.peers)
        self._runner.hold(directive.holds)
        self.earning.left(directive.left_s, asked)
        return True

    def _cancel(self, one: Unwanted) -> None:
        """Cancels an attempt. An exception is only noted, so that the other cancels and the verdict still count; the leader asks again."""
        try:
            # A worker that lost its lease may have claimed the work again since it reported. That delivery is as good as any.
            fence = Fence(one.generation, one.delivery) if one.generation else None
            self._runner.cancel(
                one.job_id, workflow_id=one.workflow, attempt=one.attempt, fence=fence, reason=one.reason
            )
        except Exception as error:
            self.keeper.failures.note(FailedOn.JOB, one.job_id, "cancelling an attempt of it", error)

    def _go(self, incarnation: str, reason: str) -> None:
        """Has the runner stop everything and go on as a new incarnation. Called once for each incarnation."""
        self._evicted = incarnation
        self.verdict = None
        self.earning = Earning()
        self._runner.allow(0)
        self._runner.evict(reason)

    # Calls and waits

    async def _ask(self, request: Request, timeout: float, wanted: type[ReplyT]) -> ReplyT:
        """Returns the leader's reply. Raises `NodeUnavailableError`; the next call then looks for the leader anew."""
        address = ""
        try:
            found = self.address or await self._find_leader()
            reply = await self._caller.ask(found, request, timeout)
            if isinstance(reply, Redirect):
                found = reply.address
                reply = await self._caller.ask(found, request, timeout)
            if isinstance(reply, wanted):
                address = found
                return reply
        finally:
            self.address = address  # empty after any failure, so that the next call looks for the leader anew
        said = reply.fact if isinstance(reply, Problem) else type(reply).__name__
        raise NodeUnavailableError(f"{found} answered: {said}")

    async def _find_leader(self) -> str:
        leader = await self._calls.run(self._election.current)
        if leader is None or not address_of(leader.candidate):
            raise NodeUnavailableError("nobody leads now")
        return address_of(leader.candidate)

    async def _rest(self) -> None:
        await self._clock.async_sleep(self.settings.rest_s * self._random.uniform(0.5, 1.5))

    async def _nap(self, seconds: float) -> None:
        """Sleeps, and measures how late this process wakes: that shows how contended it is."""
        asked = self._clock.monotonic()
        await self._clock.async_sleep(seconds)
        late = max(0.0, self._clock.monotonic() - asked - seconds)
        self._overload.record_latency(1_000 * late)
        self.earning.paused(late)

    async def _until_due(self, seconds: float) -> None:
        """Waits until the next report is due, or until the slots changed. The time is random, so that workers do not report in step."""
        self._overload.assess()
        await self._clock.async_wait(self._changed, seconds * self._random.uniform(0.8, 1.0))


def _bell(event: asyncio.Event) -> Callable[[], None]:
    """Returns a function that sets the event from any thread; on the loop's own thread directly, so that simulations need no wake-up."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def ring() -> None:
        if threading.get_ident() == thread:
            event.set()
        else:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                return  # the loop has ended, so no node waits for the event

    return ring
