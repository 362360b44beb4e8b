"""A workflow with `stall="learn"`, in a whole datacenter on a manual clock: what its attempts show becomes its threshold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import workflow
from tenure.errors import LimitError
from tenure.jobs import learned_gaps
from tenure.jobs.states import JobState
from tenure.testing import TestDatacenter

FEWEST = 80


async def wait(ctx: Any, pause_s: float) -> None:
    for _ in range(3):
        await asyncio.sleep(pause_s)
        ctx.beat()
    if pause_s == 0 and ctx.attempt == 1:
        await asyncio.sleep(10**6)  # it hangs


@workflow(stall="learn", max_attempts=2)
async def learns(ctx: Any, pause_s: float) -> int:
    await wait(ctx, pause_s)
    return ctx.attempt  # type: ignore[no-any-return]


@workflow(max_attempts=2)
async def does_not(ctx: Any, pause_s: float) -> int:
    await wait(ctx, pause_s)
    return ctx.attempt  # type: ignore[no-any-return]


def teach(datacenter: TestDatacenter, kind: Any) -> None:
    jobs = [datacenter.submit(kind, pause_s=3.0 + number % 4) for number in range(FEWEST)]
    datacenter.advance(minutes=10)
    assert {job.state for job in jobs} == {JobState.COMPLETED}


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_gaps, "FEWEST", FEWEST)


def test_a_hang_is_found_at_the_learned_threshold_and_the_retry_has_the_set_one(tenure_dc: TestDatacenter) -> None:
    tenure_dc.submit(learns, pause_s=4.0)  # it leaves with its submission: nobody has registered what the work asks for
    tenure_dc.advance(minutes=1)
    early = tenure_dc.submit(learns, pause_s=4.0)
    tenure_dc.advance(minutes=1)
    assert "The set stall threshold holds: its record is too short: 1 of 80 attempts" in early.why()
    teach(tenure_dc, learns)
    [line] = tenure_dc.thresholds("learns").thresholds
    assert line.learns
    assert line.learned_s is not None
    assert 9.0 <= line.learned_s == line.holds_s < 60.0 < line.set_s == 300.0
    job = tenure_dc.submit(learns, pause_s=0.0)
    tenure_dc.advance(seconds=line.learned_s + 30)
    assert (job.state, job.attempts, job.result()) == (JobState.COMPLETED, 2, 2)
    why = job.why()
    assert f"It may be silent for {line.learned_s:g} s: learned from {FEWEST + 2} attempts" in why
    assert f"allowed are {line.learned_s:g} s (learned)" in why
    assert "The set stall threshold holds: an earlier attempt of it was ended for its silence" in why
    [line] = tenure_dc.thresholds("learns").thresholds
    assert (line.found, line.wrong) == (1, 0)
    assert line.last_found is not None
    assert line.last_found.text.endswith("the set threshold ends it at 300 s: right")


def test_without_the_word_it_is_only_compared_in_the_shadow(tenure_dc: TestDatacenter) -> None:
    teach(tenure_dc, does_not)
    slow = tenure_dc.submit(does_not, pause_s=100.0)
    tenure_dc.advance(minutes=10)
    assert (slow.state, slow.attempts) == (JobState.COMPLETED, 1), "the set threshold held"
    [line] = tenure_dc.thresholds().thresholds
    assert line.last_wrong is not None
    assert line.last_wrong.text.endswith("it went on at 100 s: wrong")
    assert (line.wrong, line.holds_s) == (1, 300.0)


def test_a_word_that_is_no_threshold_is_refused() -> None:
    with pytest.raises(LimitError, match="learn"):
        workflow(stall="forget")(learns.function)  # type: ignore[call-overload]
