"""Those who wait for the end of a job, woken when the book shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.clock import Clock


class Waiting:
    """`look` after each change of the book costs one question for each job that somebody waits for."""

    def __init__(self, has_ended: Callable[[str], bool], clock: Clock) -> None:
        self._has_ended, self._clock = has_ended, clock
        self._bells: dict[str, dict[asyncio.Future[None], None]] = {}
        self._closed = False

    async def until_ended(self, job_id: str, seconds: float) -> None:
        """Returns when the job has ended, when the time is over, or when the node stops."""
        if self._closed or self._has_ended(job_id):
            return
        bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bells.setdefault(job_id, {})[bell] = None
        nap = asyncio.ensure_future(self._clock.async_sleep(seconds))
        try:
            await asyncio.wait([bell, nap], return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            bell.cancel()
            bells = self._bells.get(job_id, {})
            bells.pop(bell, None)
            if not bells:
                self._bells.pop(job_id, None)

    def look(self) -> None:
        """The book changed."""
        for job_id in [job_id for job_id in self._bells if self._has_ended(job_id)]:
            self._ring(job_id)

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        for job_id in list(self._bells):
            self._ring(job_id)

    def _ring(self, job_id: str) -> None:
        for bell in self._bells.pop(job_id, ()):
            if not bell.done():
                bell.set_result(None)
