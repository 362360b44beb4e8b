"""The awaited client, against a real manager on the memory engine, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.one_datacenter import datacenter, double, waits

from tenure import AsyncClient, JobFailed, JobsFailed
from tenure.errors import (
    ArgumentsError,
    JobNotEndedError,
    NodeRefusedError,
    NodeUnavailableError,
    UnknownJobError,
)


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


def test_a_map_needs_few_requests() -> None:
    async def story(client: AsyncClient) -> None:
        asked, ask = list[str](), client.ask

        async def counting(request: Any, wait_s: float = 0.0) -> Any:
            asked.append(type(request).__name__)
            return await ask(request, wait_s)

        client.ask = counting  # type: ignore[method-assign]
        assert await client.map(double, [2 * n for n in range(60)], in_flight=60) == [4 * n for n in range(60)]
        assert asked.count("SubmitMany") == 1
        assert set(asked) <= {"SubmitMany", "AwaitJobs", "GetJob"}

    play(story)


def test_the_ended_ones_of_many_jobs_come_as_soon_as_there_is_one() -> None:
    async def story(client: AsyncClient) -> None:
        goes_on, done = await client.submit(waits), await client.submit(double, n=4)
        reply = await client.ended([goes_on.id, done.id], wait_s=30)
        assert [view.job_id for view in reply.jobs] == [done.id]
        assert (await client.ended([goes_on.id])).jobs == ()
        waiting = asyncio.create_task(client.ended([goes_on.id, "nobody"], wait_s=30))
        await goes_on.cancel("enough")
        assert [view.reason for view in (await waiting).jobs] == ["enough"]

    play(story)


def test_a_map_of_which_one_input_is_refused_cancels_the_others() -> None:
    async def story(client: AsyncClient) -> None:
        with pytest.raises(NodeRefusedError, match="of 2 was refused"):
            await client.map(waits, [{}, {}], unique_for=3600, on_duplicate="reject")
        assert all(row.state.terminal for row in (await client.jobs()).jobs)

    play(story)


def test_nobody_there_is_said_after_our_patience() -> None:
    async def story() -> None:
        async with AsyncClient("127.0.0.1:1", patience_s=0.1) as client:
            await client.leader()

    with pytest.raises(NodeUnavailableError, match=r"127\.0\.0\.1:1"):
        asyncio.run(story())
