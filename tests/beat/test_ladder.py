"""The ladder of timeouts: which sets can work together, and how a broken one is explained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.beat.ladder import Ladder
from tenure.beat.lease import LeaseExtenderConfig, adapted_interval, derived_interval, remembered_gap
from tenure.errors import LadderError

seconds = st.floats(0.001, 40_000)


def test_a_broken_ladder_is_drawn_with_its_numbers_and_the_remedy() -> None:
    with pytest.raises(LadderError) as caught:
        Ladder(visibility_timeout=60, watchdog_threshold=720, watchdog_interval=60, wait_time_seconds=30).check()
    assert str(caught.value) == (
        "these timeouts cannot work together:\n"
        "  watchdog_threshold         720 s\n"
        "  watchdog_interval           60 s\n"
        "  visibility_timeout          60 s\n"
        "  wait_time_seconds           30 s\n"
        "- visibility_timeout > watchdog_threshold + max_processing_time is broken: 720 is not below 60. The message would be "
        "delivered again before its stuck holder is killed: raise visibility_timeout above 720, or lower "
        "watchdog_threshold below 60"
    )


RUNGS = ("max_processing_time", "watchdog_threshold", "stuck_threshold", "job_timeout")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 3), (1, 2), (2, 3), (1, 3)])
def test_each_rung_of_the_design_has_to_be_below_the_next_one_that_is_known(low: int, high: int) -> None:
    names = {RUNGS[low]: 200.0, RUNGS[high]: 200.0}
    broken = Ladder(visibility_timeout=40_000, **names).broken()  # type: ignore[arg-type]
    assert f"{RUNGS[low]} < {RUNGS[high]}" in [rule.text for rule in broken]
    names[RUNGS[high]] = 200.1
    assert Ladder(visibility_timeout=40_000, **names).broken() == []  # type: ignore[arg-type]


def test_several_faults_are_all_told_at_once() -> None:
    broken = Ladder(
        visibility_timeout=50, extension_interval=60, extension=60, readiness_threshold=5, wait_time_seconds=5
    ).broken()
    assert [rule.text for rule in broken] == [
        "extension_interval < visibility_timeout",
        "extension_interval < extension",
        "wait_time_seconds < readiness_threshold",
    ]


@given(lease=seconds)
def test_the_ladder_that_is_fitted_to_a_lease_stands_for_any_lease(lease: float) -> None:
    fitted = LeaseExtenderConfig().for_lease(lease)
    Ladder(visibility_timeout=lease, extension_interval=fitted.interval, extension=fitted.extension).check()
    assert fitted.interval == derived_interval(lease) < fitted.extension == lease


@given(lease=seconds, interval=seconds, gap=st.floats(0, 40_000))
def test_the_adapted_interval_lets_the_same_gap_fit_again_or_renews_on_every_beat(
    lease: float, interval: float, gap: float
) -> None:
    adapted = adapted_interval(interval, lease, gap)
    assert 0 <= adapted <= interval
    assert adapted == 0 or adapted + gap <= lease * 1.000001


def test_a_long_gap_is_remembered_at_once_and_forgotten_slowly() -> None:
    gap = remembered_gap(0, 40)
    assert gap == 40
    for _ in range(50):
        gap = remembered_gap(gap, 1)
    assert 1 < gap < 1.5
