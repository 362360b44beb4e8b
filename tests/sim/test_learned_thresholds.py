"""Workflows whose silences have heavy tails and drift: a learned threshold ends few that are healthy, and finds a hang soon (issue 26, decision 0485).

The distributions are known here, so the share of healthy attempts that a threshold ends is computed and not counted: ten thousand attempts would show
one false kill or none.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from tenure.jobs import learned_gaps
from tenure.jobs.learned_gaps import FALSE_KILLS, FLOOR_S, GapRecord, teach, threshold

DEFAULT_S = 300.0
ATTEMPTS = 2_000
GAPS = 100
"""Silences of one attempt, of which the longest counts."""
SEEDS = range(40 if os.environ.get("TENURE_SOAK") else 4)


class Tail(NamedTuple):
    """One distribution of silences: the share that is longer, and the silence that so large a share is longer than."""

    longer: Callable[[float], float]
    silence: Callable[[float], float]


def pareto(exponent: float) -> Tail:
    return Tail(lambda s: min(1.0, (0.1 / s) ** exponent), lambda share: 0.1 * share ** (-1 / exponent))


def lognormal(spread: float) -> Tail:
    normal = statistics.NormalDist()
    return Tail(
        lambda s: 0.5 * math.erfc(math.log(s / 0.5) / spread / math.sqrt(2)),
        lambda share: 0.5 * math.exp(-spread * normal.inv_cdf(max(share, 1e-16))),
    )


TAILS = {
    **{f"pareto {exponent:g}": pareto(exponent) for exponent in (2, 2.5, 3, 4)},
    **{f"lognormal {spread:g}": lognormal(spread) for spread in (0.5, 0.8, 1.0, 1.2)},
}
DRIFTS: dict[str, Callable[[int], float]] = {
    "steady": lambda number: 1.0,
    "three times slower in 2,000 attempts": lambda number: 3 ** (number / 2_000),
    "three times slower in 1,000 attempts": lambda number: 3 ** (min(number, 1_000) / 1_000),
    "three times faster": lambda number: 3 ** (-number / 2_000),
    "to and fro": lambda number: 2 ** math.sin(number / 300),
}


class Course(NamedTuple):
    false_kills: float
    """The mean share of healthy attempts that the threshold of the moment would end."""
    learned_s: float
    """The median threshold."""


def course(tail: Tail, drift: Callable[[int], float], seed: int) -> Course:
    """Plays the attempts of one workflow, each judged by what those before it taught."""
    random, record = Random(seed), GapRecord()
    rates, learned = [], []
    for number in range(ATTEMPTS):
        pace = drift(number)
        if (seconds := threshold(record).seconds) is not None:
            rates.append(-math.expm1(GAPS * math.log1p(-min(tail.longer(seconds / pace), 1 - 1e-12))))
            learned.append(seconds)
        share = -math.expm1(math.log(random.random()) / GAPS)  # of the longest of `GAPS` silences
        teach(record, pace * tail.silence(max(share, 1e-300)))
    return Course(statistics.fmean(rates), statistics.median(learned))


def courses() -> dict[tuple[str, str], list[Course]]:
    return {
        (kind, way): [course(tail, drift, seed) for seed in SEEDS]
        for kind, tail in TAILS.items()
        for way, drift in DRIFTS.items()
    }


def test_under_heavy_tails_and_drift_false_kills_stay_within_their_bound_and_hangs_are_found_five_times_sooner() -> (
    None
):
    found = courses()
    for kind, some in found.items():
        assert statistics.fmean(one.false_kills for one in some) <= FALSE_KILLS, kind
    # The set threshold holds where the learned one is longer.
    sooner = [DEFAULT_S / min(DEFAULT_S, one.learned_s) for some in found.values() for one in some]
    assert statistics.median(sooner) >= 5
    assert min(one.learned_s for some in found.values() for one in some) >= FLOOR_S


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("DRIFT", 0.4),  # a threshold that is shorter than estimated
        ("FALSE_KILLS", 1e-3),  # one in a thousand
        ("LEAST_TAIL", 500.0),  # the tail is taken from the whole, where it is no tail
    ],
)
def test_a_broken_estimate_is_found(name: str, broken: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_gaps, name, broken)
    worst = max(course(TAILS[kind], DRIFTS["steady"], 1).false_kills for kind in ("pareto 2", "pareto 3"))
    slow = statistics.median(course(TAILS[kind], DRIFTS["steady"], 1).learned_s for kind in TAILS)
    assert worst > FALSE_KILLS or slow > DEFAULT_S / 5
