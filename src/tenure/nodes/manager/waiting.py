"""Holds the requests that wait for the end of a job, and wakes them when the book shows that end."""

from __future__ import annotations

from collections.abc import Callable

from tenure.clock import Clock
from tenure.nodes.held import Held


class Waiting:
    """Holds requests by the job that they wait for. The candidacy calls `look` after each change of the book; it costs one question per job."""

    def __init__(self, has_ended: Callable[[str], bool], clock: Clock) -> None:
        self._has_ended, self._held = has_ended, Held(clock)
        self._closed = False

    async def until_ended(self, job_id: str, seconds: float) -> None:
        """Returns when the job has ended, when the time is over, or when the node stops."""
        if not self._closed and not self._has_ended(job_id):
            await self._held.hold(job_id, seconds)

    def look(self) -> None:
        """Wakes the requests whose job has ended."""
        for job_id in self._held.keys:
            if self._has_ended(job_id):
                self._held.ring(job_id)

    def close(self) -> None:
        """Wakes every request, and holds no more: the node stops."""
        self._closed = True
        self._held.ring_all()
