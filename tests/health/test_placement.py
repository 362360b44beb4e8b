"""Where a job goes: by class, then room, then latency, with loyalty to the last choice, and never where nothing is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.changed import changed

from tenure.errors import LimitError
from tenure.health.placement import CandidateDatacenter, DatacenterHealth, PlacementConfig, SteadyHealth, choose

HEALTHY, BUSY, DEGRADED, UNHEALTHY = (
    DatacenterHealth.HEALTHY,
    DatacenterHealth.BUSY,
    DatacenterHealth.DEGRADED,
    DatacenterHealth.UNHEALTHY,
)


def test_a_better_class_wins_over_room_and_latency() -> None:
    places = [
        CandidateDatacenter("degraded", DEGRADED, 100, 0.001),
        CandidateDatacenter("busy", BUSY, 0, 0.001),
        CandidateDatacenter("healthy", HEALTHY, 1, 0.3),
        CandidateDatacenter("gone", UNHEALTHY, 100, 0.001),
        CandidateDatacenter("new", None, 100, 0.001),
    ]
    choice = choose(places, 5)
    assert choice.chosen == ("healthy", "busy", "degraded")
    assert choice.reasons["gone"] == "it is UNHEALTHY"
    assert choice.reasons["new"] == "nothing is known of it yet"
    assert choice.reasons["healthy"] == "taken: HEALTHY, room for 1, 300 ms away"


def test_within_a_class_room_counts_first_and_then_latency() -> None:
    assert choose(
        [CandidateDatacenter("small", HEALTHY, 3, 0.01), CandidateDatacenter("large", HEALTHY, 9, 0.2)]
    ).chosen == ("large",)
    assert choose(
        [CandidateDatacenter("far", HEALTHY, 3, 0.2), CandidateDatacenter("near", HEALTHY, 3, 0.01)]
    ).chosen == ("near",)


def test_the_last_choice_is_kept_until_another_is_clearly_better() -> None:
    near, far = CandidateDatacenter("near", HEALTHY, 10, 0.100), CandidateDatacenter("far", HEALTHY, 11, 0.100)
    assert choose([near, far]).chosen == ("far",)
    assert choose([near, far], previous=["near"]).chosen == ("near",)
    assert choose([near, changed(far, capacity=13)], previous=["near"]).chosen == ("far",)
    # Loyalty is never worth a class.
    assert choose([changed(near, health=BUSY), far], previous=["near"]).chosen == ("far",)


def test_asking_for_no_place_is_an_error() -> None:
    with pytest.raises(LimitError, match="count"):
        choose([], 0)
    with pytest.raises(LimitError, match="better_after"):
        PlacementConfig(better_after=0)


@given(
    st.lists(
        st.builds(
            CandidateDatacenter,
            st.text(min_size=1, max_size=3),
            st.sampled_from([None, *DatacenterHealth]),
            st.integers(0, 9),
            st.floats(0, 1),
        ),
        unique_by=lambda place: place.name,
    ),
    st.integers(1, 5),
)
def test_every_choice_is_usable_and_nothing_usable_is_left_while_room_remains(
    places: list[CandidateDatacenter], count: int
) -> None:
    well = [place for place in places if place.health not in (None, UNHEALTHY)]
    able = {place.name for place in well if not place.drained and not place.closed}
    chosen = choose(places, count).chosen
    assert set(chosen) <= able
    assert len(chosen) == len(set(chosen)) == min(count, len(able))


def test_a_class_gets_worse_at_once_and_better_after_three_assessments() -> None:
    steady = SteadyHealth()
    assert steady.observe(HEALTHY) is HEALTHY
    assert steady.observe(DEGRADED) is DEGRADED
    assert [steady.observe(HEALTHY) for _ in range(3)] == [DEGRADED, DEGRADED, HEALTHY]
    assert steady.observe(UNHEALTHY) is UNHEALTHY
    # One that flaps stays where it is.
    flaps = [steady.observe(health) for health in (HEALTHY, HEALTHY, UNHEALTHY) * 4]
    assert set(flaps) == {UNHEALTHY}


def test_a_place_that_operators_drained_is_never_chosen_however_well_it_is() -> None:
    drained = CandidateDatacenter("a", HEALTHY, 50, 0.001, drained=True)
    choice = choose([drained, CandidateDatacenter("b", DEGRADED, 0, 0.2)], 2)
    assert choice.chosen == ("b",)
    assert choice.reasons["a"] == "operators drained every worker there"


def test_a_place_whose_manager_accepts_no_jobs_is_never_chosen_and_says_why() -> None:
    closed = CandidateDatacenter("a", HEALTHY, 50, 0.001, closed="drained by ops: new rack")
    choice = choose([closed, CandidateDatacenter("b", DEGRADED, 0, 0.2)], 2)
    assert choice.chosen == ("b",)
    assert choice.reasons["a"] == "it accepts no new jobs: drained by ops: new rack"
