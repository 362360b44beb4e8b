"""Estimates when work will be done, with a band: from the rate at which its fraction rose, and from how long the same work took before.

Pure: it is told the time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tenure.jobs.learned_rates import Usual

MOST_SAMPLES = 9
FIRST_EVERY_S = 1.0
LEARNED_WEIGHT = 0.1
"""The share of the work that counts as much as everything that was learned: at 10 % the two weigh the same, at 50 % the own pace weighs five times as much."""
BAND = (0.1, 0.9)
"""The shares of the earlier runs at which the band begins and ends."""


class Eta(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds until the work is done if it goes on as it did, and the band of its slowest and its fastest spell, or of the runs before it."""

    left_s: float
    soonest_s: float
    latest_s: float | None
    """None when it stood still for a spell: it may as well take for ever."""


class EtaWindow:
    """The fraction of one attempt over time, in a few samples that spread over its whole life."""

    __slots__ = ("_due", "_every_s", "attempt", "samples")

    def __init__(self, attempt: tuple[int, int]) -> None:
        self.attempt = attempt
        """(attempt, delivery): another one begins anew."""
        self._every_s, self._due = FIRST_EVERY_S, 0.0
        self.samples: list[tuple[float, float]] = []

    def look(self, now: float, fraction: float) -> None:
        """Notes the fraction, if a sample is due."""
        if now < self._due:
            return
        self.samples.append((now, fraction))
        if len(self.samples) >= MOST_SAMPLES:
            del self.samples[1::2]
            self._every_s *= 2
        self._due = now + self._every_s

    def eta(self, now: float, fraction: float) -> Eta | None:
        """Returns the estimate; None before the fraction has risen for two spells, and when it is done."""
        points = [*self.samples, (now, fraction)] if not self.samples or now > self.samples[-1][0] else self.samples
        if len(points) < 3 or fraction <= points[0][1] or fraction >= 1:
            return None
        rest, whole = 1 - fraction, points[-1][0] - points[0][0]
        rates = [
            (after[1] - before[1]) / (after[0] - before[0])
            for before, after in pairwise(points)
            if after[0] > before[0]
        ]
        rates.append((fraction - points[0][1]) / whole)
        slowest = min(rates)
        return Eta(
            left_s=round(rest * whole / (fraction - points[0][1]), 1),
            soonest_s=round(rest / max(rates), 1),
            latest_s=round(rest / slowest, 1) if slowest > 0 else None,
        )


def estimate(
    usual: Usual | None, window: EtaWindow | None, now: float, *, lasted_s: float, fraction: float | None
) -> Eta | None:
    """Returns the estimate from what was learned of this workflow and what was seen of this attempt; None where neither says anything."""
    if fraction is None:
        return _of_earlier_runs(usual, lasted_s) if usual is not None else None
    seen = window.eta(now, fraction) if window is not None else None
    if usual is None or fraction >= 1:
        return seen
    whole = [usual.seconds(share) or 0.0 for share in (0.5, *BAND)]
    learned = Eta(
        left_s=whole[0] * (1 - fraction), soonest_s=whole[1] * (1 - fraction), latest_s=whole[2] * (1 - fraction)
    )
    if window is None or seen is None:
        return _mixed(learned, learned, 1.0)
    # An attempt that goes on from a checkpoint has shown its pace only since then.
    return _mixed(learned, seen, LEARNED_WEIGHT / (LEARNED_WEIGHT + fraction - window.samples[0][1]))


def _of_earlier_runs(usual: Usual, lasted_s: float) -> Eta | None:
    """Returns what is left of work that does not say how far it is, by the runs that lasted at least as long."""
    found = [usual.seconds(share, lasted_s=lasted_s) for share in (0.5, *BAND)]
    if None in found:
        return None
    left, soonest, latest = (round(max(0.0, one - lasted_s), 1) for one in found if one is not None)
    return Eta(left_s=left, soonest_s=soonest, latest_s=latest)


def _mixed(learned: Eta, seen: Eta, weight: float) -> Eta:
    def both(one: float, other: float) -> float:
        return round(weight * one + (1 - weight) * other, 1)

    open_end = seen.latest_s is None or learned.latest_s is None
    return Eta(
        left_s=both(learned.left_s, seen.left_s),
        soonest_s=both(learned.soonest_s, seen.soonest_s),
        latest_s=None if open_end else both(learned.latest_s or 0.0, seen.latest_s or 0.0),
    )


def eta_in_words(eta: Eta) -> str:
    """Returns the estimate as people say it."""
    latest = "open" if eta.latest_s is None else brief_seconds(eta.latest_s)
    return f"eta {brief_seconds(eta.left_s)} ({brief_seconds(eta.soonest_s)} to {latest})"


def brief_seconds(seconds: float) -> str:
    """Returns a duration as people say it: whole seconds, minutes, or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"
