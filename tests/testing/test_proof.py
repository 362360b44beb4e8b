"""Work that beats and gets nowhere is ended, and honest polling is not: with the real nodes and slots, in manual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tenure import JobFailed, hours, workflow
from tenure.testing import TestDatacenter

MINUTES = 20
"""Ten times the stuck threshold of work with a stall of less than a minute."""


@pytest.fixture
def datacenter() -> Iterator[TestDatacenter]:
    with TestDatacenter(slots=20) as datacenter:
        yield datacenter


@workflow(stall=30, max_attempts=1)
async def stays_at_item_7(ctx: Any) -> None:
    while True:
        ctx.beat(progress=0.1, completed_items=7)
        await asyncio.sleep(5)


@workflow(stall=30, max_attempts=1)
async def starts_over(ctx: Any) -> None:
    """Fails at its eighth item and begins again, for ever."""
    while True:
        for item in range(8):
            ctx.beat(completed_items=item, total_items=20)
            await asyncio.sleep(5)


@workflow(stall=30, max_attempts=1, proof="progress")
async def only_beats(ctx: Any) -> None:
    while True:
        ctx.beat()
        await asyncio.sleep(5)


@workflow(stall=30, max_attempts=1)
async def goes_from_silence_to_silence(ctx: Any) -> None:
    while True:
        async with ctx.silence(60, "nothing in particular"):
            await asyncio.sleep(20)


@pytest.mark.parametrize(
    ("spins", "evidence"),
    [
        (stays_at_item_7, "beats in 2 min, item 7 throughout"),
        (starts_over, "of 20 throughout"),
        (only_beats, "nothing new throughout"),
        (goes_from_silence_to_silence, "no beat for"),
    ],
)
def test_work_that_gets_nowhere_is_ended_within_the_stuck_threshold(
    datacenter: TestDatacenter, spins: Any, evidence: str
) -> None:
    job = datacenter.submit(spins, timeout=hours(6))
    datacenter.advance(minutes=4)
    assert job.state.terminal, job.why()
    with pytest.raises(JobFailed, match="stall"):
        job.result()
    assert evidence in job.why()
    spun = "throughout" in evidence
    assert ("It beat without getting any further, so Tenure killed it: spinning" in job.why()) is spun
    assert ("it beat without getting any further for its stuck threshold, and was ended" in job.why()) is spun
    assert ("It stopped beating" in job.why()) is not spun


@workflow(stall=30, max_attempts=1)
async def hangs(ctx: Any) -> None:
    ctx.beat()
    await asyncio.sleep(86_400)


@pytest.mark.parametrize(("stands_still", "threshold_s"), [(hangs, 30), (stays_at_item_7, 120)])
def test_without_a_deadline_work_that_stands_still_is_found_in_its_threshold(
    datacenter: TestDatacenter, stands_still: Any, threshold_s: float
) -> None:
    job = datacenter.submit(stands_still)
    datacenter.advance(seconds=threshold_s - 2)
    assert not job.state.terminal
    assert job.status().deadline is None
    datacenter.advance(seconds=15)  # with the grace in which it may stop by itself
    assert job.state.terminal, job.why()


def test_a_chosen_stuck_threshold_reaches_the_worker(datacenter: TestDatacenter) -> None:
    job = datacenter.submit(stays_at_item_7, timeout=hours(6), stuck=40)
    datacenter.advance(seconds=60)
    assert "it may go on for 40 s without anything new" in job.why()


def test_work_that_only_beats_goes_on_and_is_said_to_be_unproven(datacenter: TestDatacenter) -> None:
    job = datacenter.submit(beats_async, every=5, timeout=hours(6))
    datacenter.advance(minutes=12)
    assert not job.state.terminal
    remedy = "unproven: beats only. Say how far it is"
    assert remedy in job.why()
    assert remedy in job.status().workflows[0].proof


@workflow(stall=30)
def polls(ctx: Any, every: float) -> int:
    return sum(1 for _ in ctx.polling(every, 60 * MINUTES, "the export"))


@workflow(stall=30)
async def polls_async(ctx: Any, every: float) -> int:
    turns = 0
    async for _ in ctx.polling(every, 60 * MINUTES, "the export"):
        turns += 1
    return turns


@workflow(stall=30)
async def beats_async(ctx: Any, every: float) -> None:
    for _ in range(int(60 * MINUTES / every)):
        ctx.beat()
        await asyncio.sleep(every)


@workflow(stall=30)
def sleeps(ctx: Any, every: float) -> None:
    for _ in range(int(60 * MINUTES / every)):
        ctx.sleep(every)


@workflow(stall=30)
async def sleeps_async(ctx: Any, every: float) -> None:
    for _ in range(int(60 * MINUTES / every)):
        await ctx.sleep(every)


@workflow(stall=30)
async def counts_and_then_polls(ctx: Any, every: float) -> None:
    async for _ in ctx.track(range(3)):
        await asyncio.sleep(every)
    await beats_async.function(ctx, every)


@workflow(stall=30)
async def says_that_it_starts(ctx: Any, every: float) -> None:
    ctx.log.info("waiting for the export")
    await beats_async.function(ctx, every)


@workflow(stall=30)
async def saves_and_then_polls(ctx: Any, every: float) -> None:
    await ctx.checkpoint({"asked": True})
    async for _ in ctx.polling(every, 60 * MINUTES, "the export"):
        pass


@workflow(stall=30, proof="beat")
async def declares_that_beats_are_its_proof(ctx: Any, every: float) -> None:
    for _ in range(int(60 * MINUTES / every)):
        ctx.beat(completed_items=7, total_items=20)
        await asyncio.sleep(every)


@workflow(stall=30)
async def counts_in_epochs(ctx: Any, every: float) -> None:
    for _ in range(int(60 * MINUTES / every / 5)):
        for batch in range(5):
            ctx.beat(completed_items=batch, total_items=5)
            await asyncio.sleep(every)


HONEST = (
    *(polls, polls_async, beats_async, sleeps, sleeps_async, counts_and_then_polls, says_that_it_starts),
    *(saves_and_then_polls, declares_that_beats_are_its_proof, counts_in_epochs),
)


def test_twenty_honest_polling_workflows_are_left_alone(datacenter: TestDatacenter) -> None:
    jobs = [datacenter.submit(one, every=every, timeout=hours(6)) for one in HONEST for every in (10, 20)]
    assert len(jobs) == 20
    datacenter.advance(minutes=MINUTES + 5)
    for job in jobs:
        job.result()
        assert job.attempts == 1, job.why()
