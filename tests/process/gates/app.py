"""Workflows for the tests of gates. Served by real worker processes.

They declare no stall of their own: the tests give jobs stuck thresholds of a few seconds, and a datacenter that knows the stall of a function
refuses a job whose stuck threshold is not above it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tenure import workflow


@workflow
def endless(ctx: Any) -> None:
    """Advances, and never ends by itself."""
    while True:
        time.sleep(0.05)
        ctx.beat()


@workflow
def falls_silent(ctx: Any, until: str) -> None:
    """Advances until a file of that name, with the datacenter's as its ending, is there. Then it hangs, as far as anybody can see."""
    told = Path(f"{until}.{os.environ['PLACE']}")
    while not ctx.cancelled:
        time.sleep(0.05)
        if not told.exists():
            ctx.beat()


@workflow
def render(ctx: Any, frames: int) -> int:
    for frame in range(frames):
        time.sleep(0.05)
        ctx.beat(progress=(frame + 1) / frames)
    return frames
