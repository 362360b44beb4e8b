"""How many items are claimed, who gets them, and which go back."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tenure.work.slots.claim_queue import (
    AHEAD_S,
    MOST_AHEAD,
    MOST_AT_HAND,
    OVERDUE_S,
    WINDOW_S,
    ClaimedWork,
    ClaimQueue,
    LearnedDurations,
)

SHORT, LONG, NEW = ("short", "1"), ("long", "1"), ("new", "1")
FOREVER = 1e9
NOW = 0.2


class Desk:
    """A queue with some seats, which knows how long two workflows take."""

    def __init__(self, seats: int = 1, room: int = 1) -> None:
        durations = LearnedDurations()
        durations.learn(SHORT, 0.001)
        durations.learn(LONG, 10.0)
        self.queue = ClaimQueue(durations)
        self.number = 0
        for seat in range(seats):
            self.queue.add_seat(seat, room)

    def claims(self, *kinds: tuple[str, str], at: float = 0.0, lease_until: float = FOREVER) -> list[ClaimedWork]:
        made = []
        for kind in kinds:
            self.number += 1
            made.append(ClaimedWork(self.number, kind, at, lease_until))
        return made

    def add(self, *kinds: tuple[str, str], at: float = 0.0) -> list[int]:
        """Adds claims; returns the numbers of those that are too many."""
        return [claim.number for claim in self.queue.add(self.claims(*kinds, at=at))]

    def hand_over(self) -> list[tuple[int, int | None]]:
        handed, _ = self.queue.hand_over(0.0, 0.0)
        return [(claim.number, claim.seat) for claim in handed]


def nothing_started(claim: ClaimedWork) -> bool:
    return False


def only(*numbers: int) -> Callable[[ClaimedWork], bool]:
    return lambda claim: claim.number in numbers


@pytest.mark.parametrize("kind", [LONG, NEW])
def test_long_work_and_work_that_nobody_knows_yet_is_claimed_one_at_a_time(kind: tuple[str, str]) -> None:
    desk = Desk(seats=2)
    assert (desk.queue.idle_places, desk.queue.wanted_ahead) == (2, 0)
    assert desk.add(kind) == []
    desk.hand_over()
    assert (desk.queue.idle_places, desk.queue.wanted_ahead, desk.queue.runs_low) == (1, 0, False)


def test_short_work_is_claimed_ahead_by_fifty_milliseconds_and_no_more() -> None:
    desk = Desk()
    desk.add(SHORT)
    assert desk.queue.wanted_ahead == int(AHEAD_S / 0.001) - 1  # the one that was claimed waits, too
    desk.hand_over()
    assert desk.queue.wanted_ahead == int(AHEAD_S / 0.001)
    assert desk.queue.runs_low


def test_however_short_it_is_the_number_ahead_is_bounded() -> None:
    desk = Desk(seats=3)
    for _ in range(200):
        desk.queue.durations.learn(SHORT, 0.0)
    desk.add(SHORT)
    desk.hand_over()
    assert desk.queue.wanted_ahead == 3 * MOST_AHEAD


def test_a_batch_that_brings_other_work_than_expected_goes_back_from_there_on() -> None:
    desk = Desk()
    assert desk.add(SHORT, SHORT, NEW, SHORT, SHORT) == [3, 4, 5]
    assert desk.queue.wanted_ahead == 0  # the next claim is likely to bring the same
    assert Desk(seats=2).add(SHORT, NEW, NEW) == [3]  # the second seat starts the first unknown one at once


def test_a_workflow_that_turns_long_is_known_to_be_long_after_one_item_and_a_pause_of_the_machine_is_forgotten() -> (
    None
):
    durations = LearnedDurations()
    assert durations.expected(SHORT) == math.inf
    durations.learn(SHORT, 0.001)
    durations.learn(SHORT, 1.0)
    assert durations.expected(SHORT) > AHEAD_S
    for _ in range(30):
        durations.learn(SHORT, 0.001)
    assert durations.expected(SHORT) < 0.005


def test_free_seats_get_work_first_and_then_a_little_waits_at_each() -> None:
    desk = Desk(seats=2)
    desk.add(*[SHORT] * 60)
    handed = desk.hand_over()
    assert handed[:2] == [(1, 0), (2, 1)]
    at_hand = [sum(seat == one for _, seat in handed) for one in (0, 1)]
    assert at_hand[0] == at_hand[1] <= 1 + MOST_AT_HAND
    assert desk.queue.waiting == 58
    assert 0 < desk.queue.nap_s < WINDOW_S


def test_a_supervisor_naps_no_longer_than_a_third_of_the_work_that_its_least_busy_slot_has() -> None:
    desk = Desk(seats=2)
    desk.add(*[SHORT] * 6)
    desk.hand_over()
    assert desk.queue.nap_s == pytest.approx(0.001)  # three items of a millisecond at each
    desk.queue.finished(1, 0, 0.001, NOW)
    assert desk.queue.nap_s == 0.0  # one runs and one waits: it would soon have nothing


def test_the_shortest_work_at_hand_outlasts_a_nap() -> None:
    desk = Desk()
    for _ in range(200):
        desk.queue.durations.learn(SHORT, 0.0)
    desk.add(*[SHORT] * MOST_AHEAD)
    desk.hand_over()
    assert 0 < desk.queue.nap_s < MOST_AT_HAND * 0.000037  # a slot takes that long for an item that does nothing
    assert desk.queue.waiting - len(desk.queue.queued) == MOST_AT_HAND  # as many as a slot starts in a nap


def test_long_work_never_waits_behind_other_work_in_a_slot() -> None:
    desk = Desk()
    desk.add(SHORT)
    desk.hand_over()
    desk.queue.add_seat(1, 1)
    desk.add(LONG)
    assert desk.hand_over() == [(2, 1)]


def test_what_the_page_does_not_name_is_handed_over_only_where_it_can_start() -> None:
    desk = Desk()
    claims = desk.claims(SHORT, SHORT)
    claims[1].withdrawable = False
    desk.queue.add(claims)
    assert desk.hand_over() == [(1, 0)]
    desk.queue.finished(1, 0, 0.001, NOW)
    assert desk.hand_over() == [(2, 0)]


def test_a_slot_for_many_gets_as_many_as_it_may_run_at_once() -> None:
    desk = Desk(room=50)
    assert desk.queue.idle_places == 50
    desk.add(*[NEW] * 50)
    assert len(desk.hand_over()) == 50


def test_a_claim_whose_lease_is_over_is_not_handed_over() -> None:
    desk = Desk()
    desk.queue.add(desk.claims(SHORT, lease_until=5.0))
    handed, lost = desk.queue.hand_over(0.0, 5.0)
    assert (handed, [claim.number for claim in lost]) == ([], [1])


def test_what_waits_behind_work_that_runs_long_is_given_back_in_order() -> None:
    desk = Desk()
    desk.add(*[SHORT] * 40)
    desk.hand_over()
    at_hand = len(desk.queue.handed)
    assert desk.queue.to_release(OVERDUE_S - 0.001) == []
    marks, _ = desk.queue.review(OVERDUE_S, only(1))
    assert [claim.number for claim in marks] == list(range(2, at_hand + 1))
    assert [c.number for c in desk.queue.to_release(OVERDUE_S)] == list(range(at_hand + 1, 41))
    # Not before a tick has passed: the slot may be between its two steps.
    assert desk.queue.review(OVERDUE_S + 0.05, only(1)) == ([], [])
    assert len(desk.queue.handed) == at_hand
    desk.queue.review(OVERDUE_S + 0.1, only(1))
    assert [claim.number for claim in desk.queue.handed] == [1]
    assert [c.number for c in desk.queue.to_release(OVERDUE_S + 0.1)] == list(range(2, at_hand + 1))


def test_work_that_goes_on_more_slowly_than_expected_keeps_what_waits_behind_it_for_a_second_at_most() -> None:
    """As on a machine that has too much to do: to give it back and claim it again would cost more."""
    desk = Desk()
    desk.add(*[SHORT] * 40)
    desk.hand_over()
    for number in range(1, 10):
        desk.queue.finished(number, 0, 0.001, number * OVERDUE_S * 0.9)
        assert desk.queue.review(number * OVERDUE_S * 0.9 + 0.05, only(number)) == ([], [])
        assert desk.queue.to_release(number * OVERDUE_S * 0.9 + 0.05) == []
    assert desk.queue.to_release(1.0)


def test_nothing_is_claimed_ahead_for_a_slot_that_runs_an_item_long() -> None:
    desk = Desk(seats=2)
    desk.add(SHORT, SHORT)
    desk.hand_over()
    desk.queue.finished(2, 1, 0.001, 0.0)
    both = desk.queue.wanted_ahead
    desk.queue.review(OVERDUE_S, only(1))
    assert desk.queue.wanted_ahead == both // 2
    desk.queue.finished(1, 0, 0.0, NOW)
    assert desk.queue.wanted_ahead == both


def test_what_started_while_it_was_withdrawn_stays_with_its_slot_unless_the_slot_declines_it() -> None:
    desk = Desk()
    desk.add(SHORT, SHORT)
    desk.hand_over()
    marks, _ = desk.queue.review(OVERDUE_S, only(1))
    assert [claim.number for claim in marks] == [2]
    desk.queue.review(OVERDUE_S + 0.1, only(1, 2))
    assert [claim.number for claim in desk.queue.handed] == [1, 2]
    assert desk.queue.declined(2, 0) is None  # it saw the mark
    assert [claim.number for claim in desk.queue.to_release(1.0)] == [2]


def test_a_closed_seat_gets_nothing_and_gives_back_what_it_has_not_started() -> None:
    desk = Desk(seats=2)
    desk.add(SHORT, SHORT, SHORT, SHORT)
    desk.hand_over()
    desk.queue.open_seats(lambda seat: seat == 0)
    marks, _ = desk.queue.review(0.01, only(1, 2))
    assert [claim.number for claim in marks] == [4]
    desk.queue.review(0.2, only(1, 2))
    desk.queue.finished(1, 0, 0.001, NOW)
    assert desk.hand_over() == [(4, 0)]


def test_a_drain_gives_everything_back_that_has_not_started() -> None:
    desk = Desk()
    desk.add(*[SHORT] * 30)
    desk.hand_over()
    desk.queue.closed = True
    assert (desk.queue.idle_places, desk.queue.wanted_ahead) == (0, 0)
    released = desk.queue.to_release(0.0)
    marks, _ = desk.queue.review(0.0, only(1))
    assert len(released) + len(marks) == 29
    assert desk.add(SHORT) == [31]


def test_a_cancel_ends_what_waits_and_withdraws_what_a_slot_has() -> None:
    desk = Desk()
    desk.add(*[SHORT] * 30)
    desk.hand_over()
    found, handed = desk.queue.cancel(only(3, 29), "not wanted")
    assert ([claim.number for claim in found], handed) == ([29], True)
    marks, _ = desk.queue.review(0.0, nothing_started)
    assert [claim.number for claim in marks] == [3]
    _, cancelled = desk.queue.review(0.1, nothing_started)
    assert [(claim.number, claim.verdict) for claim in cancelled] == [(3, "not wanted")]


def test_what_a_dead_slot_had_not_started_goes_to_another_slot_in_its_old_place() -> None:
    desk = Desk(seats=2)
    desk.add(*[SHORT] * 6)
    desk.hand_over()
    had = desk.queue.remove_seat(0)
    assert desk.queue.put_back(claim for claim in had if claim.number != 1) == []
    assert [number for number, _ in desk.hand_over()] == [claim.number for claim in had if claim.number != 1]


def test_an_outcome_of_what_was_taken_back_is_nobodys() -> None:
    desk = Desk()
    desk.add(SHORT)
    desk.hand_over()
    assert desk.queue.finished(1, 7, 0.1, NOW) is None
    assert desk.queue.finished(1, 0, 0.1, NOW) is not None
    assert desk.queue.finished(1, 0, 0.1, NOW) is None
