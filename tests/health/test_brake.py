from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import LimitError
from tenure.health.brake import BrakeConfig, BrakePhase, EvictionBrake


@pytest.mark.parametrize(
    ("failing", "total", "phase"),
    [
        (0, 0, "released"),
        (1, 1, "released"),  # one or two nodes prove nothing about a common cause
        (2, 2, "released"),
        (1, 3, "released"),
        (2, 3, "holding"),
        (2, 4, "released"),  # half is not more than half
        (3, 5, "holding"),
        (10, 5_000, "released"),
        (2_501, 5_000, "holding"),
    ],
)
def test_it_holds_from_three_nodes_and_two_failures_above_one_half(failing: int, total: int, phase: str) -> None:
    brake = EvictionBrake()
    brake.observe(failing, total, 0.0)
    assert brake.phase(0.0) == phase
    assert brake.let_through(0.0) is (phase == "released")


def test_it_holds_no_longer_than_its_maximum_and_says_so() -> None:
    brake = EvictionBrake()
    brake.observe(6, 10, 100.0)
    assert brake.status(160.0).reason == (
        "6 of 10 nodes fail: taken for one common cause; held for 60 s of at most 300 s"
    )
    assert brake.phase(399.9) is BrakePhase.HOLDING
    assert brake.phase(400.0) is BrakePhase.LIMITED
    assert brake.status(400.0).reason == (
        "6 of 10 nodes fail: taken for one common cause; held for 300 s, longer than 300 s: evicting at most 1 per 60 s"
    )
    assert brake.status(400.0).since == 100.0


def test_then_it_lets_a_tenth_of_the_fleet_through_per_minute() -> None:
    brake = EvictionBrake()
    brake.observe(60, 100, 0.0)
    assert sum(brake.let_through(300.0) for _ in range(60)) == 10
    assert sum(brake.let_through(359.9) for _ in range(60)) == 0
    assert sum(brake.let_through(360.0) for _ in range(60)) == 10


def test_it_releases_when_nodes_recover() -> None:
    brake = EvictionBrake()
    brake.observe(6, 10, 0.0)
    brake.observe(5, 10, 10.0)
    assert brake.status(10.0) == (BrakePhase.RELEASED, "5 of 10 nodes fail", 5, 10, None)


def test_its_own_evictions_do_not_release_it() -> None:
    """60 of 100 fail; when 20 are gone it is 40 of 80, and without memory the other 40 would go at once."""
    brake = EvictionBrake()
    brake.observe(60, 100, 0.0)
    for gone in range(1, 60):
        brake.on_failing_removed(300.0 + gone)
        brake.observe(60 - gone, 100 - gone, 300.0 + gone)
        assert brake.phase(300.0 + gone) is BrakePhase.LIMITED
    brake.on_failing_removed(400.0)
    brake.observe(0, 40, 400.0)
    assert brake.phase(400.0) is BrakePhase.RELEASED


def test_one_cause_seen_node_by_node_is_still_one_cause() -> None:
    """Probes find the dead one after the other, and each sweep evicts what it finds: half goes, never all."""
    brake, alive, evicted = EvictionBrake(), 100, 0
    for second in range(100):
        brake.observe(1, alive, float(second))
        if not brake.let_through(float(second)):
            break
        alive, evicted = alive - 1, evicted + 1
        brake.on_failing_removed(float(second))
    assert brake.phase(float(second)) is BrakePhase.HOLDING
    assert evicted == 50


def test_nodes_lost_long_ago_are_forgotten() -> None:
    brake = EvictionBrake()
    for second in range(0, 6_000, 100):
        brake.observe(1, 4, float(second))
        assert brake.let_through(float(second))
        brake.on_failing_removed(float(second))


def test_a_fleet_that_flaps_around_one_half_does_not_hold_for_ever() -> None:
    brake, phases = EvictionBrake(), []
    for second in range(0, 400, 10):
        brake.observe(6 if second % 20 == 0 else 5, 10, float(second))
        if second % 20 == 0:
            phases.append(brake.phase(float(second)))
    assert phases == [BrakePhase.HOLDING] * 15 + [BrakePhase.LIMITED] * 5


def test_a_new_failure_after_a_quiet_time_gets_a_whole_hold() -> None:
    brake = EvictionBrake()
    brake.observe(6, 10, 0.0)
    brake.observe(0, 10, 500.0)
    brake.observe(6, 10, 560.0)
    assert brake.phase(560.0) is BrakePhase.HOLDING
    assert brake.status(560.0).since == 560.0


@given(
    total=st.integers(3, 200),
    asks=st.lists(st.floats(0, 20), min_size=1, max_size=300),
    rate_share=st.sampled_from([0.0, 0.05, 0.1, 0.5]),
)
def test_it_never_lets_more_than_its_rate_through(total: int, asks: list[float], rate_share: float) -> None:
    brake = EvictionBrake(BrakeConfig(rate_share=rate_share, max_hold_s=10.0))
    failing, now, let = total, 0.0, list[float]()
    brake.observe(failing, total, now)
    for wait in asks:
        now += wait
        brake.observe(failing, total, now)
        if brake.phase(now) is BrakePhase.HOLDING:
            assert not brake.let_through(now)
        elif failing and brake.let_through(now):
            let.append(now)
            failing, total = failing - 1, total - 1
            brake.on_failing_removed(now)
    most = max(1, int((total + len(let)) * rate_share))
    for index, begin in enumerate(let):
        assert sum(at - begin < 60.0 for at in let[index:]) <= most


@given(total=st.integers(3, 60), share_failing=st.floats(0.51, 1), every=st.floats(0.5, 30))
def test_it_never_holds_for_ever(total: int, share_failing: float, every: float) -> None:
    """Every failing node is gone by the maximum hold plus the time that its rate needs."""
    failing = max(2, min(total, int(total * share_failing) + 1))
    brake, now, fleet, left = EvictionBrake(), 0.0, total, failing
    rounds = -(-failing // max(1, int(total * 0.1)))
    latest = 300.0 + rounds * (60.0 + every)
    while left:
        brake.observe(left, fleet, now)
        while left and brake.let_through(now):
            left, fleet = left - 1, fleet - 1
            brake.on_failing_removed(now)
            brake.observe(left, fleet, now)
        assert now <= latest
        now += every


@pytest.mark.parametrize(
    ("field", "value"),
    [("share", 1.5), ("min_nodes", 0), ("max_hold_s", float("inf")), ("rate_period_s", 0.0), ("memory_s", -1.0)],
)
def test_a_wrong_setting_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(LimitError, match=f"^{field} is"):
        BrakeConfig(**{field: value})
