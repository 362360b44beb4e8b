"""Workflows for the tests of gates. Served by real worker processes."""

from __future__ import annotations

import time
from typing import Any

from tenure import workflow


@workflow(stall=60)
def endless(ctx: Any) -> None:
    """Advances, and never ends by itself."""
    while True:
        time.sleep(0.05)
        ctx.beat()


@workflow(stall=60)
def render(ctx: Any, frames: int) -> int:
    for frame in range(frames):
        time.sleep(0.05)
        ctx.beat(progress=(frame + 1) / frames)
    return frames
