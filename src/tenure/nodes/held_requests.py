"""Holds requests back until what they wait for has happened, or their time is over, and collects the jobs that have ended into one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import takewhile

import msgspec

from tenure.clock import Clock
from tenure.control.messages.jobs import EndedJobs, JobView
from tenure.control.messages.wire import Reply
from tenure.engines.long_poll import LoopWaiter
from tenure.errors import NodeUnavailableError, TenureError

MOST_HELD = 5_000
"""More than a port holds for all its callers (`HttpLimits.waiting`): reached only where requests come by another way."""
MOST_KEYS = 600_000
"""The keys for which all requests wait together: about 200 MB, and more than one caller reaches (`HttpLimits.waiting_each` times `MAX_LISTED`). A request
that waits for one key only is never refused for it."""


class Held:
    """The held requests, by the key that they wait for: the id of a job, or a worker. `ring(key)` wakes every request that waits for `key`."""

    def __init__(self, clock: Clock, most: int = MOST_HELD, most_keys: int = MOST_KEYS) -> None:
        self._clock, self._most, self._most_keys, self._count = clock, most, most_keys, 0
        self._waiters: dict[str, dict[LoopWaiter, None]] = {}
        self._ended: dict[str, None] | None = None
        self._newest = ""

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
        if len(waited) > 1 and len(self._waiters) + len(waited) > self._most_keys:
            raise NodeUnavailableError(
                f"{len(self._waiters):,} jobs are waited for here already",
                remedy="Ask for fewer at once",
                retry_after_s=1.0,
            )
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

    def ring_ended(self, ended: dict[str, None], has_ended: Callable[[str], bool]) -> None:
        """Rings the keys that came into `ended` since the last call. It grows at its end, so a look costs what has ended, and not what is waited for.

        Where it is another one, as after a takeover, `has_ended` is asked for every key.
        """
        if ended is not self._ended:
            for key in filter(has_ended, self.keys):
                self.ring(key)
        elif self._waiters:
            for key in takewhile(lambda one: one != self._newest, reversed(ended)):
                self.ring(key)
        self._ended, self._newest = ended, next(reversed(ended), "")

    def ring_all(self) -> None:
        for key in self.keys:
            self.ring(key)


COLLECTED_BYTES = 1 << 20
"""An answer takes no further job beyond this size. The largest view has 7 MiB of results, and a client reads 16 MiB."""
COLLECTED_S = 1.0
"""An answer takes no further job after this time: a gate asks a datacenter for each."""


async def ended_views(view: Callable[[str], Awaitable[Reply]], job_ids: Iterable[str], clock: Clock) -> EndedJobs:
    """Returns the views of these jobs, as far as one answer holds them. `view` returns that of one job, or the reply that says why there is none."""
    views, alone, size, until = list[JobView](), list[str](), 0, clock.monotonic() + COLLECTED_S
    for job_id in job_ids:
        try:
            found = await view(job_id)
        except TenureError:
            # The caller asks for this one alone, and gets the error itself. The others are not kept from their results.
            alone.append(job_id)
            continue
        if isinstance(found, JobView) and found.ended:
            views.append(found)
            size += len(msgspec.json.encode(found))
        else:
            alone.append(job_id)
        if size > COLLECTED_BYTES or clock.monotonic() > until:
            break
    return EndedJobs(jobs=tuple(views), ask_alone=tuple(alone))
