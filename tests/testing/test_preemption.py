"""Urgent work that waits for a slot takes that of running work with a lower priority, on the nodes of production in virtual time (decision 0570)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tenure import workflow
from tenure.jobs.attempts import charged
from tenure.jobs.states import AttemptCause, JobState
from tenure.testing import TestDatacenter


@workflow(stall=600)
async def batch(ctx: Any, every_s: float, steps: int = 20) -> int:
    done = ctx.resume or 0
    for step in range(done, steps):
        await asyncio.sleep(every_s)
        await ctx.checkpoint(step + 1)
    return done  # type: ignore[no-any-return]


@workflow(stall=600)
async def unsaved(ctx: Any) -> None:
    for _ in range(60):
        await asyncio.sleep(10.0)
        ctx.beat()


@workflow(stall=600)
async def urgent(ctx: Any, takes_s: float = 20.0) -> str:
    await asyncio.sleep(takes_s)
    return "done"


@pytest.fixture
def datacenter() -> Iterator[TestDatacenter]:
    made = TestDatacenter(queue="default.p9", more_queues=("default.p0",), slots=2)
    yield made
    made.close()


def fill(datacenter: TestDatacenter, *every_s: float) -> list[Any]:
    """Starts work of priority 0 in every slot, and lets it save."""
    jobs = [datacenter.submit(batch, job_id=f"batch-{number}", every_s=every) for number, every in enumerate(every_s)]
    datacenter.advance(seconds=130)
    return jobs


def records(datacenter: TestDatacenter, job_id: str) -> Any:
    [record] = datacenter.manager.ledger.book.jobs[job_id].workflows.values()
    return record


def test_urgent_work_gets_the_slot_of_the_attempt_with_the_least_to_lose(datacenter: TestDatacenter) -> None:
    datacenter.set_queue("default", preempt_after=30.0)
    first, second = fill(datacenter, 100.0, 20.0)
    job = datacenter.submit(urgent, job_id="now", priority=9, takes_s=60.0)
    datacenter.advance(seconds=25)
    assert job.state is JobState.PENDING, "it has not waited long enough"
    datacenter.advance(seconds=25)
    assert job.state is JobState.RUNNING
    assert (first.attempts, second.attempts) == (1, 2), "the one that saves often lost less"
    record = records(datacenter, second.id)
    assert record.cause is AttemptCause.PREEMPTED
    assert charged(record) == 0
    assert not record.excluded, "its worker may have it again"
    why = second.why()
    assert "leader preempts 'batch', attempt 1" in why
    assert "'urgent' of job 'now' with priority 9 has waited for a slot for" in why
    assert "urgent work got its slot" in why
    datacenter.advance(minutes=15)
    assert (job.state, second.state) == (JobState.COMPLETED, JobState.COMPLETED)
    assert second.result() >= 5, "it went on from its checkpoint"


def test_without_the_setting_urgent_work_waits(datacenter: TestDatacenter) -> None:
    both = fill(datacenter, 20.0, 20.0)
    job = datacenter.submit(urgent, priority=9)
    datacenter.advance(seconds=180)
    assert job.state is JobState.PENDING
    assert [one.attempts for one in both] == [1, 1]


def test_work_that_has_saved_nothing_and_work_of_the_same_priority_keep_their_slots(datacenter: TestDatacenter) -> None:
    datacenter.set_queue("default", preempt_after=10.0)
    kept = [datacenter.submit(unsaved), datacenter.submit(batch, every_s=20.0, priority=9)]
    datacenter.advance(seconds=60)
    job = datacenter.submit(urgent, priority=9)
    datacenter.advance(seconds=120)
    assert job.state is JobState.PENDING
    assert [one.attempts for one in kept] == [1, 1]


def test_as_many_give_way_as_wait_and_no_more(datacenter: TestDatacenter) -> None:
    datacenter.set_queue("default", preempt_after=10.0)
    both = fill(datacenter, 20.0, 20.0)
    job = datacenter.submit(urgent, priority=9, takes_s=200.0)
    datacenter.advance(seconds=120)
    assert job.state is JobState.RUNNING
    assert sorted(one.attempts for one in both) == [1, 2]
    more = datacenter.submit(urgent, priority=9, takes_s=200.0)
    datacenter.advance(seconds=60)
    assert more.state is JobState.RUNNING
    assert sorted(one.attempts for one in both) == [2, 2]


def test_a_new_leader_asks_nobody_else_while_one_is_on_its_way(datacenter: TestDatacenter) -> None:
    datacenter.set_queue("default", preempt_after=10.0)
    both = fill(datacenter, 20.0, 20.0)
    datacenter.submit(urgent, priority=9, takes_s=600.0)
    datacenter.advance(seconds=12)
    datacenter.crash_manager()
    datacenter.advance(minutes=3)
    assert sorted(one.attempts for one in both) == [1, 2]


def test_work_that_gives_way_again_and_again_still_completes(datacenter: TestDatacenter) -> None:
    datacenter.set_queue("default", preempt_after=5.0)
    both = fill(datacenter, 20.0, 20.0)
    for number in range(40):
        datacenter.submit(urgent, job_id=f"now-{number}", priority=9, takes_s=10.0)
        datacenter.advance(seconds=30)
    datacenter.advance(minutes=20)
    assert [one.state for one in both] == [JobState.COMPLETED] * 2
    assert sum(one.attempts for one in both) > 4, "they gave way more than once"
    assert all(charged(records(datacenter, one.id)) == 0 for one in both)
