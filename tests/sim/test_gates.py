"""The real gates and managers in a simulated world: what was accepted ends everywhere, once, in time, whatever fails."""

from __future__ import annotations

import os

import pytest
from tests.sim import broken_gates

from tenure.sim import Scenario, run_one, run_seeds
from tenure.sim.scenarios.gates import CalmGates, Gates, LostJournal, ManyGates

SOAK = os.environ.get("TENURE_SOAK") == "1"
CHUNK = 100
CHUNKS = 100 if SOAK else 10


def test_the_first_seeds_keep_every_promise() -> None:
    report = run_seeds(Gates, range(15))
    report.require_ok()
    assert report.faults > 15


def test_without_faults_a_deadline_and_a_cancel_take_a_round_trip() -> None:
    run_seeds(CalmGates, range(25)).require_ok()


def test_runs_are_not_idle() -> None:
    """Jobs complete, fail, are cancelled and time out; gates take over from each other."""
    traces = ["\n".join(run_one(Gates, seed, keep_trace=True).trace) for seed in range(12)]
    assert sum("is accepted" in trace for trace in traces) == len(traces)
    assert sum("is cancelled" in trace for trace in traces) > 3
    assert sum(trace.count("g1:1#") > 0 and trace.count("leads with epoch 2") > 0 for trace in traces) > 3


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_thousand_schedules_keep_every_promise(chunk: int) -> None:
    report = run_seeds(Gates, range(chunk * CHUNK, (chunk + 1) * CHUNK))
    print(report.summary())
    report.require_ok()
    assert report.runs == CHUNK


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_five_datacenters_three_gates_and_hundreds_of_jobs(seed: int) -> None:
    run_seeds(ManyGates, [seed]).require_ok()


@pytest.mark.slow
def test_gates_that_lose_their_journal_learn_it_back_from_the_datacenters() -> None:
    run_seeds(LostJournal, range(1_000 if SOAK else 40)).require_ok()


@pytest.mark.slow
@pytest.mark.parametrize("name", broken_gates.MUTANTS)
def test_a_broken_rule_is_found(name: str) -> None:
    scenario: type[Scenario] = getattr(broken_gates, name)
    report = run_seeds(scenario, broken_gates.MUTANTS[name])
    assert report.failures, f"{name} was not found in {report.runs} seeds"
    print(report.failures[0].failure)
