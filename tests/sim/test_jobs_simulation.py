"""Managers, workers, gates and clients under random faults: 10,000 schedules, and twenty times that in a soak."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tenure.jobs.rules import Rules
from tenure.sim.jobs.big_world import LEAST_EVENTS, simulate
from tenure.sim.jobs.mutants import NoWriteOnceTerminal, StaleTokensObeyed

CHUNK = 1_000
CHUNKS = 200 if os.environ.get("TENURE_SOAK") else 10


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_schedule_breaks_a_promise(chunk: int) -> None:
    ended: Counter[str] = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        outcome = simulate(seed)
        assert not outcome.broken, str(outcome)
        assert outcome.events >= LEAST_EVENTS
        ended.update(outcome.ended)
    # A thousand schedules that never time out, fail or cancel would prove little.
    assert min(ended[state] for state in ("completed", "failed", "cancelled", "timed_out")) > 100, ended


def test_some_schedules_in_seconds() -> None:
    for seed in range(100):
        outcome = simulate(seed)
        assert not outcome.broken, str(outcome)


def test_a_seed_decides_the_whole_run() -> None:
    first, second = simulate(7, story=True), simulate(7, story=True)
    assert first.lines == second.lines
    assert len(first.lines) > 50
    assert simulate(8, story=True).lines != first.lines


@pytest.mark.parametrize("rules", [NoWriteOnceTerminal(), StaleTokensObeyed()], ids=lambda rules: type(rules).__name__)
def test_a_ruling_left_out_breaks_a_promise_here_too(rules: Rules) -> None:
    broken = next(
        (outcome for outcome in (simulate(seed, rules=rules) for seed in range(2_000)) if outcome.broken), None
    )
    assert broken is not None
    assert "replay: python -m tenure.sim.jobs simulate --seeds" in str(broken)
