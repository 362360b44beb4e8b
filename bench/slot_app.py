"""What `bench_slots` lets slots run."""

from __future__ import annotations

import collections
import itertools
from typing import Any

from tenure import workflow
from tenure.backoff import Retry


@workflow
def noop(ctx: Any) -> int:
    return 1


@workflow(stall=0.6, max_attempts=2, retry=Retry(delay=0.05, max_delay=0.2))
def hang_once(ctx: Any) -> int:
    if ctx.attempt == 1:
        collections.deque(itertools.repeat(0), maxlen=0)  # an endless loop inside C
    return 1
