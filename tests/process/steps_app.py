"""Workflows of `test_steps.py`, served by real slot processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tenure import Retry, step, workflow

SOON = Retry(delay=0.05, max_delay=0.1)


@step
def write_line(path: str, line: str) -> int:
    with Path(path).open("a") as file:
        file.write(line + "\n")
    return len(line)


@workflow(retry=SOON)
def is_killed(ctx: Any, path: str) -> list[int]:
    done = [write_line.keyed("one")(path, "one")]
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(write_line.keyed("two")(path, "twice"))
    return done


@workflow(retry=SOON)
async def is_killed_async(ctx: Any, path: str) -> list[int]:
    done = [await ctx.step("one", write_line, path, "one")]
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(await ctx.step("two", write_line, path, "twice"))
    return done


def undo_or_die(path: str, line: str) -> None:
    """Kills its slot the first time, after it has written the line."""
    died = Path(path).with_suffix(".died")
    write_line.function(path, line)
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@workflow(retry=Retry(max_attempts=1))
def is_undone(ctx: Any, path: str) -> None:
    ctx.compensate(write_line, path, "first")
    ctx.compensate(undo_or_die, path, "second")
    ctx.compensate(write_line, path, "third")
    os.kill(os.getpid(), signal.SIGKILL)
