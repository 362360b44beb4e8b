"""The workflows of the world's story: one that ends, and one that advances for ever."""

from __future__ import annotations

from typing import Any

from tenure.clock import SystemClock
from tenure.work import workflow

STEP_S = 0.1


@workflow(stall=5)
def render(ctx: Any, frames: int) -> int:
    """Each frame is a beat."""
    clock = SystemClock()
    for frame in range(frames):
        clock.sleep(STEP_S)
        ctx.beat(progress=(frame + 1) / frames)
    return frames


@workflow(stall=5)
def endless(ctx: Any) -> None:
    """Advances, and never ends: only its deadline can end it."""
    clock = SystemClock()
    while True:
        clock.sleep(STEP_S)
        ctx.beat()
