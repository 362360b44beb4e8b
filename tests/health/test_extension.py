from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import LimitError
from tenure.health.extension import (
    ExtensionTracker,
    HealthcheckExtensionRequest,
    HealthcheckExtensionResponse,
    extension_bound,
)

FRACTION = st.floats(0, 1)
COUNTER = st.none() | st.integers(0, 50)
TRACKERS = st.builds(
    ExtensionTracker,
    worker_id=st.just("w"),
    base_deadline=st.floats(1, 300),
    min_grant=st.floats(0, 1),
    max_extensions=st.integers(0, 12),
)


@given(TRACKERS, st.lists(st.tuples(FRACTION, COUNTER), max_size=40))
def test_the_total_stays_within_its_bound(tracker: ExtensionTracker, requests: list[tuple[float, int | None]]) -> None:
    granted = [tracker.request_extension("gc_pause", progress, counter=counter) for progress, counter in requests]
    total = math.fsum(answer.extension_seconds for answer in granted)
    assert total <= tracker.bound + 1e-9
    assert tracker.total_extended == pytest.approx(total)
    assert tracker.bound <= 2 * tracker.base_deadline + tracker.max_extensions * tracker.min_grant
    assert sum(answer.granted for answer in granted) <= tracker.max_extensions


@given(TRACKERS, FRACTION, st.lists(st.tuples(FRACTION, COUNTER), max_size=20))
def test_no_progress_earns_no_time(
    tracker: ExtensionTracker, reached: float, requests: list[tuple[float, int | None]]
) -> None:
    """Once granted, nothing at or below what was reached then earns anything, however often it is asked."""
    tracker.request_extension("long_workflow", reached, counter=25)
    total = tracker.total_extended
    for progress, counter in requests:
        stale = None if counter is None else min(counter, 25)
        answer = tracker.request_extension("long_workflow", min(progress, reached), counter=stale)
        assert answer == (False, 0.0)
        assert answer.reason
    assert tracker.total_extended == total


@given(TRACKERS, st.lists(FRACTION, max_size=20), st.text(min_size=1))
def test_a_suspect_earns_no_time_whatever_it_shows(tracker: ExtensionTracker, asks: list[float], why: str) -> None:
    for progress in asks:
        assert not tracker.request_extension("gc_pause", progress, counter=10**6, suspect=why).granted
    assert tracker.total_extended == 0.0


@given(st.floats(0.001, 1e6), st.integers(0, 3_000))
def test_the_bound_is_the_sum_of_the_series(base: float, most: int) -> None:
    bound = extension_bound(base_deadline=base, min_grant=0.0, max_extensions=most)
    assert bound == pytest.approx(base * 2 * (1 - 0.5**most))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_deadline", 0.0),
        ("base_deadline", float("nan")),
        ("min_grant", -1.0),
        ("min_grant", 31.0),
        ("max_extensions", -1),
        ("max_extensions", 2.5),
        ("last_progress", 2.0),
        ("extension_count", -1),
        ("total_extended", float("inf")),
    ],
)
def test_a_tracker_that_makes_no_sense_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(LimitError, match=f"^{field} is"):
        ExtensionTracker("w", **{field: value})


@pytest.mark.parametrize("counter", [-1, 1.5, True])
def test_a_counter_is_a_whole_number(counter: int) -> None:
    with pytest.raises(LimitError, match=r"^counter is"):
        ExtensionTracker("w").request_extension("gc_pause", 0.5, counter=counter)


def test_a_worker_with_one_extension_is_told_that_it_was_the_last() -> None:
    tracker = ExtensionTracker("w", max_extensions=1)
    assert tracker.request_extension("gc_pause", 0.1).warning == "This was the last extension: save your state now"
    assert tracker.remaining_extensions == 0


def test_no_extensions_at_all_is_a_setting() -> None:
    tracker = ExtensionTracker("w", max_extensions=0)
    assert tracker.request_extension("gc_pause", 0.1).reason == "Maximum extensions (0) exceeded"
    assert tracker.bound == 0.0


def test_messages_travel_as_json_and_a_wrong_one_is_refused_there_too() -> None:
    request = HealthcheckExtensionRequest("w", "gc_pause", 0.5, 1_700_000_000.0, 1, 42)
    assert msgspec.json.decode(msgspec.json.encode(request), type=HealthcheckExtensionRequest) == request
    response = HealthcheckExtensionResponse(True, 30.0, 1_700_000_060.0, 4)
    assert msgspec.json.decode(msgspec.json.encode(response), type=HealthcheckExtensionResponse) == response
    wrong = msgspec.json.encode(request).replace(b"0.5", b"1.5")
    with pytest.raises(msgspec.ValidationError, match=r"current_progress is 1\.5, and must be a number from 0 to 1"):
        msgspec.json.decode(wrong, type=HealthcheckExtensionRequest)
