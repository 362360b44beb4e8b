"""The awaited client, against a real manager on the memory engine, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from tenure import AsyncClient, JobFailed, JobsFailed, workflow
from tenure.clock import SystemClock
from tenure.control.async_caller import HttpCaller
from tenure.control.transport import HttpServer
from tenure.engines import MemoryEngine
from tenure.engines.aio import calls_for
from tenure.errors import ArgumentsError, JobNotEndedError, NodeUnavailableError, UnknownJobError
from tenure.ids import new_id
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.manager.serving import answering
from tenure.nodes.node_process import NodeDoor
from tenure.nodes.process import Environment
from tenure.nodes.worker.inline_slots import InlineSlots
from tenure.nodes.worker.worker import WorkerNode
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
    slots = InlineSlots(engine, calls, Registry([double, waits]), settings, worker="w", clock=clock, random=Random(2))
    node = WorkerNode("w", slots, engine, calls, caller, clock=clock, random=Random(3))
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


def play(story: Any) -> None:
    async def main() -> None:
        # The first address is nobody's: each story begins with a failover.
        async with datacenter() as address, AsyncClient(["127.0.0.1:1", address]) as client:
            await story(client)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_job_is_submitted_waited_for_and_explained() -> None:
    async def story(client: AsyncClient) -> None:
        job = await client.submit(double, n=4)
        assert await job.wait() == 8
        assert (await job.result(), await job.attempts()) == (8, 1)
        assert "completed" in await job.why()
        assert [event.kind async for event in job.events()][-1] == "JobEnded"
        assert (await client.leader()).leads
        with pytest.raises(UnknownJobError):
            await client.get("nobody").status()
        with pytest.raises(ArgumentsError, match=r"\$\.n"):
            await client.submit(double, n="four")

    play(story)


def test_a_job_that_runs_on_can_be_left_or_cancelled() -> None:
    async def story(client: AsyncClient) -> None:
        job = await client.submit(waits)
        with pytest.raises(JobNotEndedError):
            await job.wait(0.05)
        await job.cancel("enough")
        with pytest.raises(JobFailed, match="enough"):
            await job.wait()

    play(story)


def test_a_map_keeps_order_and_collects_failures() -> None:
    async def story(client: AsyncClient) -> None:
        assert await client.map(double, range(3), in_flight=2) == [0, 2, 4]
        with pytest.raises(JobsFailed, match="1 of 2 jobs"):
            await client.map(double, [2, 3], max_attempts=1)
        jobs = await client.submit_many(double, [5, 6])
        assert [await job.wait() for job in jobs] == [10, 12]

    play(story)


def test_nobody_there_is_said_after_our_patience() -> None:
    async def story() -> None:
        async with AsyncClient("127.0.0.1:1", patience_s=0.1) as client:
            await client.leader()

    with pytest.raises(NodeUnavailableError, match=r"127\.0\.0\.1:1"):
        asyncio.run(story())
