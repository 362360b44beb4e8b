"""The estimate of when work will be done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.jobs.eta import MOST_SAMPLES, Eta, EtaWindow, eta_in_words


def watched(fractions: list[float], step_s: float = 1.0) -> tuple[EtaWindow, float]:
    window = EtaWindow((1, 1))
    for number, fraction in enumerate(fractions):
        window.look(number * step_s, fraction)
    return window, (len(fractions) - 1) * step_s


def test_a_steady_rate_gives_a_narrow_band() -> None:
    window, now = watched([0.0, 0.1, 0.2, 0.3, 0.4])
    assert window.eta(now, 0.4) == Eta(left_s=6.0, soonest_s=6.0, latest_s=6.0)


def test_an_uneven_rate_gives_a_wide_one_and_a_standstill_leaves_the_end_open() -> None:
    window, now = watched([0.0, 0.1, 0.3, 0.4])
    assert window.eta(now, 0.4) == Eta(left_s=4.5, soonest_s=3.0, latest_s=6.0)
    window, now = watched([0.0, 0.2, 0.2, 0.4])
    found = window.eta(now, 0.4)
    assert found is not None
    assert (found.soonest_s, found.latest_s) == (3.0, None)
    assert eta_in_words(found) == "eta 4 s (3 s to open)"


@pytest.mark.parametrize("fractions", [[], [0.1], [0.1, 0.1, 0.1], [0.5, 0.9, 1.0]])
def test_nothing_is_said_before_it_can_be_known_or_when_it_is_done(fractions: list[float]) -> None:
    window, now = watched(fractions)
    assert window.eta(now, fractions[-1] if fractions else 0.0) is None


@given(st.lists(st.floats(0, 1), min_size=3, max_size=200))
def test_the_estimate_lies_in_its_band_and_memory_is_bounded(fractions: list[float]) -> None:
    window, now = watched(sorted(fractions))
    found = window.eta(now + 1, max(fractions))
    assert len(window.samples) <= MOST_SAMPLES
    if found is not None:
        assert found.soonest_s <= found.left_s + 0.1
        assert found.latest_s is None or found.left_s <= found.latest_s + 0.1
