"""Estimates when work will be done, from the rate at which its fraction rose, with a band. Pure: it is told the time."""

from __future__ import annotations

from itertools import pairwise

import msgspec

MOST_SAMPLES = 9
FIRST_EVERY_S = 1.0


class Eta(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds until the work is done if it goes on as it did, and the band of its slowest and its fastest spell."""

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


def eta_in_words(eta: Eta) -> str:
    """Returns the estimate as people say it."""
    latest = "open" if eta.latest_s is None else _brief(eta.latest_s)
    return f"eta {_brief(eta.left_s)} ({_brief(eta.soonest_s)} to {latest})"


def _brief(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"
