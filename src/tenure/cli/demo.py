"""`tenure demo`: a datacenter in a temporary folder, one job whose process is killed half-way, and the reasons for what happened."""

from __future__ import annotations

import os
import signal
import tempfile
from typing import Any

import click

from tenure.clock import SystemClock
from tenure.work.registry import workflow

FRAMES = 50
CRASH_AT = 30
CHECKPOINT_EVERY = 10
FRAME_S = 0.1


@workflow(stall=5, max_attempts=3)
def encode(ctx: Any, frames: int = FRAMES) -> int:
    """Each frame is a beat. The first attempt kills its own process, as a machine that fails would."""
    clock = SystemClock()
    for frame in range(ctx.resume or 0, frames):
        clock.sleep(FRAME_S)
        ctx.beat(progress=(frame + 1) / frames)
        if frame % CHECKPOINT_EVERY == 0:
            ctx.checkpoint(frame)  # the next attempt begins here
        if ctx.attempt == 1 and frame == CRASH_AT:
            os.kill(os.getpid(), signal.SIGKILL)
    return frames


@click.command("demo")
def demo() -> None:
    """Run a job of five seconds here, with a crash in the middle: its progress, what it returned, and why it went so.

    Everything is on SQLite in a temporary folder, which is removed at the end.
    """
    from tenure.local.embedded import embedded

    with (
        tempfile.TemporaryDirectory(prefix="tenure-demo-") as folder,
        embedded(folder, [encode], slots=1) as datacenter,
    ):
        job = datacenter.submit(encode)
        click.echo(f"job {job.id}: {FRAMES} frames; its process is killed at frame {CRASH_AT}, the first time")
        click.echo(f"it returned {job.wait(progress=True)}\n")
        click.echo(datacenter.why(job.id).text, nl=False)
        click.echo("\nThe same with your own code: tenure dev app.py")
