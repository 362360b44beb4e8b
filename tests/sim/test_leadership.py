"""Election and journal under faults: thousands of seeds keep every promise, and each broken rule is found."""

from __future__ import annotations

import pytest
from tests.sim import broken
from tests.soak import sized
from tests.worlds.leadership.scenario import Leadership

from tenure.sim import Scenario, run_one, run_seeds, story

CHUNK = 1_000
CHUNKS = sized("times 1,000 schedules of elections and journals", short=1, long=100)
"""The rule that is hardest to find is found within one of them (`RULES`)."""


def test_the_first_seeds_keep_every_promise() -> None:
    report = run_seeds(Leadership, range(150))
    report.require_ok()
    assert report.faults > 300


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_thousand_seeds_keep_every_promise(chunk: int) -> None:
    report = run_seeds(Leadership, range(chunk * CHUNK, (chunk + 1) * CHUNK))
    print(report.summary())
    report.require_ok()
    assert report.runs == CHUNK


def test_a_run_is_not_idle_leaders_change_and_clients_are_served() -> None:
    outcomes = [run_one(Leadership, seed, keep_trace=True) for seed in range(120)]
    traces = ["\n".join(outcome.trace) for outcome in outcomes]
    assert sum(trace.count("leads epoch") > 1 for trace in traces) > 40
    assert sum(trace.count("acknowledged at") for trace in traces) > 120 * 8
    for refusal in ("StaleEpochError", "SequenceConflictError", "TermLostError", "StaleSnapshotError"):
        assert any(refusal in trace for trace in traces), f"no run shows {refusal}"


# What the observer says of it, and the most seeds that finding it may take.
RULES = {
    "RefreshingExpect": ("decided entry", 300),
    "IgnoringEpoch": ("was written by", 300),
    "SteppingDownLate": ("take themselves for the leader", 1_000),
    "NeverSteppingDown": ("take themselves for the leader", 300),
    "SleepingThrough": ("take themselves for the leader", 1_000),
    "AnsweringEarly": ("was acknowledged at", 300),
    "Forgetting": ("was written twice", 300),
    "SnapshottingTheFuture": ("", 1_000),
    "EpochBlind": ("follows epoch", 300),
    "SequenceBlind": ("", 1_000),
    "BackwardSnapshots": ("replaced one at", 300),
    "RestartingEpochs": ("", 300),
    "GenerousElection": ("", 300),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_found_within_few_seeds_and_shrunk(name: str) -> None:
    scenario: type[Scenario] = getattr(broken, name)
    promise, seeds = RULES[name]
    report = run_seeds(scenario, range(seeds))
    assert report.failures, f"{name} was not found in {seeds} seeds"
    (failure,) = report.failures
    assert failure.failure.startswith("InvariantError")
    assert promise in failure.failure
    told = story(failure)
    assert f"tests/sim/broken.py:{name} --seed {failure.seed}" in told
    # No fault of the smallest schedule can be left out.
    for left_out in failure.chosen:
        fewer = [number for number in failure.chosen if number != left_out]
        assert not run_one(scenario, failure.seed, only=fewer).failure.startswith("InvariantError")


def test_the_same_seeds_pass_when_the_rule_is_kept() -> None:
    """A counterexample speaks of its bug and not of its seed."""
    for name in ("RefreshingExpect", "SteppingDownLate", "EpochBlind"):
        (failure,) = run_seeds(getattr(broken, name), range(RULES[name][1])).failures
        assert run_one(Leadership, failure.seed, only=failure.chosen).ok
