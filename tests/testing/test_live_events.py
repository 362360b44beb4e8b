"""A workflow that runs polls for the signals that came since it began, and a wait takes what a poll brought."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import workflow
from tenure.jobs.states import JobState
from tenure.testing import TestDatacenter


@workflow(max_attempts=1, stall=600)
def polls(ctx: Any) -> list[Any]:
    seen = [len(ctx.events)]
    for _ in ctx.polling(5, 600, "the word to stop"):
        if any(one.name == "stop" for one in ctx.poll_events()):
            break
    seen.append(len(ctx.events))
    return [*seen, [one.payload for one in ctx.events], ctx.wait_event("stop"), ctx.attempt]


@workflow(max_attempts=1, stall=600)
async def polls_async(ctx: Any) -> list[Any]:
    seen = [len(ctx.events)]
    async for _ in ctx.polling(5, 600, "the word to stop"):
        if any(one.name == "stop" for one in await ctx.poll_events()):
            break
    seen.append(len(ctx.events))
    return [*seen, [one.payload for one in ctx.events], await ctx.wait_event("stop"), ctx.attempt]


@pytest.mark.parametrize("kind", [polls, polls_async])
def test_signals_that_come_while_it_runs_are_there_with_the_next_poll(tenure_dc: TestDatacenter, kind: Any) -> None:
    job = tenure_dc.submit(kind)
    tenure_dc.advance(seconds=20)
    assert job.state is JobState.RUNNING
    job.signal("faster", 2)
    tenure_dc.advance(seconds=20)
    assert job.state is JobState.RUNNING
    job.signal("stop", "now")
    job.signal("stop", "now, please")
    tenure_dc.advance(seconds=20)
    assert job.wait() == [0, 3, [2, "now", "now, please"], "now", 1]
    assert job.status().workflows[0].attempt == 1
    assert "suspended" not in job.why()
