"""Computes the pauses between attempts to reach a server: longer each time, and never in step with other clients."""

from __future__ import annotations

from random import Random


class Backoff:
    """Doubles from `first_s` up to `most_s`; each delay is drawn from its upper half, so that clients spread out."""

    def __init__(self, random: Random, *, first_s: float = 0.05, most_s: float = 5.0) -> None:
        self._random, self._first_s, self._most_s = random, first_s, most_s
        self._failures = 0

    def next(self) -> float:
        """One more attempt failed: wait this long."""
        ceiling = min(self._most_s, self._first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return ceiling * (0.5 + 0.5 * self._random.random())

    def reset(self) -> None:
        """It answered."""
        self._failures = 0
