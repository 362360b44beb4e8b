"""Managers on one memory engine, in one event loop, with a manual clock: a `Cell` runs leaderships, an `Office` runs whole managers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from tenure.backoff import Retry
from tenure.clock import ManualClock
from tenure.control.async_caller import AsyncCaller
from tenure.engines import MemoryEngine
from tenure.engines.aio import calls_for
from tenure.ids import seeded_ids
from tenure.jobs import JobSettings, JobSubmission
from tenure.jobs.model import WorkflowSpec
from tenure.nodes.manager.leader import JobLeadership
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.manager.metrics import ManagerMetrics
from tenure.nodes.process import Environment
from tenure.work.envelope import WorkFailure, WorkItem, WorkResult


class Cell:
    """A datacenter in one event loop."""

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
        **settings: Any,
    ) -> Manager:
        """Returns a manager that does not run yet. `settings` are those of its jobs."""
        environment = Environment(
            self.engine,
            calls_for(self.engine),
            self.clock,
            Random(name),
            seeded_ids(Random(name)),
            self.said.append,
        )
        jobs = JobSettings(**settings) if settings else None
        given = ManagerSetup(jobs=jobs, **(setup or {}))
        return Manager(name, f"{name}:8470", environment, given, gates=gates, metrics=metrics)

    def manager(self, name: str, *, setup: dict[str, Any] | None = None, **settings: Any) -> JobLeadership:
        """Starts the leadership of a manager, and nothing else of it."""
        node = self.made(name, setup=setup, **settings).leadership
        self.tasks[name] = asyncio.create_task(node.run())
        return node

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


def run_cell(story: Callable[[Cell], Any]) -> None:
    """Plays an async story with a cell, and ends the cell after it."""

    async def main() -> None:
        cell = Cell()
        try:
            await story(cell)
        finally:
            await cell.end()

    asyncio.run(main())


class Office(Cell):
    """A cell whose managers can be asked."""

    def open(self, name: str, *, setup: dict[str, Any] | None = None, **settings: Any) -> tuple[Manager, JobLeadership]:
        manager = self.made(name, setup=setup, **settings)
        self.start(name, manager)
        return manager, manager.leadership

    def start(self, name: str, manager: Manager) -> None:
        self.tasks[name] = asyncio.create_task(manager.run())


def run_office(story: Callable[[Office], Any]) -> None:
    """Plays an async story with an office, and ends the office after it."""

    async def main() -> None:
        office = Office()
        try:
            await story(office)
        finally:
            await office.end()

    asyncio.run(main())


async def ask(manager: Manager, request: Any) -> Any:
    return await manager.answer("test", request)
