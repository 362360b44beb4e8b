"""How long a workflow takes, learned from the runs that completed. Each rule is also broken, and a story must notice."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from random import Random
from statistics import StatisticsError
from typing import Any

import pytest
from tests.jobs.desk import Desk, spec

from tenure.backoff import Retry
from tenure.jobs import JobBook, learned_rates
from tenure.jobs.eta import Eta, EtaWindow, estimate
from tenure.jobs.learned_rates import FEWEST, Usual, usual, usual_run
from tenure.jobs.states import AttemptCause

WORKFLOW = spec(version="2", retry=Retry(max_attempts=3, delay=1.0, jitter=0.0))
KNOWN = Usual(math.log(100.0), 0.2)


def ran(desk: Desk, seconds: float, *, worker: str = "w1", name: str = "j", **rest: Any) -> None:
    """One job from its start to its end."""
    desk.submit(name, WORKFLOW)
    desk.run(name, worker=worker, **rest)
    desk.at += seconds
    desk.result(name, worker=worker)


def median_s(desk: Desk, worker: str = "") -> float | None:
    found = usual(desk.book.state.rates, WORKFLOW, worker)
    return found.seconds() if found is not None else None


# What is learned


def nothing_is_said_of_work_that_hardly_ran() -> None:
    desk = Desk(at=100.0)
    for number in range(FEWEST - 1):
        ran(desk, 60.0, name=f"j{number}")
        assert median_s(desk) is None
    ran(desk, 60.0, name="last")
    assert median_s(desk) == pytest.approx(60.0)


def each_version_is_learned_by_itself() -> None:
    desk = Desk(at=100.0)
    for number in range(FEWEST):
        ran(desk, 60.0, name=f"j{number}")
    assert usual_run(desk.book.state.rates, "w", "2") is not None
    assert usual_run(desk.book.state.rates, "w", "3") is None


def an_attempt_that_may_have_gone_on_from_a_checkpoint_teaches_nothing() -> None:
    desk = Desk(at=100.0)
    for number in range(FEWEST):
        desk.submit(f"j{number}", WORKFLOW)
        desk.run(f"j{number}", worker="w1")
        desk.at += 50.0
        desk.fail(f"j{number}", cause=AttemptCause.CRASH, worker="w1", mark=7)
        desk.at += 2.0
        desk.run(f"j{number}", attempt=2, worker="w1")
        desk.at += 1.0
        desk.result(f"j{number}", attempt=2, worker="w1")
        ran(desk, 1.0, name=f"k{number}", delivery=2)
    assert desk.book.state.rates.workflows == {}


def a_slow_worker_is_known_to_be_slow() -> None:
    desk = Desk(at=100.0)
    for number in range(60):
        slow = number % 3 == 0
        ran(desk, 200.0 if slow else 50.0, worker="slow" if slow else "fast", name=f"j{number}")
    assert median_s(desk, "slow") == pytest.approx(200.0, rel=0.2)
    assert median_s(desk, "fast") == pytest.approx(50.0, rel=0.2)


def a_change_is_followed() -> None:
    desk = Desk(at=100.0)
    for number in range(200):
        ran(desk, 60.0, name=f"j{number}")
    for number in range(150):
        ran(desk, 240.0, name=f"k{number}")
    assert median_s(desk, "w1") == pytest.approx(240.0, rel=0.1)


def one_outlier_is_no_trend() -> None:
    desk = Desk(at=100.0)
    random = Random(1)
    for number in range(100):
        ran(desk, 60.0 * math.exp(random.gauss(0, 0.1)), name=f"j{number}")
    ran(desk, 100_000.0, name="outlier")
    assert median_s(desk, "w1") == pytest.approx(60.0, rel=0.1)


def memory_is_bounded_and_the_size_of_the_state_never_too_low() -> None:
    desk = Desk(at=100.0)
    learned_rates.MOST_WORKFLOWS, learned_rates.MOST_WORKERS = 3, 4
    try:
        for number in range(9):
            desk.submit(f"j{number}", spec(f"w{number}"))
            desk.run(f"j{number}", f"w{number}", worker=f"worker-{number}")
            desk.at += 5.0
            desk.result(f"j{number}", f"w{number}", worker=f"worker-{number}")
            assert desk.book.size.total >= len(JobBook.restore(desk.book.snapshot()).snapshot())
    finally:
        learned_rates.MOST_WORKFLOWS, learned_rates.MOST_WORKERS = 1_000, 1_000
    rates = desk.book.state.rates
    assert (list(rates.workflows), len(rates.workers)) == (["w6@", "w7@", "w8@"], 4)


def a_snapshot_and_a_journal_know_the_same() -> None:
    desk = Desk(at=100.0)
    for number in range(12):
        ran(desk, 40.0 + number, worker=f"w{number % 3}", name=f"j{number}")
    again = JobBook()
    again.replay(desk.journal)
    restored = JobBook.restore(desk.book.snapshot())
    assert again.state.rates == restored.state.rates == desk.book.state.rates
    assert [one.count for one in restored.state.rates.workflows.values()] == [12]


# What is estimated


def work_that_does_not_say_how_far_it_is_has_an_end_by_earlier_runs() -> None:
    found = estimate(KNOWN, None, 0.0, lasted_s=0.0, fraction=None)
    assert found == Eta(left_s=100.0, soonest_s=77.4, latest_s=129.2)
    later = estimate(KNOWN, None, 0.0, lasted_s=90.0, fraction=None)
    assert later is not None
    assert 10.0 < later.left_s < 30.0  # of those that last 90 s, half end after 108 s


def work_that_outlived_all_earlier_runs_has_none() -> None:
    assert estimate(KNOWN, None, 0.0, lasted_s=500.0, fraction=None) is None


def watched(pace_s: float, until: float, first: float = 0.0) -> tuple[EtaWindow, float]:
    """An attempt that does a hundredth in `pace_s / 100` seconds. Returns its window and the time."""
    window, steps = EtaWindow((1, 1)), round((until - first) * 100)
    for step in range(steps + 1):
        window.look(step * pace_s / 100, first + step / 100)
    return window, steps * pace_s / 100


def the_own_pace_counts_for_more_the_more_of_it_was_seen() -> None:
    def left(until: float) -> float:
        window, now = watched(200.0, until)
        found = estimate(KNOWN, window, now, lasted_s=now, fraction=until)
        assert found is not None
        return found.left_s / (1 - until)  # as the whole would take

    assert left(0.1) == pytest.approx(150.0, rel=0.02)
    assert left(0.5) == pytest.approx(183.0, rel=0.02)
    window, now = watched(200.0, 0.0)
    first = estimate(KNOWN, window, now, lasted_s=now, fraction=0.0)
    assert first is not None
    assert first.left_s == 100.0


def an_attempt_that_goes_on_from_a_checkpoint_has_shown_little_of_its_pace() -> None:
    window, now = watched(200.0, 0.85, first=0.8)
    found = estimate(KNOWN, window, now, lasted_s=now, fraction=0.85)
    assert found is not None
    assert found.left_s == pytest.approx(0.15 * (100 * 2 / 3 + 200 / 3), rel=0.05)


def without_earlier_runs_only_the_own_pace_counts() -> None:
    window, now = watched(200.0, 0.5)
    assert estimate(None, window, now, lasted_s=now, fraction=0.5) == window.eta(now, 0.5)
    assert estimate(None, None, now, lasted_s=now, fraction=None) is None


def after_a_hundred_completions_the_estimate_is_within_a_fifth_on_median() -> None:
    """Ten workers of speeds from 0.4 to 2.5, and durations that spread by a fifth."""
    random = Random(7)
    speeds = {f"w{number}": math.exp(random.uniform(math.log(0.4), math.log(2.5))) for number in range(10)}
    desk, off = Desk(at=100.0), []
    for number in range(300):
        worker = random.choice(list(speeds))
        seconds = 600.0 * speeds[worker] * math.exp(random.gauss(0, 0.2))
        expected = median_s(desk, worker)
        if number >= 100:
            assert expected is not None
            off.append(abs(expected - seconds) / seconds)
        ran(desk, seconds, worker=worker, name=f"j{number}")
    assert statistics.median(off) <= 0.2


STORIES: tuple[Callable[[], None], ...] = (
    nothing_is_said_of_work_that_hardly_ran,
    each_version_is_learned_by_itself,
    an_attempt_that_may_have_gone_on_from_a_checkpoint_teaches_nothing,
    a_slow_worker_is_known_to_be_slow,
    a_change_is_followed,
    one_outlier_is_no_trend,
    memory_is_bounded_and_the_size_of_the_state_never_too_low,
    a_snapshot_and_a_journal_know_the_same,
    work_that_does_not_say_how_far_it_is_has_an_end_by_earlier_runs,
    work_that_outlived_all_earlier_runs_has_none,
    the_own_pace_counts_for_more_the_more_of_it_was_seen,
    an_attempt_that_goes_on_from_a_checkpoint_has_shown_little_of_its_pace,
    without_earlier_runs_only_the_own_pace_counts,
    after_a_hundred_completions_the_estimate_is_within_a_fifth_on_median,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_rates_are_learned(story: Callable[[], None]) -> None:
    story()


# Each rule broken


def workers_all_alike(rate: Any, pace: Any, log_s: float) -> None:
    sound_step(rate, pace, log_s)
    pace.log_factor = 0.0


sound_step = learned_rates.step
MUTANTS: dict[str, tuple[str, Any]] = {
    "workers are all alike": ("step", workers_all_alike),
    "all versions are one": ("rate_key", lambda function, version: function),
    "it speaks after one run": ("FEWEST", 1),
    "nothing is ever forgotten": ("MEMORY", 10**9),
    "an outlier counts whole": ("CLIP", 10**9),
    "it knows the end of everything": ("OUTLIVED", 1.1),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_rates, *MUTANTS[mutant])
    found = []
    for story in STORIES:
        try:
            story()
        except (AssertionError, StatisticsError):
            found.append(story.__name__)
    assert found, "every story was still true"
