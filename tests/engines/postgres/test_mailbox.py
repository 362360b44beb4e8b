from __future__ import annotations

from tenure.engines.postgres.mailbox import ClaimPace


def test_a_claim_begins_where_the_last_full_one_found_something() -> None:
    pace = ClaimPace()
    assert pace.floor(100.0) is None
    pace.claimed(100.0, 0.001, None, 5_000.0, filled=True)
    floor = pace.floor(100.1)
    assert floor is not None
    assert 4_999.9 < floor < 5_000.0


def test_now_and_then_it_begins_at_the_very_beginning_less_often_when_that_is_slow() -> None:
    pace = ClaimPace()
    pace.claimed(100.0, 0.001, None, 5_000.0, filled=True)
    assert pace.floor(100.4) is not None
    assert pace.floor(100.6) is None
    pace.claimed(101.0, 2.0, None, 5_000.0, filled=True)
    assert pace.floor(140.0) is not None
    assert pace.floor(142.0) is None


def test_a_claim_that_was_not_filled_has_looked_everywhere_and_leaves_no_floor() -> None:
    pace = ClaimPace()
    pace.claimed(100.0, 0.001, None, 5_000.0, filled=True)
    pace.claimed(100.1, 0.001, 4_999.0, None, filled=False)
    assert pace.floor(100.2) is None


def test_work_that_was_given_back_is_looked_for_at_once() -> None:
    pace = ClaimPace()
    pace.claimed(100.0, 0.001, None, 5_000.0, filled=True)
    pace.moved_back()
    assert pace.floor(100.1) is None


def test_a_slow_look_ahead_is_not_repeated_at_once_but_within_a_second() -> None:
    pace = ClaimPace()
    assert pace.look_in(100.0) == 0
    pace.found_nothing(100.0, 0.001)
    assert pace.look_in(100.0) == 0
    pace.found_nothing(100.0, 0.5)
    assert 0 < pace.look_in(100.0) <= 1
    assert pace.look_in(101.0) == 0
