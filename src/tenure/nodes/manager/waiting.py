"""Those who wait for the end of a job, woken when the book shows it."""

from __future__ import annotations

from collections.abc import Callable

from tenure.clock import Clock
from tenure.nodes.held import Held


class Waiting:
    """`look` after each change of the book costs one question for each job that somebody waits for."""

    def __init__(self, has_ended: Callable[[str], bool], clock: Clock) -> None:
        self._has_ended, self._held = has_ended, Held(clock)
        self._closed = False

    async def until_ended(self, job_id: str, seconds: float) -> None:
        """Returns when the job has ended, when the time is over, or when the node stops."""
        if not self._closed and not self._has_ended(job_id):
            await self._held.hold(job_id, seconds)

    def look(self) -> None:
        """The book changed."""
        for job_id in self._held.keys:
            if self._has_ended(job_id):
                self._held.ring(job_id)

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        self._held.ring_all()
