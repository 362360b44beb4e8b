"""The awaited client, against a real manager on the memory engine, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.one_datacenter import datacenter, double, waits

from tenure import AsyncClient, JobFailed, JobsFailed
from tenure.errors import ArgumentsError, JobNotEndedError, NodeUnavailableError, UnknownJobError


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
