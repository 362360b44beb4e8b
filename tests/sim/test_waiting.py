"""Work that waits, in datacenters of real nodes: no wake-up is lost, and no step that was acknowledged runs again, whatever fails."""

from __future__ import annotations

import pytest
from tests.sim import broken_waiting
from tests.soak import sized
from tests.worlds.datacenter.waiting import STUMBLES, Waiting
from tests.worlds.patching import first_failure

from tenure.jobs.states import JobState
from tenure.sim import run_seeds, story

SEEDS = sized("schedules of work that waits", short=60, long=5_000)
EXPECTED = (
    *(f"play {play}" for play in STUMBLES),
    *(f"JobEnded {state}" for state in (JobState.COMPLETED, JobState.CANCELLED, JobState.TIMED_OUT)),
    *("Suspended waits", "Suspended over", "Woken", "SignalReceived", "ChildEnded", "WorkerEvicted", "LeaderElected"),
)


@pytest.mark.slow
def test_work_that_waits_ends_whatever_fails_and_runs_no_acknowledged_step_again() -> None:
    report = run_seeds(Waiting, range(SEEDS))
    print(report.summary())
    report.require_ok()
    assert not [what for what in EXPECTED if not report.tally[what]]
    # Signals and ends of children that came before the journal knew of the wait.
    assert report.tally["Suspended over"] > SEEDS / 4


@pytest.mark.parametrize("seed", [61, 64])
def test_a_seed_that_once_broke_a_promise_keeps_it(seed: int) -> None:
    """At 64 a worker that had slept claimed its own work again, and was told to stop the delivery that it had lost: it stopped the new one, for good."""
    run_seeds(Waiting, [seed]).require_ok()


# What the observer says of it, and the most seeds that finding it may take.
RULES: dict[str, tuple[str, int]] = {
    "ForgetsSteps": ("ran again after its result was acknowledged", 5),
    "AcknowledgesSteps": ("ran again after its result was acknowledged", 20),
    "WakesByAnything": ("failed", 20),
    "OrdersWhatRanAtOnce": ("failed", 10),
    "SuspendsBlindly": ("has not ended", 40),
    "CountsSignalsTwice": ("was counted twice", 5),
    "TellsNoParent": ("has not ended", 5),
    "ForgetsTimers": ("has not ended", 60),
    "WakesEarly": ("before its time", 10),
    "KeepsTheHolder": ("counts as the holder", 5),
}
KNOWN = {"SuspendsBlindly": (6, 10), "ForgetsTimers": (8, 14), "WakesEarly": (1, 2)}
"""Seeds at which a rule was found that the first seed does not show. They are tried first."""


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_a_forgotten_rule_is_found_within_few_seeds(name: str) -> None:
    promise, seeds = RULES[name]
    found = first_failure(getattr(broken_waiting, name), KNOWN.get(name, ()), seeds)
    assert found is not None, f"{name} was not found in {seeds} seeds"
    assert promise in found.failure
    assert f"tests/sim/broken_waiting.py:{name} --seed {found.seed}" in story(found)


@pytest.mark.slow
def test_the_schedules_made_for_a_forgotten_rule_are_harmless_when_it_is_kept() -> None:
    run_seeds(broken_waiting.Refusals, range(8)).require_ok()
