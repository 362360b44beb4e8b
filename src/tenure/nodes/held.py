"""Holds requests on a node's event loop until the event that they wait for happens."""

from __future__ import annotations

import asyncio

from tenure.clock import Clock
from tenure.errors import NodeUnavailableError

MOST_HELD = 5_000
"""More than a port holds for all its callers (`HttpLimits.waiting`): reached only where requests come by another way."""


class Held:
    """The held requests, by the key that they wait for: the id of a job, or a worker. `ring(key)` wakes every request that waits for `key`."""

    def __init__(self, clock: Clock, most: int = MOST_HELD) -> None:
        self._clock, self._most, self._count = clock, most, 0
        self._bells: dict[str, dict[asyncio.Future[None], None]] = {}

    @property
    def keys(self) -> list[str]:
        """Every key that at least one request waits for."""
        return list(self._bells)

    async def hold(self, key: str, seconds: float) -> None:
        """Returns after `ring(key)`, and after `seconds` at the latest. Raises `NodeUnavailableError` where too many requests wait."""
        if self._count >= self._most:
            raise NodeUnavailableError(
                f"{self._count:,} requests are held here already", remedy="Ask again without wait_s", retry_after_s=1.0
            )
        bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bells.setdefault(key, {})[bell] = None
        self._count += 1
        nap = asyncio.ensure_future(self._clock.async_sleep(seconds))
        try:
            await asyncio.wait([bell, nap], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._count -= 1
            nap.cancel()
            bell.cancel()
            bells = self._bells.get(key, {})
            bells.pop(bell, None)
            if not bells:
                self._bells.pop(key, None)

    def ring(self, key: str) -> None:
        """Wakes every request that waits for `key`."""
        for bell in self._bells.pop(key, ()):
            if not bell.done():
                bell.set_result(None)

    def ring_all(self) -> None:
        for key in self.keys:
            self.ring(key)
