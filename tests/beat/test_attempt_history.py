"""The history of an attempt: its longest silence by the looks of its supervisor, and how its beats grew."""

from __future__ import annotations

import itertools

from tenure.beat.attempt_history import MOST_POINTS, BeatHistory, GapWatch
from tenure.beat.board import BeatBoard


def test_a_silence_that_one_beat_ended_is_known_exactly() -> None:
    watch = GapWatch()
    watch.look(10.0, 1, 10.05)
    for now in (11.0, 12.0, 13.0):
        watch.look(10.0, 1, now)
        assert watch.longest_s == 0.0, "it has not gone on yet"
    assert watch.look(13.4, 2, 14.0)
    assert watch.longest_s == 13.4 - 10.0


def test_of_several_beats_the_silence_is_known_up_to_the_look_before() -> None:
    watch = GapWatch()
    watch.look(10.0, 1, 10.05)
    watch.look(10.0, 1, 13.0)
    watch.look(13.9, 8, 14.0)
    assert watch.longest_s == 3.0


def test_a_supervisor_that_stood_still_takes_many_beats_for_no_silence() -> None:
    watch = GapWatch()
    watch.look(10.0, 1, 10.1)
    watch.look(70.0, 600, 70.1)
    assert watch.longest_s < 0.2


def test_a_clock_that_was_held_has_no_silence() -> None:
    watch = GapWatch()
    for now in range(10, 100):
        watch.look(float(now), 1, float(now))  # a declared silence, or a hold, moves it with each look
    assert watch.longest_s <= 1.0


def test_the_board_keeps_the_silences_of_two_attempts_apart() -> None:
    record = BeatBoard.private(1).records[0]
    record.set_longest_gap(5.0, record.serial)
    assert record.gap_of(record.serial) == 5.0
    record.set_longest_gap(9.0, record.serial + 7)  # of an attempt that has left
    assert record.gap_of(record.serial) == 5.0


def test_points_spread_over_the_whole_attempt_however_long_it_runs() -> None:
    history = BeatHistory()
    for tick in range(100_000):
        history.look(tick * 0.1, tick)
    points = history.end(10_000.0, 100_000)
    assert len(points) <= MOST_POINTS + 1
    assert points[0] == (0.0, 0)
    assert points[-1] == (10_000.0, 100_000)
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(points[:-1])]
    assert max(gaps) < 2.1 * min(gaps)


def test_a_short_attempt_shows_its_start_and_its_end() -> None:
    history = BeatHistory()
    history.look(0.0, 1)
    history.look(0.1, 2)  # no point is due yet
    assert history.end(0.2, 3) == [(0.0, 1), (0.2, 3)]
