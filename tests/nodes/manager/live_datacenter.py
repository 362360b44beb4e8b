"""Managers and workers as they are, on the memory engine with a manual clock: the workers' slots are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from tests.nodes.cast import Cast
from tests.nodes.manager.harness import ManagerGroup

from tenure.control.messages.wire import Reply, Request
from tenure.engines.aio import calls_for
from tenure.errors import NodeUnavailableError
from tenure.nodes.manager.manager import Manager
from tenure.nodes.process import Environment
from tenure.nodes.worker.worker import ManagedWorker
from tenure.randomness import new_id


class Datacenter(ManagerGroup):
    """Managers, and workers with scripted slots that reach them by their addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.managers: dict[str, Manager] = {}
        self.casts: dict[str, Cast] = {}
        self.nodes: dict[str, ManagedWorker] = {}

    async def lead(self, name: str) -> Any:
        manager, leadership = self.open(name)
        self.managers[f"{name}:8470"] = manager
        await self.until(lambda: manager.leads)
        return leadership

    def worker(self, name: str) -> Cast:
        cast = self.casts[name] = Cast(name)
        calls = calls_for(self.engine)
        self.nodes[name] = ManagedWorker(
            name, cast, Environment(self.engine, calls, self.clock, Random(name), new_id), self
        )
        self.resume(name)
        return cast

    def resume(self, name: str) -> None:
        self.tasks[name] = asyncio.create_task(self.nodes[name].run())

    async def ask(self, address: str, request: Request, timeout: float) -> Reply:
        manager = self.managers.get(address)
        if manager is None:
            raise NodeUnavailableError(f"{address} is not there")
        return await manager.answer("worker", request)

    async def passing(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            for _ in range(60):
                await asyncio.sleep(0)
            self.clock.advance(1)


def run(story: Callable[[Any], Any], made: Callable[[], Datacenter] = Datacenter) -> None:
    async def main() -> None:
        datacenter = made()
        try:
            await story(datacenter)
        finally:
            await datacenter.end()

    asyncio.run(main())
