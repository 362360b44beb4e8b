"""Decides how long to wait after failures: one curve, the policy that users set, and the counter of loops that wait.

Pure: the caller passes the chance, as a number for the curve and the policy, and as a generator for the counter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from tenure import bounds as b
from tenure.errors import LimitError

if TYPE_CHECKING:
    # Only for the annotation: pure folders use the policy, and they may not import `random`.
    from random import Random

MAX_RESTARTS = 100
"""The attempts after the first that one workflow of a job has, however much it saves between them."""
MOST_NACK_S = 43_200
"""The longest delay that an engine keeps a message back for (`MAX_VISIBILITY_S` of the engines)."""


def delay_after(
    failures: int, *, first_s: float, most_s: float, factor: float = 2.0, jitter: float = 0.0, chance: float = 0.0
) -> float:
    """Returns the seconds to wait after so many failures in a row (1 for the first).

    The delay is `first_s`, then `factor` times as long after each further failure, at most `most_s`. Up to the share `jitter` of it is
    taken off, by `chance` (0 to 1), so that many who failed together do not come back together. It is taken off and never added, so
    that `most_s` holds, and also at the longest delay, where an outage has gathered everybody.
    """
    # The exponent is bounded so that a million failures are no overflow.
    plain = min(most_s, first_s * factor ** min(failures - 1, 64))
    return plain * (1 - jitter * chance)


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Sets how often work is tried, and how long it rests between two attempts. Times are in seconds."""

    # Submissions and journals carry it, so its fields keep their names and defaults. Decoding it checks nothing: a journal of an earlier
    # release may hold a policy that we would refuse today. `jobs.submission` checks that of a job, and `checked` that of a function or loop.

    max_attempts: b.Attempts = 3
    """The attempts in a row that may end without new saved work (a checkpoint that differs from the last). Those count, too, that ended by
    eviction or with their worker: a job that harms its workers must not reach all of them. Where no leader counts, all attempts do."""
    delay: b.Seconds = 1.0
    """The rest after the first failure."""
    factor: b.Factor = 2.0
    """After each further failure the rest is so many times as long."""
    max_delay: b.Seconds = 300.0
    """No pause is longer, however many attempts failed."""
    jitter: b.Fraction = 0.1
    """Up to this share of the rest is taken off, by chance. The leader draws the chance from the key of the attempt, so a replay gives the same."""
    max_restarts: b.Restarts | UnsetType = UNSET
    """The attempts that may follow the first, whether or not work was saved. Unset: 100. It is not written where it is unset, as `JobSubmission.grace` is not."""

    @property
    def restarts(self) -> int:
        return MAX_RESTARTS if isinstance(self.max_restarts, UnsetType) else self.max_restarts

    def delay_s(self, failures: int, chance: float) -> float:
        """Returns the seconds to rest after so many failures (1 for the first); `chance` is from 0 to 1."""
        return delay_after(
            failures,
            first_s=self.delay,
            factor=self.factor,
            most_s=self.max_delay,
            jitter=self.jitter,
            chance=chance,
        )

    def checked(self, owner: str) -> Retry:
        """Returns the policy; raises `LimitError` for one that makes no sense. `owner` names the function or loop that declares it."""
        if self.max_attempts < 1:
            raise LimitError(f"max_attempts of {owner}", self.max_attempts, "1 or more")
        if not 0 <= self.delay <= self.max_delay <= MOST_NACK_S:
            bounds = f"0 <= delay <= max_delay <= {MOST_NACK_S:,}"
            raise LimitError(f"Retry.delay, max_delay of {owner}", (self.delay, self.max_delay), bounds)
        if self.factor < 1:
            raise LimitError(f"Retry.factor of {owner}", self.factor, "1 or more")
        if not 0 <= self.jitter <= 1:
            raise LimitError(f"Retry.jitter of {owner}", self.jitter, "between 0 and 1")
        return self


class Backoff:
    """Counts the failures in a row of one loop, and says how long the loop waits: from `first_s`, doubled, up to `most_s`.

    Half of each delay is jitter, so that clients that lost one server spread out.
    """

    def __init__(self, random: Random, *, first_s: float = 0.05, most_s: float = 5.0) -> None:
        self._random, self._first_s, self._most_s = random, first_s, most_s
        self._failures = 0

    def next(self) -> float:
        """Counts one more failure, and returns the seconds to wait."""
        self._failures += 1
        chance = self._random.random()
        return delay_after(self._failures, first_s=self._first_s, most_s=self._most_s, jitter=0.5, chance=chance)

    def reset(self) -> None:
        """Starts again at `first_s`. The loop calls it when something has succeeded."""
        self._failures = 0
