"""Collects the views of many ended jobs into one answer that is neither too large nor too slow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from tenure.clock import Clock
from tenure.control.messages.jobs import EndedJobs, JobView
from tenure.control.messages.wire import Reply
from tenure.errors import TenureError

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
