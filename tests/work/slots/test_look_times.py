"""When a supervisor looks at its slots. The times are plain numbers."""

from __future__ import annotations

import pytest

from tenure.work.slots.look_times import REST_S, LookTimes
from tenure.work.slots.slot_main import UNATTENDED_S


def test_it_looks_at_once_and_then_at_each_tick_while_there_is_something_to_watch() -> None:
    looks = LookTimes(0.1)
    assert looks.wait_s(50.0) == 0
    looks.looked(50.0, lambda: False)
    assert looks.wait_s(50.04) == pytest.approx(0.06)
    assert not looks.resting


def test_it_looks_seldom_while_there_is_nothing_to_watch_but_often_enough_for_slots_to_start_work() -> None:
    looks = LookTimes(0.1)
    looks.looked(50.0, lambda: True)
    assert looks.resting
    assert looks.wait_s(50.0) == REST_S < UNATTENDED_S / 4


def test_what_disturbs_a_rest_ends_it_within_a_tick() -> None:
    looks = LookTimes(0.1)
    looks.looked(50.0, lambda: True)
    looks.disturbed(50.2)
    assert not looks.resting
    assert looks.wait_s(50.2) == pytest.approx(0.1)
    looks.disturbed(50.25)  # it looks no later for being disturbed again
    assert looks.wait_s(50.25) == pytest.approx(0.05)


def test_work_that_is_handed_over_while_it_decides_to_rest_is_seen() -> None:
    """Another thread hands work over between the answer and the rest: it sees `resting`, and rings."""
    looks, rung = LookTimes(0.1), []

    def nothing_yet_and_then_work_comes() -> bool:
        rung.append(looks.resting)
        return True

    looks.looked(50.0, nothing_yet_and_then_work_comes)
    assert rung == [True]


def test_a_worker_that_ticks_seldom_rests_no_shorter() -> None:
    looks = LookTimes(2.0)
    looks.looked(50.0, lambda: True)
    assert looks.wait_s(50.0) == 2.0
