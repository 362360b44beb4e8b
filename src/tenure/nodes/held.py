"""Those who are held on a node's event loop until something happens that they wait for."""

from __future__ import annotations

import asyncio

from tenure.clock import Clock


class Held:
    """By what they wait for: a job, a worker. Who is rung for goes on at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bells: dict[str, dict[asyncio.Future[None], None]] = {}

    @property
    def keys(self) -> list[str]:
        """What somebody waits for."""
        return list(self._bells)

    async def hold(self, key: str, seconds: float) -> None:
        """Until it is rung for, or for so long."""
        bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bells.setdefault(key, {})[bell] = None
        nap = asyncio.ensure_future(self._clock.async_sleep(seconds))
        try:
            await asyncio.wait([bell, nap], return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            bell.cancel()
            bells = self._bells.get(key, {})
            bells.pop(bell, None)
            if not bells:
                self._bells.pop(key, None)

    def ring(self, key: str) -> None:
        for bell in self._bells.pop(key, ()):
            if not bell.done():
                bell.set_result(None)

    def ring_all(self) -> None:
        for key in self.keys:
            self.ring(key)
