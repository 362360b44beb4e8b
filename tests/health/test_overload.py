from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import LimitError
from tenure.health.overload import Bounds, HybridOverloadDetector, OverloadConfig, OverloadState, RequestKind, why_shed


def feed(detector: HybridOverloadDetector, latency_ms: float, rounds: int, **load: float) -> OverloadState:
    for _ in range(rounds):
        detector.record_latency(latency_ms)
        detector.assess(**load)
    return detector.state


def test_a_quiet_node_is_healthy() -> None:
    detector = HybridOverloadDetector()
    assert detector.assess() == ("healthy", "all signals are calm")
    assert feed(detector, 5.0, 50) == "healthy"


@pytest.mark.parametrize(
    ("latency", "state"), [(199.0, "healthy"), (200.0, "busy"), (500.0, "stressed"), (2_000.0, "overloaded")]
)
def test_absolute_bounds_hold_from_the_first_samples(latency: float, state: str) -> None:
    assert feed(HybridOverloadDetector(), latency, 5) == state


@pytest.mark.parametrize(("factor", "state"), [(1.4, "healthy"), (1.6, "busy"), (2.2, "stressed"), (4.5, "overloaded")])
def test_latency_is_judged_against_its_own_baseline(factor: float, state: str) -> None:
    detector = HybridOverloadDetector(OverloadConfig(latency_ms=Bounds(1e6, 1e6, 1e6), trend_ratio=100.0))
    feed(detector, 40.0, 100)
    assert feed(detector, 40.0 * factor, 12) == state


@pytest.mark.parametrize(("trend_ratio", "state"), [(100.0, "busy"), (1.2, "stressed")])
def test_a_rising_trend_is_one_step_worse(trend_ratio: float, state: str) -> None:
    detector = HybridOverloadDetector(OverloadConfig(latency_ms=Bounds(1e6, 1e6, 1e6), trend_ratio=trend_ratio))
    feed(detector, 40.0, 100)
    for latency in (44, 48, 52, 56, 60, 64, 68, 72, 76, 80, 84, 88):
        feed(detector, float(latency), 1)
    assert detector.state == state
    if state == "stressed":
        detector.record_latency(92.0)
        assert detector.assess().reason.endswith("and rising")


def test_milliseconds_are_no_overload_whatever_their_ratio() -> None:
    detector = HybridOverloadDetector()
    feed(detector, 1.0, 100)
    assert feed(detector, 15.0, 50) == "healthy"


@pytest.mark.parametrize("what", ["cpu_percent", "memory_percent"])
@pytest.mark.parametrize(("percent", "state"), [(69, "healthy"), (70, "busy"), (85, "stressed"), (95, "overloaded")])
def test_cpu_and_memory_have_bounds_of_their_own(what: str, percent: float, state: str) -> None:
    assert feed(HybridOverloadDetector(), 5.0, 3, **{what: percent}) == state


def test_the_worst_signal_wins_and_is_named() -> None:
    detector = HybridOverloadDetector()
    feed(detector, 250.0, 5, cpu_percent=75.0)
    assessment = detector.assess(cpu_percent=75.0, memory_percent=97.0)
    assert assessment == ("busy", "memory at 97 %")  # named at once; believed when it is seen again
    assert detector.assess(cpu_percent=75.0, memory_percent=97.0).state == "overloaded"


def test_one_spike_changes_nothing() -> None:
    detector = HybridOverloadDetector()
    feed(detector, 5.0, 50)
    assert detector.assess(cpu_percent=99.0).state == "healthy"
    assert detector.assess(cpu_percent=20.0).state == "healthy"
    assert detector.assess(cpu_percent=99.0).state == "healthy"


@pytest.mark.parametrize("before", [0, 1, 50])
def test_one_slow_request_on_a_quiet_node_is_no_overload(before: int) -> None:
    detector = HybridOverloadDetector()
    feed(detector, 5.0, before)
    detector.record_latency(60_000.0)
    assert [detector.assess().state for _ in range(20)] == ["healthy"] * 20


def test_it_calms_down_step_by_step() -> None:
    detector = HybridOverloadDetector()
    feed(detector, 5.0, 3, cpu_percent=99.0)
    states = [detector.assess(cpu_percent=10.0).state for _ in range(15)]
    assert states == ["overloaded"] * 4 + ["stressed"] * 5 + ["busy"] * 5 + ["healthy"]


def test_load_that_wavers_around_a_bound_does_not_flap() -> None:
    detector = HybridOverloadDetector()
    states = [detector.assess(cpu_percent=84.0 if turn % 2 else 86.0).state for turn in range(100)]
    assert sum(a != b for a, b in itertools.pairwise(states)) <= 1


def test_a_node_that_sheds_everything_and_sees_no_latency_opens_again() -> None:
    detector = HybridOverloadDetector()
    feed(detector, 5_000.0, 20)
    assert detector.state == "overloaded"
    states = [detector.assess().state for _ in range(40)]
    assert states[-1] == "healthy"


def test_a_changed_workload_becomes_normal_in_the_end() -> None:
    detector = HybridOverloadDetector()
    feed(detector, 30.0, 200)
    assert feed(detector, 130.0, 15) == "overloaded"
    assert feed(detector, 130.0, 3_000) == "healthy"
    assert detector.baseline_ms > 80.0


def test_an_overload_does_not_become_normal_within_seconds() -> None:
    detector = HybridOverloadDetector()
    feed(detector, 30.0, 200)
    assert feed(detector, 190.0, 60) == "overloaded"


def test_a_thousand_slow_requests_in_one_second_are_one_bad_second() -> None:
    detector = HybridOverloadDetector()
    feed(detector, 30.0, 200)
    for _ in range(1_000):
        detector.record_latency(150.0)
    detector.assess()
    assert detector.baseline_ms == pytest.approx(30.0, abs=0.1)
    assert detector.state == "healthy"


@given(st.lists(st.tuples(st.floats(0, 5_000), st.floats(0, 100), st.floats(0, 100)), max_size=80))
def test_it_is_never_worse_than_what_it_saw_and_always_comes_back(samples: list[tuple[float, float, float]]) -> None:
    detector, worst = HybridOverloadDetector(), 0
    for latency, cpu, memory in samples:
        detector.record_latency(latency)
        before = list(OverloadState).index(detector.state)
        reason = detector.assess(cpu, memory).reason
        assert list(OverloadState).index(detector.state) <= before or reason != "all signals are calm"
        worst = max(worst, *(level for level, _ in detector.signals(cpu, memory)))
        assert list(OverloadState).index(detector.state) <= worst
    for _ in range(30):  # nothing to do: samples are forgotten, then three steps of five
        detector.assess()
    assert detector.state == "healthy"


@pytest.mark.parametrize("wrong", [float("nan"), -1.0, float("inf")])
def test_samples_that_are_no_numbers_are_refused(wrong: float) -> None:
    detector = HybridOverloadDetector()
    for call in (detector.record_latency, detector.assess, lambda value: detector.assess(memory_percent=value)):
        with pytest.raises(LimitError):
            call(wrong)
    assert detector.state == "healthy"


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu_percent": Bounds(90, 80, 95)},
        {"latency_ms": Bounds(1, 2, float("nan"))},
        {"recent": 1},
        {"baseline_weight": 1.5},
        {"calm_after": 0},
        {"trend_ratio": 0.5},
    ],
)
def test_settings_that_contradict_themselves_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(LimitError):
        OverloadConfig(**wrong)


@pytest.mark.parametrize(
    ("state", "taken"),
    [
        (OverloadState.HEALTHY, [-5, 0, 5]),
        (OverloadState.BUSY, [0, 5]),
        (OverloadState.STRESSED, [5]),
        (OverloadState.OVERLOADED, []),
    ],
)
def test_the_worse_it_is_the_higher_the_priority_that_still_passes(state: OverloadState, taken: list[int]) -> None:
    assert [priority for priority in (-5, 0, 5) if not why_shed(state, RequestKind.SUBMIT, priority)] == taken


def test_cancels_results_reports_and_timeouts_always_pass() -> None:
    assert not any(why_shed(state, RequestKind.VITAL) for state in OverloadState)


def test_what_only_informs_is_turned_away_last() -> None:
    shed = [state for state in OverloadState if why_shed(state, RequestKind.INFORM)]
    assert shed == [OverloadState.OVERLOADED]
    assert "priority 1 and above; this one has 0" in why_shed(OverloadState.STRESSED, RequestKind.SUBMIT)
