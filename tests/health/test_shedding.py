"""Low priority goes first, vital requests never."""

from __future__ import annotations

import pytest

from tenure.health.overload import OverloadState
from tenure.health.shedding import Asked, why_shed


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
    assert [priority for priority in (-5, 0, 5) if not why_shed(state, Asked.SUBMIT, priority)] == taken


def test_cancels_results_reports_and_timeouts_always_pass() -> None:
    assert not any(why_shed(state, Asked.VITAL) for state in OverloadState)


def test_what_only_informs_is_turned_away_last() -> None:
    shed = [state for state in OverloadState if why_shed(state, Asked.INFORM)]
    assert shed == [OverloadState.OVERLOADED]
    assert "priority 1 and above; this one has 0" in why_shed(OverloadState.STRESSED, Asked.SUBMIT)
