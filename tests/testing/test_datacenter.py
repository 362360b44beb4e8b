"""The kit's datacenter: real nodes, manual time. What a user's test would assert, asserted of the kit itself."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import Any

import pytest

from tenure import JobFailed, JobsFailed, hours, workflow
from tenure.clock import ManualClock
from tenure.errors import JobNotEndedError, UnknownJobError
from tenure.jobs.states import JobState
from tenure.testing import TestDatacenter


@workflow(stall=600)
async def hangs_once(ctx: Any, at: int) -> str:
    done = ctx.resume or 0
    for step in range(done, 5):
        if ctx.attempt == 1 and step == at:
            await asyncio.sleep(10**6)
        await asyncio.sleep(60)
        await ctx.checkpoint(step + 1)
    return f"resumed at {done}"


@workflow(stall=600)
def sleeps(ctx: Any, minutes: int) -> int:
    for _ in ctx.track(range(minutes)):
        ctx.sleep(60)
    return minutes


@workflow(max_attempts=2)
def raises(ctx: Any, word: str) -> None:
    raise ValueError(word)


@workflow(max_attempts=2)
async def raises_later(ctx: Any) -> None:
    await asyncio.sleep(30)  # long enough for its start to be reported
    raise ValueError("broken")


@workflow
async def double(ctx: Any, n: int) -> int:
    if n == 3:
        raise ValueError("three")
    await asyncio.sleep(n)
    return 2 * n


def test_a_hang_is_retried_from_its_checkpoint_and_why_says_so(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(hangs_once, at=3)
    tenure_dc.advance(minutes=15)
    assert job.attempts == 2
    assert "stall" in job.why()
    assert job.wait() == "resumed at 3"


def test_hours_pass_in_no_time_also_in_a_sync_workflow(tenure_dc: TestDatacenter) -> None:
    begun = tenure_dc.now
    job = tenure_dc.submit(sleeps, minutes=90, timeout=hours(6))
    tenure_dc.advance(hours=1)
    assert job.status().workflows[0].fraction == pytest.approx(0.66, abs=0.02)
    with pytest.raises(JobNotEndedError):
        job.result()
    assert job.wait() == 90
    assert tenure_dc.now - begun == pytest.approx(1.5 * 3600, rel=0.02)


def test_time_stands_still_between_two_calls(tenure_dc: TestDatacenter, tenure_clock: ManualClock) -> None:
    assert tenure_dc.clock is tenure_clock
    now = tenure_dc.now
    job = tenure_dc.submit(sleeps, minutes=1)
    assert (job.state.terminal, tenure_dc.now) == (False, now)
    tenure_dc.advance(seconds=1)
    assert (job.state, tenure_dc.now) == (JobState.RUNNING, now + 1)


def test_a_worker_has_one_name_in_why(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(raises_later)
    with pytest.raises(JobFailed):
        job.wait()
    started = set(re.findall(r"started on (\S+?)[,.;)\s]", job.why() + "\n"))
    failed = set(re.findall(r"failed on (\S+?)[,.:;)\s]", job.why() + "\n"))
    assert started == failed == {"worker-2"}, job.why()


def test_a_failure_says_why_and_how_often_it_was_tried(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(raises, word="broken")
    with pytest.raises(JobFailed, match="ValueError: broken") as failed:
        job.wait()
    assert (failed.value.state, failed.value.job_id, job.attempts) == ("failed", job.id, 2)


def test_a_job_past_its_timeout_is_ended_and_its_workflow_stopped(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(sleeps, minutes=600, timeout=hours(1))
    tenure_dc.advance(minutes=61)
    assert job.state is JobState.TIMED_OUT
    assert tenure_dc.submit(double, n=1).wait() == 2


def test_a_job_without_a_timeout_goes_on_for_as_long_as_it_advances(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(sleeps, minutes=70)
    tenure_dc.advance(minutes=65)  # earlier releases ended it after an hour
    assert job.state is JobState.RUNNING
    assert tenure_dc.job(job.id).deadline is None
    assert "submitted with no deadline" in job.why()
    tenure_dc.advance(minutes=6)
    assert job.state is JobState.COMPLETED


def test_a_cancel_reaches_running_work_at_once(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(sleeps, minutes=100)
    tenure_dc.advance(minutes=5)
    job.cancel("nobody wants it")
    with pytest.raises(JobFailed, match="nobody wants it"):
        job.wait()


def test_a_sync_workflow_that_hangs_for_real_is_given_up_and_tried_again() -> None:
    let_go = threading.Event()

    @workflow(stall=120)
    def stuck(ctx: Any) -> str:
        if ctx.attempt == 1:
            let_go.wait(60)
        return f"attempt {ctx.attempt}"

    datacenter = TestDatacenter(hung_after_s=0.05)
    try:
        job = datacenter.submit(stuck)
        assert job.wait() == "attempt 2"
        assert "abandoned" in job.why()
    finally:
        let_go.set()
        datacenter.close()


def test_work_survives_the_death_of_its_worker_and_of_the_leader(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(hangs_once, at=-1)
    tenure_dc.advance(minutes=2, seconds=30)
    tenure_dc.crash_manager()
    tenure_dc.crash_worker()
    assert job.wait(3600) == "resumed at 2"
    assert job.attempts <= 2


def test_work_whose_worker_dies_each_time_it_runs_fails_for_good_and_says_why() -> None:
    """Its lease is so short that the engine gives it out again before the leader misses the worker."""
    starts: list[int] = []

    @workflow(stall=600)
    async def poison(ctx: Any) -> None:
        starts.append(ctx.attempt)
        await asyncio.sleep(10**6)

    datacenter = TestDatacenter([poison], lease_s=20.0, claim_s=8.0)
    try:
        job = datacenter.submit(poison, max_attempts=3)
        deaths = 0
        for _ in range(300):
            datacenter.advance(seconds=1)
            if len(starts) > deaths:
                datacenter.advance(seconds=5)  # it is seen running, and its delivery counts
                datacenter.crash_worker()
                deaths += 1
            if job.state.terminal:
                break
        with pytest.raises(JobFailed, match="its worker died"):
            job.wait(1)
        assert len(starts) <= 4
        assert "its worker died" in job.why()
    finally:
        datacenter.close()


def test_a_map_gives_results_in_order_and_collects_failures(tenure_dc: TestDatacenter) -> None:
    assert tenure_dc.map(double, [5, 1, 4], in_flight=2) == [10, 2, 8]
    with pytest.raises(JobsFailed, match="1 of 3 jobs") as failed:
        tenure_dc.map(double, [2, 3, 4], max_attempts=1)
    assert list(failed.value.failures) == [1]
    assert failed.value.results == [4, None, 8]
    mixed = tenure_dc.map(double, [3, 4], max_attempts=1, return_failures=True)
    assert isinstance(mixed[0], JobFailed)
    assert mixed[1] == 8


def test_a_map_that_is_interrupted_cancels_what_it_opened(
    tenure_dc: TestDatacenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tenure.client.client.Client.ended", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tenure_dc.map(sleeps, [100, 200])
    assert [row.state for row in tenure_dc.jobs().jobs] == [JobState.CANCELLED] * 2


def test_the_same_submission_is_one_job_and_unknown_ones_are_said(tenure_dc: TestDatacenter) -> None:
    first = tenure_dc.submit(double, n=1, job_id="mine")
    again = tenure_dc.submit(double, n=1, job_id="mine")
    keyed = [tenure_dc.submit(double, n=1, idempotency_key="k").id for _ in range(2)]
    assert (first.id, again.id) == ("mine", "mine")
    assert keyed[0] == keyed[1]
    assert tenure_dc.get("mine", double).wait() == 2
    with pytest.raises(UnknownJobError):
        tenure_dc.get("nobody").status()


def test_events_tell_a_jobs_life_in_order(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(raises, word="x")
    kinds = [event.kind for event in job.events()]
    assert kinds[0] == "JobSubmitted"
    assert kinds.count("AttemptFailed") == 2
    assert "JobEnded" in kinds


def test_what_a_workflow_logs_is_kept_by_attempt(tenure_dc: TestDatacenter) -> None:
    @workflow(max_attempts=2)
    def talks(ctx: Any) -> None:
        ctx.log.info("attempt %d", ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("again")

    job = tenure_dc.submit(talks)
    job.wait()
    assert [line.text for line in job.logs()] == ["attempt 2"]
    assert [line.text for line in job.logs(attempt=1)] == ["attempt 1"]


def test_two_runs_of_one_seed_are_alike() -> None:
    def run() -> list[str]:
        datacenter = TestDatacenter(seed=7)
        try:
            datacenter.submit(hangs_once, at=1).wait()
            return datacenter.said
        finally:
            datacenter.close()

    begun = time.monotonic()
    assert run() == run()
    assert time.monotonic() - begun < 60


@workflow(stall=120)
async def piece(ctx: Any, n: int, minutes: int = 1) -> int:
    async for _ in ctx.track(range(minutes)):
        await asyncio.sleep(60)
    return n * n


@workflow(stall=60, max_attempts=3)
async def sum_of_squares(ctx: Any, upto: int, minutes: int = 1) -> int:
    jobs = [await ctx.submit(piece, n=n, minutes=minutes) for n in range(upto)]
    total = sum([await job.wait() for job in jobs])
    if ctx.attempt == 1 and minutes == 2:
        raise RuntimeError("after its children ended")
    return total


@workflow(stall=60)
def one_square(ctx: Any, n: int) -> int:
    child: int = ctx.submit(piece, n=n, minutes=10, key="the piece").wait()
    return child


def children_of(datacenter: TestDatacenter, job_id: str) -> list[Any]:
    return [row for row in datacenter.jobs(label=f"tenure.parent={job_id}").jobs if row.job_id.startswith(f"{job_id}/")]


def test_a_workflow_waits_for_its_children_without_stalling(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(sum_of_squares, upto=3, minutes=10)
    assert job.wait() == 5
    assert job.attempts == 1  # its own stall threshold is a minute, and it waited for ten
    assert tenure_dc.submit(one_square, n=4, job_id="sync").wait() == 16
    assert [row.job_id for row in children_of(tenure_dc, "sync")] == ["sync/one_square/the piece"]


def test_the_next_attempt_finds_the_children_of_the_last(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(sum_of_squares, upto=3, minutes=2)
    assert (job.wait(), job.attempts) == (5, 2)
    children = children_of(tenure_dc, job.id)
    assert len(children) == 3
    assert {row.attempts for row in children} == {1}


def test_children_are_cancelled_with_their_parent_whoever_leads(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(sum_of_squares, upto=2, minutes=50)
    tenure_dc.advance(minutes=2)
    assert {row.state for row in children_of(tenure_dc, job.id)} == {JobState.RUNNING}
    job.cancel("enough")
    tenure_dc.crash_manager()
    tenure_dc.advance(minutes=1)
    children = children_of(tenure_dc, job.id)
    assert [row.state for row in children] == [JobState.CANCELLED] * 2
    assert job.id in children[0].reason


def test_a_child_that_fails_fails_its_parent_with_its_reason(tenure_dc: TestDatacenter) -> None:
    @workflow(max_attempts=1)
    async def parent(ctx: Any) -> None:
        await (await ctx.submit(raises, word="deep inside")).wait()

    with pytest.raises(JobFailed, match="deep inside"):
        tenure_dc.submit(parent).wait()


@workflow(stall=60)
def counts(ctx: Any, items: int) -> int:
    for _ in ctx.track(range(items), total=items):
        ctx.sleep(1.0)
    ctx.beat(note="done counting")
    return items


def test_watch_tells_progress_and_decisions_to_the_end(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(counts, items=20)
    seen = list(job.watch())
    moving = [one for one in seen if one.steps and not one.decision]
    assert len(moving) > 5
    assert [one.progress for one in moving] == sorted(one.progress for one in moving)
    assert any(one.eta is not None and 0 < one.eta.left_s < 60 for one in moving)
    assert (seen[-1].ended, seen[-1].state, seen[-1].progress) == (True, "completed", 1.0)
    assert any("started on" in one.decision for one in seen)
    assert '"state":"completed"' in seen[-1].json()
    assert "eta" in str(next(one for one in moving if one.eta is not None))
    assert [one.state for one in tenure_dc.get(job.id).watch()] == ["completed"]
