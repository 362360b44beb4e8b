"""The workflows of the datacenter's story: one that works, and one that hangs the first time."""

from __future__ import annotations

from typing import Any

from tenure.clock import SystemClock
from tenure.work import workflow

STEP_S = 0.1
HANG_AFTER = 10


@workflow(stall=3)
def render(ctx: Any, frames: int) -> int:
    """Each frame is a beat."""
    clock = SystemClock()
    for frame in range(frames):
        clock.sleep(STEP_S)
        ctx.beat(progress=(frame + 1) / frames)
    return frames


@workflow(stall=3)
def flaky(ctx: Any, frames: int) -> int:
    """Hangs in its first attempt, as if an answer never came."""
    clock = SystemClock()
    for frame in range(frames):
        clock.sleep(STEP_S)
        ctx.beat(progress=(frame + 1) / frames)
        if ctx.attempt == 1 and frame == HANG_AFTER:
            clock.sleep(3_600)
    return frames
