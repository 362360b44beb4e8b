"""A worker that an operator drains with a time limit: what runs there leaves when it has just saved, and the loss is told before and after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import workflow
from tenure.jobs.states import JobState
from tenure.nodes.manager.steering import Departures
from tenure.testing import TestDatacenter


@workflow(stall=600)
async def saves(ctx: Any, every_s: float) -> int:
    done = ctx.resume or 0
    for step in range(done, 10):
        await asyncio.sleep(every_s)
        await ctx.checkpoint(step + 1)
    return done  # type: ignore[no-any-return]


def running_on(datacenter: TestDatacenter) -> str:
    [worker] = datacenter.nodes().workers
    return worker.name


def test_an_attempt_leaves_when_it_has_just_saved_and_goes_on_from_there(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(saves, every_s=60.0)
    tenure_dc.advance(seconds=170)
    done = tenure_dc.drain(running_on(tenure_dc), "its machine is reclaimed", within_s=300)
    assert done.reason.startswith("1 attempts run there, with ")
    [worker] = tenure_dc.nodes().workers
    assert 40 < worker.loss_s < 60
    assert worker.leaves_by > 0
    tenure_dc.advance(seconds=60)
    [worker] = tenure_dc.nodes().workers
    assert (worker.running, worker.moved) == (0, 1), "it has left with three checkpoints"
    assert worker.lost_s <= 6.0
    assert "away from" in job.why()
    tenure_dc.undrain(worker.name)
    tenure_dc.advance(minutes=15)
    assert (job.state, job.result()) == (JobState.COMPLETED, 3)


def test_one_whose_next_mark_comes_too_late_goes_now_and_why_tells_what_it_lost(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(saves, every_s=200.0)
    tenure_dc.advance(seconds=450)
    tenure_dc.drain(running_on(tenure_dc), within_s=60)
    tenure_dc.advance(seconds=15)
    [worker] = tenure_dc.nodes().workers
    assert worker.moved == 1
    assert 40 < worker.lost_s < 70
    assert "s of work were lost" in job.why()
    assert "after it last saved" in job.why()


def test_one_job_that_cannot_be_asked_keeps_no_other_from_leaving(
    tenure_dc: TestDatacenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Departures.ask

    async def fails_for_one(self: Departures, name: Any, *rest: Any) -> None:
        if name[0] == "broken":
            raise ZeroDivisionError("a fault of ours")
        await ask(self, name, *rest)

    monkeypatch.setattr(Departures, "ask", fails_for_one)
    for name in ("broken", "other"):  # slots take both at once
        tenure_dc.submit(saves, job_id=name, every_s=60.0)
    tenure_dc.advance(seconds=170)
    tenure_dc.drain(running_on(tenure_dc), within_s=300)
    tenure_dc.advance(seconds=60)
    [worker] = tenure_dc.nodes().workers
    assert (worker.running, worker.moved) == (1, 1)


def test_without_a_limit_it_runs_to_its_end(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(saves, every_s=20.0)
    tenure_dc.advance(seconds=30)
    tenure_dc.drain(running_on(tenure_dc))
    tenure_dc.advance(minutes=5)
    assert (job.state, job.attempts) == (JobState.COMPLETED, 1)
