"""The workflow that the workers of compose.yaml serve: replace this folder by your own code."""

import time

from tenure import workflow


@workflow(stall=30)
def count(ctx, steps: int = 100) -> int:
    """Counts slowly; each step is a beat, and every tenth a checkpoint."""
    for step in ctx.track(range(ctx.resume or 0, steps)):
        time.sleep(0.1)
        if step % 10 == 0:
            ctx.checkpoint(step)
    return steps
