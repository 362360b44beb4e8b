"""A worker node with scripted slots and a scripted leader, on a manual clock: what it says, when, and whom it obeys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.nodes.cast import Cast

from tenure.clock import ManualClock
from tenure.control.async_caller import HttpCaller
from tenure.control.messages.jobs import Cancel, Done, GetJob
from tenure.control.messages.wire import MANAGER_ELECTION, Problem, ProblemKind, Redirect, Reply, Request, candidate_at
from tenure.control.messages.workers import ExtendDeadline, ExtensionReply, Unwanted, WorkerDirective, WorkerReport
from tenure.control.transport import HttpServer
from tenure.engines import MemoryEngine
from tenure.engines.aio import calls_for
from tenure.errors import NodeUnavailableError
from tenure.health.extension import ExtensionReason, HealthcheckExtensionResponse
from tenure.health.overload import OverloadState
from tenure.health.signals import RoutingDecision
from tenure.logs import log_to
from tenure.nodes.process import Environment
from tenure.nodes.worker.directives import Earning
from tenure.nodes.worker.worker import ManagedWorker
from tenure.randomness import new_id

ROUTE, DRAIN, EVICT = RoutingDecision.ROUTE, RoutingDecision.DRAIN, RoutingDecision.EVICT


class Stage:
    """A worker and whoever it asks. `says` is the leader's directive; None: nobody answers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.cast = Cast()
        self.said: list[str] = []
        self.asked: list[tuple[float, str, Request]] = []
        self.says: WorkerDirective | None = WorkerDirective(epoch=1)
        self.grants: ExtensionReply | None = None
        self.address = "m-1:1"
        self.dead: set[str] = set()
        """Addresses at which nobody is any more."""
        self.changed = asyncio.Event()
        self.engine.election(MANAGER_ELECTION).campaign(candidate_at("m-1", self.address), 3_600)
        calls = calls_for(self.engine)
        self.node = ManagedWorker(
            "w-1",
            self.cast,
            Environment(self.engine, calls, self.clock, Random(1), new_id, log_to(self.said.append)),
            self,
        )
        self.task = asyncio.create_task(self.node.run())

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        self.asked.append((self.clock.monotonic(), address, request))
        await asyncio.sleep(0)
        if address in self.dead:
            raise NodeUnavailableError(f"{address} is gone")
        if address != self.address:
            return Redirect(address=self.address, epoch=1)
        if self.says is None:
            raise NodeUnavailableError("nobody is there")
        if isinstance(request, ExtendDeadline):
            assert self.grants is not None
            return self.grants
        assert isinstance(request, WorkerReport)
        if request.wait_s:
            self.changed.clear()
            nap = asyncio.create_task(self.clock.async_sleep(request.wait_s))
            bell = asyncio.create_task(self.changed.wait())
            await asyncio.wait([nap, bell], return_when=asyncio.FIRST_COMPLETED)
            nap.cancel()
            bell.cancel()
        if self.says is None:
            raise NodeUnavailableError("nobody is there")
        return self.says

    def say(self, **fields: Any) -> None:
        """A new directive, which answers the request that is held."""
        fields = {"epoch": 1, "incarnation": self.cast.incarnation, **fields}
        self.says = WorkerDirective(**fields)
        self.changed.set()

    def reports(self, *, held: bool = False) -> list[WorkerReport]:
        return [r for _, _, r in self.asked if isinstance(r, WorkerReport) and bool(r.wait_s) is held]

    async def soon(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)

    async def passing(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            await self.soon()
            self.clock.advance(0.1)
        await self.soon()


def run(story: Callable[[Stage], Any]) -> None:
    async def main() -> None:
        stage = Stage()
        try:
            await stage.soon()
            await story(stage)
        finally:
            stage.task.cancel()
            await asyncio.gather(stage.task, return_exceptions=True)

    asyncio.run(main())


def test_it_reports_on_a_cadence_more_often_while_something_runs_and_at_once_when_something_changes() -> None:
    async def story(stage: Stage) -> None:
        await stage.passing(30)
        idle = len(stage.reports())
        assert 6 <= idle <= 9
        stage.cast.begin()
        await stage.soon()
        assert len(stage.reports()) == idle + 1
        assert [one.job_id for one in stage.reports()[-1].attempts] == ["j-1"]
        await stage.passing(10)
        assert 9 <= len(stage.reports()) - idle <= 14
        stage.cast.end()
        await stage.passing(0.2)
        last = stage.reports()[-1]
        assert (last.attempts, last.completed, last.steps, last.free) == ((), 1, 1, 2)
        numbers = [one.number for one in stage.reports()]
        assert numbers == sorted(set(numbers))

    run(story)


def test_many_changes_at_once_are_few_reports() -> None:
    async def story(stage: Stage) -> None:
        before = len(stage.reports())
        for _ in range(100):
            stage.cast.begin()
            stage.cast.end()
            await stage.passing(0.01)
            stage.clock.advance(0.01)
        assert len(stage.reports()) - before <= 12

    run(story)


@pytest.mark.parametrize(
    ("verdict", "most"),
    [(ROUTE, None), (RoutingDecision.INVESTIGATE, 1), (DRAIN, 0)],
)
def test_a_verdict_reaches_the_slots_at_once_by_the_request_that_is_held(
    verdict: RoutingDecision, most: int | None
) -> None:
    async def story(stage: Stage) -> None:
        stage.cast.most = -1
        stage.say(verdict=verdict, reason="because", peers=3)
        await stage.soon()
        assert (stage.cast.most, stage.cast.peers) == (most, 3)
        assert stage.node.verdict is verdict
        await stage.passing(6)
        assert stage.reports()[-1].verdict is verdict

    run(story)


def test_a_cancel_reaches_its_attempt_and_no_other() -> None:
    async def story(stage: Stage) -> None:
        stage.cast.begin("j-1")
        stage.cast.begin("j-2")
        await stage.soon()
        stage.say(cancels=(Unwanted(job_id="j-2", workflow="encode", attempt=1, reason="enough"),))
        await stage.soon()
        assert stage.cast.cancelled[0] == ("j-2", 1, "enough")
        assert list(stage.cast.running) == ["j-1"]

    run(story)


def test_the_word_of_a_lower_epoch_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.say(epoch=5, verdict=ROUTE)
        await stage.soon()
        stage.cast.begin()
        stage.say(
            epoch=4,
            verdict=EVICT,
            cancels=(Unwanted(job_id="j-1", workflow="encode", attempt=1, reason="old"),),
        )
        await stage.passing(2)
        assert (stage.cast.cancelled, stage.cast.evicted, stage.cast.most) == ([], [], None)
        assert stage.node.obedience.refused > 0
        assert any("deposed" in line for line in stage.said)

    run(story)


def test_an_evicted_worker_stops_and_comes_back_once_as_a_new_incarnation_that_waits_for_its_first_verdict() -> None:
    async def story(stage: Stage) -> None:
        stage.say(verdict=ROUTE)
        await stage.soon()
        stage.cast.slow_to_end = True
        stage.cast.begin()
        stage.say(verdict=EVICT, reason="its deadline passed")
        await stage.passing(5)
        assert stage.cast.evicted == ["its deadline passed"]  # however often it is told
        assert stage.cast.most == 0
        stage.cast.come_back()
        await stage.passing(0.5)
        assert stage.reports()[-1].incarnation == "w-1#2"
        assert stage.reports()[-1].verdict is None
        assert stage.cast.evicted == ["its deadline passed"]  # that word was for the incarnation before
        assert stage.cast.most == 0
        stage.say(verdict=ROUTE)
        await stage.soon()
        assert stage.cast.most is None

    run(story)


def test_while_nobody_answers_it_goes_on_under_its_last_verdict_and_finds_the_next_leader() -> None:
    async def story(stage: Stage) -> None:
        stage.say(verdict=RoutingDecision.INVESTIGATE)
        stage.cast.begin()
        await stage.passing(1)
        stage.says = None
        stage.changed.set()
        await stage.passing(60)
        assert stage.cast.most == 1
        assert list(stage.cast.running) == ["j-1"]
        attempts_to_reach = len([1 for at, _, _ in stage.asked if at > stage.clock.monotonic() - 50])
        assert attempts_to_reach <= 2 * 50 / 0.5  # it rests in between
        stage.address = "m-2:2"  # the old address redirects
        stage.say(epoch=2, verdict=ROUTE)
        await stage.passing(3)
        assert (stage.cast.most, stage.node.address) == (None, "m-2:2")

    run(story)


def test_an_idle_worker_whose_report_nobody_took_reports_again_at_once() -> None:
    async def story(stage: Stage) -> None:
        stage.says = None
        stage.cast.come_back()  # a report is due now, and meets nobody
        await stage.passing(0.2)
        stage.say(verdict=ROUTE)
        unheard = len(stage.reports())
        await stage.passing(2)  # the rest takes 1.5 s at most; the cadence of an idle worker is 5 s
        assert len(stage.reports()) > unheard

    run(story)


def test_a_leader_that_is_gone_is_not_asked_again_once_the_election_names_another() -> None:
    async def story(stage: Stage) -> None:
        stage.say(verdict=ROUTE)
        await stage.passing(2)
        election = stage.engine.election(MANAGER_ELECTION)
        stage.dead, stage.address = {"m-1:1"}, "m-2:2"
        stage.clock.advance(3_601)  # its term is over
        election.campaign(candidate_at("m-2", "m-2:2"), 3_600)
        stage.say(epoch=2, verdict=DRAIN)
        await stage.passing(10)
        assert (stage.cast.most, stage.node.address) == (0, "m-2:2")
        assert "m-1:1" not in [address for at, address, _ in stage.asked if at > stage.clock.monotonic() - 5]

    run(story)


def test_a_worker_that_leaves_says_so() -> None:
    async def story(stage: Stage) -> None:
        await stage.node.leave()
        last = stage.reports()[-1]
        assert (last.leaving, last.accepting) == (True, False)
        stage.says = None
        await stage.node.leave()  # nobody is there to hear it: no error

    run(story)


def extension(granted: bool, left_s: float, **fields: Any) -> ExtensionReply:
    response = HealthcheckExtensionResponse(
        granted=granted, extension_seconds=30.0 if granted else 0.0, new_deadline=0.0, remaining_extensions=4, **fields
    )
    return ExtensionReply(response=response, epoch=1, left_s=left_s)


def test_it_asks_for_time_when_its_deadline_nears_and_its_work_advances() -> None:
    async def story(stage: Stage) -> None:
        stage.grants = extension(True, 40.0)
        stage.cast.begin(steps=5, fraction=0.25)
        stage.say(left_s=30.0)
        await stage.passing(3)
        assert not any(isinstance(r, ExtendDeadline) for _, _, r in stage.asked)
        stage.cast.step(fraction=0.5)
        stage.say(left_s=9.0)
        await stage.passing(1.2)
        [found] = [r for _, _, r in stage.asked if isinstance(r, ExtendDeadline)]
        request = found.request
        assert (request.worker_id, request.reason) == ("w-1", ExtensionReason.LONG_WORKFLOW)
        assert (request.current_progress, request.progress_counter, request.active_workflow_count) == (0.5, 6, 1)
        assert stage.clock.wall() < request.estimated_completion < stage.clock.wall() + 30
        assert found.incarnation == "w-1#1"
        await stage.passing(5)  # it did not advance since, so it asks no more
        assert len([1 for _, _, r in stage.asked if isinstance(r, ExtendDeadline)]) == 1
        stage.cast.step()
        await stage.passing(1.2)
        assert len([1 for _, _, r in stage.asked if isinstance(r, ExtendDeadline)]) == 2

    run(story)


def test_a_denial_is_said_and_not_asked_for_again_at_once() -> None:
    async def story(stage: Stage) -> None:
        stage.grants = extension(False, 9.0, denial_reason="Maximum extensions (5) exceeded")
        stage.say(left_s=30.0)
        stage.cast.begin(steps=5)
        await stage.passing(1)
        stage.say(left_s=9.0)
        for _ in range(9):
            stage.cast.step()
            await stage.passing(1)
        assert len([1 for _, _, r in stage.asked if isinstance(r, ExtendDeadline)]) == 1
        assert any("Maximum extensions" in line for line in stage.said)

    run(story)


def test_the_reason_is_a_pause_of_the_whole_process_or_contention_where_there_was_one() -> None:
    cast = Cast()
    cast.begin(steps=3)
    earning = Earning()
    earning.left(30, 0.0)
    earning.left(5, 0.0)
    earning.paused(4.0)
    asked = earning.request("w-1", cast.view(), 0.0, 1e9, OverloadState.HEALTHY)
    assert asked is not None
    assert asked.reason == ExtensionReason.GC_PAUSE
    asked = earning.request("w-1", cast.view(), 0.0, 1e9, OverloadState.STRESSED)
    assert asked is not None
    assert (asked.reason, asked.estimated_completion) == (ExtensionReason.RESOURCE_CONTENTION, 0.0)
    cast.end()
    assert earning.request("w-1", cast.view(), 0.0, 1e9, OverloadState.HEALTHY) is None  # nothing to ask for


def test_requests_over_http_share_connections_and_a_node_that_is_gone_is_unavailable() -> None:
    async def node(sender: str, request: Any) -> Any:
        if isinstance(request, Cancel):
            return Problem(kind=ProblemKind.CONFLICT, fact="no")
        await asyncio.sleep(0.01)
        return Done(job_id=request.job_id, outcome="accepted", epoch=1)  # type: ignore[arg-type]

    async def main() -> None:
        server = HttpServer(node, token="secret")
        address = f"127.0.0.1:{await server.start()}"
        caller, stranger = HttpCaller(token="secret"), HttpCaller()
        try:
            for _ in range(3):
                both = [caller.ask(address, GetJob(job_id=name), 5) for name in ("a", "b")]
                assert [getattr(reply, "job_id", None) for reply in await asyncio.gather(*both)] == ["a", "b"]
            assert len(caller._kept[address]) == 2
            assert isinstance(await caller.ask(address, Cancel(job_id="a"), 5), Problem)
            refused = await stranger.ask(address, GetJob(job_id="a"), 5)
            assert isinstance(refused, Problem)
            assert refused.kind is ProblemKind.FORBIDDEN
            with pytest.raises(NodeUnavailableError):
                await caller.ask(address, GetJob(job_id="a"), 0.001)
        finally:
            await server.stop()
        with pytest.raises(NodeUnavailableError):
            await caller.ask(address, GetJob(job_id="a"), 5)
        caller.close()
        stranger.close()

    asyncio.run(main())
