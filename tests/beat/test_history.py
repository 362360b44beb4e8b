"""The few points in which a long attempt's beats are remembered."""

from __future__ import annotations

import itertools

from tenure.beat.history import MOST_POINTS, BeatHistory


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
