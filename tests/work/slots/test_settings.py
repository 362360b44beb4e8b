from __future__ import annotations

from typing import Any

import pytest

from tenure.errors import LadderError, LimitError
from tenure.work.slots.settings import SlotSettings


@pytest.mark.parametrize(
    "options",
    [
        {"slots": 0},
        {"slots": 1_000},
        {"concurrency": 0},
        {"lease_s": 0},
        {"stall_s": -1},
        {"grace_s": float("nan")},
        {"memory_limit_mb": 8},
        {"settle_s": 0},
        {"settle_s": float("inf")},
    ],
)
def test_numbers_out_of_range_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(LimitError, match=next(iter(options))):
        SlotSettings(**options)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"lease_s": 0.5, "claim_s": 0.3}, "9 x tick < visibility_timeout is broken"),
        ({"claim_s": 0.1}, "2 x tick < claim is broken"),
        ({"settle_s": 0.2}, "2 x tick < settle is broken"),
    ],
)
def test_times_that_cannot_work_together_are_refused_and_the_ladder_is_drawn(
    options: dict[str, Any], rule: str
) -> None:
    with pytest.raises(LadderError) as refused:
        SlotSettings(tick_s=0.1, **options)
    assert rule in str(refused.value)
    for rung in ("visibility_timeout", "grace", "settle", "stall", "claim", "tick"):
        assert f"  {rung} " in refused.value.ladder


def test_a_grace_as_long_as_the_lease_or_longer_is_allowed_because_the_lease_is_held_through_it() -> None:
    assert SlotSettings(lease_s=5, grace_s=5).grace_s == 5
    assert SlotSettings(lease_s=5, grace_s=60).grace_s == 60


def test_a_lease_that_no_engine_grants_is_refused_here_and_not_at_the_first_renewal() -> None:
    with pytest.raises(LimitError, match="lease_s"):
        SlotSettings(lease_s=50_000)


def test_an_outcome_may_take_as_long_as_its_lease_and_ten_seconds_at_least() -> None:
    assert SlotSettings(lease_s=60).settle_within_s == 60
    assert SlotSettings(lease_s=2, claim_s=1).settle_within_s == 10
    assert SlotSettings(settle_s=3).settle_within_s == 3


def test_the_extension_interval_is_always_below_the_lease() -> None:
    assert SlotSettings(lease_s=30).extend_every_s == 10
    assert SlotSettings(lease_s=1_800).extend_every_s == 60
