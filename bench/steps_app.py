"""What `bench_steps` lets a slot run: the time that each step, or each checkpoint, takes inside the workflow."""

from __future__ import annotations

import time
from typing import Any

from tenure import workflow


def nothing(number: int) -> int:
    return number


@workflow
def steps(ctx: Any, count: int) -> float:
    begun = time.perf_counter()
    for number in range(count):
        ctx.step("step", nothing, number, key=str(number))
    return (time.perf_counter() - begun) / count


@workflow
def checkpoints(ctx: Any, count: int) -> float:
    begun = time.perf_counter()
    for number in range(count):
        ctx.checkpoint({"at": number})
    return (time.perf_counter() - begun) / count
