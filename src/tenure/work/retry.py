"""Decides when a failed attempt is tried again: exponential backoff with jitter. Pure: the caller passes the source of chance."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tenure.errors import LimitError


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait `base_s`, then `factor` times as long after each further failure, at most `most_s`, spread by `jitter`."""

    base_s: float = 1.0
    factor: float = 2.0
    most_s: float = 300.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.base_s <= self.most_s <= 43_200:
            raise LimitError("Retry.base_s, most_s", (self.base_s, self.most_s), "0 <= base_s <= most_s <= 43,200")
        if self.factor < 1:
            raise LimitError("Retry.factor", self.factor, "1 or more")
        if not 0 <= self.jitter <= 1:
            raise LimitError("Retry.jitter", self.jitter, "between 0 and 1")

    def delay_s(self, failures: int, random: Random) -> float:
        """Seconds to wait after the given number of failures (1 for the first)."""
        # The exponent is bounded so that a million failures are no overflow.
        plain = min(self.most_s, self.base_s * self.factor ** min(failures - 1, 64))
        return plain * (1 + self.jitter * (2 * random.random() - 1)) if plain < self.most_s else plain
