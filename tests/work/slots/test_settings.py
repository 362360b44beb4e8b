from __future__ import annotations

from typing import Any

import pytest

from tenure.errors import ConfigurationError, LimitError
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
    ],
)
def test_numbers_out_of_range_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(LimitError, match=next(iter(options))):
        SlotSettings(**options)


def test_a_lease_that_beats_could_not_renew_in_time_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="under ten ticks"):
        SlotSettings(lease_s=0.5, tick_s=0.1)


def test_the_extension_interval_is_always_below_the_lease() -> None:
    assert SlotSettings(lease_s=30).extend_every_s == 10
    assert SlotSettings(lease_s=1_800).extend_every_s == 60
