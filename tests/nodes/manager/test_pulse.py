"""Counts of the last minutes, in equal steps."""

from __future__ import annotations

from tenure.jobs.attempt_results import AttemptFailed
from tenure.jobs.states import AttemptCause
from tenure.nodes.manager.alarms import STEP_S, STEPS, PulseCounter


def failed(at: float) -> AttemptFailed:
    return AttemptFailed(at=at, job_id="j", workflow="w", attempt=1, cause=AttemptCause.ERROR, error="no")


def test_events_are_counted_in_the_step_of_their_time_and_steps_between_are_empty() -> None:
    pulse = PulseCounter()
    pulse.count([failed(1_000.0), failed(1_001.0)])
    pulse.count([failed(1_000.0 + 2 * STEP_S)])
    read = pulse.read(1_000.0 + 2 * STEP_S)
    assert read.failed == (2, 0, 1)
    assert read.completed == (0, 0, 0)
    assert read.until == 1_000.0 + 3 * STEP_S


def test_what_waits_and_runs_stays_until_somebody_says_otherwise() -> None:
    pulse = PulseCounter()
    pulse.level(1_000.0, waiting=3, running=2)
    pulse.level(1_000.0 + 3 * STEP_S, waiting=0, running=5)
    read = pulse.read(1_000.0 + 3 * STEP_S)
    assert (read.waiting, read.running) == ((3, 3, 3, 0), (2, 2, 2, 5))


def test_only_the_last_minutes_are_kept_and_a_long_rest_costs_nothing() -> None:
    pulse = PulseCounter()
    pulse.count([failed(1_000.0)])
    read = pulse.read(1_000_000_000.0)
    assert len(read.failed) <= STEPS
    assert sum(read.failed) == 0
    pulse.count([failed(5.0)])  # a clock that was set back
    assert sum(pulse.read(1_000_000_000.0).failed) == 1
