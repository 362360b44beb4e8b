"""Managers on one memory engine, in one event loop, with a manual clock: alone, or with the gates that they report to, which answer as a test tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest

from tenure.backoff import Retry
from tenure.bound_checks import check
from tenure.clock import ManualClock
from tenure.control.async_caller import AsyncCaller
from tenure.control.messages.gates import DatacenterWord, GateHeard, GateWord, TellDatacenter, TellGate
from tenure.control.messages.wire import Reply, Request
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.control.problems import problem
from tenure.engines import MemoryEngine
from tenure.engines.aio import Calls, calls_for
from tenure.errors import NodeUnavailableError, OutOfBoundsError
from tenure.health.signals import RoutingDecision
from tenure.jobs import JobSettings, JobSubmission
from tenure.jobs.messages import JobProgressReport, JobReportAck
from tenure.jobs.model import WorkflowSpec
from tenure.logs import log_to
from tenure.nodes.manager.hooks import Hooks
from tenure.nodes.manager.leader import JobLeadership
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.manager.serving import ManagerMetrics
from tenure.nodes.process import Environment
from tenure.randomness import seeded_ids
from tenure.work.delivery import WorkFailure, WorkItem, WorkResult

GroupT = TypeVar("GroupT", bound="ManagerGroup")


class ManagerGroup:
    """The managers of one datacenter."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.work = self.engine.mailbox("default.p0", WorkItem, WorkResult)
        self.said: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def made(
        self,
        name: str,
        *,
        gates: AsyncCaller | None = None,
        metrics: ManagerMetrics | None = None,
        setup: dict[str, Any] | None = None,
        calls: Calls | None = None,
        hooks: Hooks | None = None,
        **settings: Any,
    ) -> Manager:
        """Returns a manager that does not run yet. `settings` are those of its jobs."""
        environment = Environment(
            self.engine,
            calls or calls_for(self.engine),
            self.clock,
            Random(name),
            seeded_ids(Random(name)),
            log_to(self.said.append),
        )
        jobs = JobSettings(**settings) if settings else None
        given = ManagerSetup(jobs=jobs, **(setup or {}))
        return Manager(name, f"{name}:8470", environment, given, gates=gates, metrics=metrics, hooks=hooks)

    def manager(self, name: str, *, setup: dict[str, Any] | None = None, **settings: Any) -> JobLeadership:
        """Starts the leadership of a manager, and nothing else of it."""
        node = self.made(name, setup=setup, **settings).leadership
        self.tasks[name] = asyncio.create_task(node.run())
        return node

    def open(self, name: str, *, setup: dict[str, Any] | None = None, **settings: Any) -> tuple[Manager, JobLeadership]:
        """Starts a whole manager."""
        manager = self.made(name, setup=setup, **settings)
        self.start(name, manager)
        return manager, manager.leadership

    def start(self, name: str, manager: Manager) -> None:
        self.tasks[name] = asyncio.create_task(manager.run())

    async def until(self, true: Callable[[], object], seconds: float = 120) -> None:
        """Let virtual time pass until it is so."""
        for _ in range(int(seconds / 0.25)):
            for _ in range(30):
                await asyncio.sleep(0)
                if true():
                    return
            self.clock.advance(0.25)
        pytest.fail(f"it did not happen within {seconds} s: {self.said}")

    async def kill(self, name: str) -> None:
        """As if its process died: no resignation reaches the engine."""
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def end(self) -> None:
        for name in list(self.tasks):
            await self.kill(name)

    def claim(self) -> Any:
        found = self.work.receive(1, 60)
        return found[0] if found else None

    async def claimed(self) -> Any:
        """The next message, once it was sent: that a job is accepted does not mean that it is dispatched."""
        found: list[Any] = []
        await self.until(lambda: found.extend(self.work.receive(1, 60)) or found)
        return found[0]

    def answer(self, message: Any, value: Any = None, failure: WorkFailure | None = None) -> None:
        item = message.body
        message.settle(
            WorkResult(
                job_id=item.job_id,
                workflow_id=item.workflow_id,
                workflow=item.workflow,
                attempt=item.attempt,
                fence=message.fence,
                worker="w-1",
                result=msgspec.Raw(msgspec.json.encode(value)),
                failure=failure,
            )
        )


def submission(job_id: str = "j-1", **options: Any) -> JobSubmission:
    spec = WorkflowSpec(name="encode", arguments={"n": 1}, retry=Retry(max_attempts=2, delay=1, jitter=0))
    return JobSubmission(job_id=job_id, workflows=(spec,), **options)


def run_group(story: Callable[[ManagerGroup], Any]) -> None:
    """Plays an async story with a group, and ends the group after it."""
    _run(ManagerGroup, story)


def _run(make: Callable[[], GroupT], story: Callable[[GroupT], Any]) -> None:
    async def main() -> None:
        group = make()
        try:
            await story(group)
        finally:
            await group.end()

    asyncio.run(main())


async def ask(manager: Manager, request: Any) -> Any:
    try:
        check(request)  # as the port does when it decodes a request
    except OutOfBoundsError as error:
        return problem(error)
    return await manager.answer("test", request)


def runs(job_id: str = "j-1", *, attempt: int = 1, steps: int = 1, **rest: Any) -> AttemptReport:
    return AttemptReport(job_id=job_id, workflow="encode", attempt=attempt, delivery=1, steps=steps, **rest)


def report(*attempts: AttemptReport, wait_s: float = 0.0) -> WorkerReport:
    return WorkerReport(worker="w-1", attempts=attempts, wait_s=wait_s, verdict=RoutingDecision.ROUTE)


async def passing(group: ManagerGroup, seconds: float) -> None:
    """Let time pass in steps that everybody can keep up with."""
    for _ in range(int(seconds)):
        for _ in range(30):
            await asyncio.sleep(0)
        group.clock.advance(1)


class AnsweringGates:
    """An `AsyncCaller` at whose other end gates take what they are told."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.heard: list[tuple[float, str, DatacenterWord]] = []
        """When, at which address, what."""
        self.batches: list[int] = []
        self.asked: list[tuple[float, str]] = []
        """Also of those that are away."""
        self.away: set[str] = set()
        self.hung: set[str] = set()
        self.epoch = 1
        self.acknowledges = True

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        assert isinstance(request, TellGate)
        self.asked.append((self._now(), address))
        if address in self.hung:
            await asyncio.Event().wait()
        if address in self.away:
            raise NodeUnavailableError(f"{address} did not answer")
        self.batches.append(len(request.words))
        self.heard += [(self._now(), address, word) for word in request.words]
        return GateHeard(acks=tuple(self._ack(word) for word in request.words if self.acknowledges))

    def _ack(self, word: DatacenterWord) -> JobReportAck:
        status = word.status if isinstance(word, JobProgressReport) else "running"
        return JobReportAck(
            job_id=word.job_id,
            datacenter=word.datacenter,
            status=status,
            fence_token=word.fence_token,
            gate_epoch=self.epoch,
        )

    def said(self, kind: type[Any], job_id: str = "j-1") -> list[Any]:
        """The words of one kind about a job, in order."""
        return [word for _, _, word in self.heard if isinstance(word, kind) and word.job_id == job_id]

    def times(self, job_id: str = "j-1", kind: type[Any] = JobProgressReport) -> list[float]:
        """When they were heard."""
        return [at for at, _, word in self.heard if isinstance(word, kind) and word.job_id == job_id]


class GatedManagers(ManagerGroup):
    """Managers that gates submit to."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = AnsweringGates(self.clock.monotonic)

    def open(self, name: str, *, setup: dict[str, Any] | None = None, **settings: Any) -> tuple[Manager, JobLeadership]:
        manager = self.made(name, gates=self.gates, setup={"datacenter": "a", **(setup or {})}, **settings)
        self.start(name, manager)
        return manager, manager.leadership

    async def led(self, name: str = "m-1", **settings: Any) -> Manager:
        manager, _ = self.open(name, **settings)
        await self.until(lambda: manager.leads)
        return manager

    async def passes(self, seconds: float, step: float = 0.25) -> None:
        """Time, in steps that everybody keeps up with."""
        for _ in range(round(seconds / step)):
            await self.rest()
            self.clock.advance(step)
        await self.rest()

    def works(self, manager: Manager, job_id: str = "j-1", *, advances: bool = True) -> None:
        """A worker runs the job and says so every five seconds, for as long as the test lasts."""
        self.tasks[f"worker of {job_id}"] = asyncio.create_task(self._work(manager, job_id, advances))

    async def _work(self, manager: Manager, job_id: str, advances: bool) -> None:
        steps, silent_s = 1, 0.0
        while True:
            one = AttemptReport(
                job_id=job_id, workflow="encode", attempt=1, delivery=1, steps=steps, silent_s=silent_s, stall_s=600.0
            )
            await ask(manager, WorkerReport(worker="w-1", attempts=(one,)))
            await self.clock.async_sleep(5.0)
            steps, silent_s = (steps + 1, 0.0) if advances else (steps, silent_s + 5.0)

    async def rest(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)


def run_gated(story: Callable[[GatedManagers], Any]) -> None:
    """Plays an async story with managers that have gates."""
    _run(GatedManagers, story)


def from_gate(job_id: str = "j-1", *, gates: tuple[str, ...] = ("g-1", "g-2"), **options: Any) -> JobSubmission:
    """As a gate submits it: with where its managers report."""
    first, *others = ((gate, 8480) for gate in gates)
    given = {"gate_epoch": 1, "target_datacenters": ("a", "b"), "timeout_seconds": 600.0, **options}
    return submission(job_id, gate_addr=first, gate_addrs=tuple(others), **given)


async def tell(
    manager: Manager, *submissions: JobSubmission, words: tuple[GateWord, ...] = (), datacenter: str = "a"
) -> Any:
    """What the manager answers a gate."""
    return await ask(manager, TellDatacenter(datacenter=datacenter, submissions=submissions, words=words))
