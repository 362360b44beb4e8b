"""Holds requests back until what they wait for has happened, or their time is over."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.clock import Clock
from tenure.engines.long_poll import LoopWaiter
from tenure.errors import NodeUnavailableError

MOST_HELD = 5_000
"""More than a port holds for all its callers (`HttpLimits.waiting`): reached only where requests come by another way."""


class Held:
    """The held requests, by the key that they wait for: the id of a job, or a worker. `ring(key)` wakes every request that waits for `key`."""

    def __init__(self, clock: Clock, most: int = MOST_HELD) -> None:
        self._clock, self._most, self._count = clock, most, 0
        self._waiters: dict[str, dict[LoopWaiter, None]] = {}

    @property
    def keys(self) -> list[str]:
        """Every key that at least one request waits for."""
        return list(self._waiters)

    async def hold(self, key: str, seconds: float) -> None:
        """Returns after `ring(key)`, and after `seconds` at the latest. Raises `NodeUnavailableError` where too many requests wait."""
        await self.hold_any((key,), seconds)

    async def hold_any(self, keys: Iterable[str], seconds: float) -> None:
        """Holds one request that waits for several keys: the first that is rung ends it."""
        if self._count >= self._most:
            raise NodeUnavailableError(
                f"{self._count:,} requests are held here already", remedy="Ask again without wait_s", retry_after_s=1.0
            )
        waiter, waited = LoopWaiter(), tuple(keys)
        for key in waited:
            self._waiters.setdefault(key, {})[waiter] = None
        self._count += 1
        try:
            await waiter.wait(self._clock, seconds)
        finally:
            self._count -= 1
            for key in waited:
                self._drop(key, waiter)

    def _drop(self, key: str, waiter: LoopWaiter) -> None:
        waiters = self._waiters.get(key, {})
        waiters.pop(waiter, None)
        if not waiters:
            self._waiters.pop(key, None)

    def ring(self, key: str) -> None:
        """Wakes every request that waits for `key`."""
        for waiter in self._waiters.pop(key, ()):
            waiter.ring()

    def ring_all(self) -> None:
        for key in self.keys:
            self.ring(key)
