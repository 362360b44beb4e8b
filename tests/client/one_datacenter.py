"""A manager and a worker on the memory engine in this process, over real HTTP on loopback, and two workflows for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from tenure import workflow
from tenure.clock import SystemClock
from tenure.control.async_caller import HttpCaller
from tenure.control.transport import HttpServer
from tenure.engines import MemoryEngine
from tenure.engines.aio import calls_for
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.manager.serving import answering
from tenure.nodes.node_process import NodeDoor
from tenure.nodes.process import Environment
from tenure.nodes.worker.inline_slots import InlineSlots
from tenure.nodes.worker.worker import ManagedWorker
from tenure.randomness import new_id
from tenure.work.registry import Registry
from tenure.work.slots.settings import SlotSettings


@workflow
async def double(ctx: Any, n: int) -> int:
    if n == 3:
        raise ValueError("three")
    return 2 * n


@workflow
async def waits(ctx: Any) -> None:
    await ctx.sleep(3600)


@asynccontextmanager
async def datacenter(name: str = "") -> AsyncIterator[str]:
    """Its address. With a name, gates may ask it, too."""
    clock, engine, door = SystemClock(), MemoryEngine(), NodeDoor("node")
    server = HttpServer(door.answer, streams=door.streams)
    address = f"127.0.0.1:{await server.start()}"
    calls = calls_for(engine)
    caller = HttpCaller()
    environment = Environment(engine, calls, clock, Random(1), new_id)
    setup = ManagerSetup(datacenter=name or "local")
    manager = Manager("m", address, environment, setup, gates=caller if name else None)
    door.open(answering(manager))
    settings = SlotSettings(queue="default.p0", slots=4)
    environment = Environment(engine, calls, clock, Random(2), new_id)
    slots = InlineSlots(environment, Registry([double, waits]), settings, worker="w")
    node = ManagedWorker("w", slots, environment, caller)
    tasks = [asyncio.create_task(one) for one in (manager.run(), slots.run(), node.run())]
    try:
        yield address
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        caller.close()
        await server.stop()
        engine.close()
