"""Whom to dial again: the seeds, and those that failed and may be on the other side of a partition.

The original purges the dead and never dials them, so a pool that was cut in two for long stays two pools.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenure.gossip.messages import Address
from tenure.randomness import Random

MAX_REMEMBERED = 256


class Seeds:
    """Addresses that should be members."""

    def __init__(self, random: Random, remember_s: float) -> None:
        self._random = random
        self._remember_s = remember_s
        self._seeds: list[Address] = []
        self._failed: dict[Address, float] = {}

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(self._seeds)

    def add(self, seeds: Iterable[Address]) -> None:
        """Where the pool can be found, always."""
        self._seeds += [seed for seed in seeds if seed not in self._seeds]

    def remember(self, now: float, address: Address) -> None:
        """A member that failed was there; the longest forgotten makes room."""
        self._failed.pop(address, None)
        self._failed[address] = now
        if len(self._failed) > MAX_REMEMBERED:
            del self._failed[next(iter(self._failed))]

    def pick_missing(self, now: float, here: set[Address]) -> Address | None:
        """One that is not among the live members, or None."""
        self._failed = {
            address: at for address, at in self._failed.items() if now - at <= self._remember_s and address not in here
        }
        missing = [seed for seed in self._seeds if seed not in here]
        missing += [address for address in self._failed if address not in missing]
        return self._random.choice(missing) if missing else None
