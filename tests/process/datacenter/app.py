"""Workflows for the tests of a datacenter. Served by real worker processes."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import nullcontext, suppress
from typing import Any

from tenure import workflow
from tenure.errors import Cancelled


def note(path: str, text: str) -> None:
    """One line, one write: safe from several processes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


@workflow
def step(ctx: Any, n: int, log: str, seconds: float = 0.01) -> int:
    """A short piece of work that leaves a trace of each run."""
    time.sleep(seconds)
    note(log, str(n))
    return n * 2


@workflow(stall=30)
def beat_for(ctx: Any, seconds: float, log: str) -> str:
    """Beats all the time; says when it begins and, if it gets there, when it ends."""
    note(log, f"start {ctx.attempt}")
    try:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ctx.beat(progress=min(1.0, max(0.0, 1 - left / seconds)))
            time.sleep(0.02)
    except BaseException:
        note(log, f"stopped {ctx.attempt}")
        raise
    note(log, f"end {ctx.attempt}")
    return "done"


@workflow(stall=30)
def beat_until(ctx: Any, told: str, log: str) -> str:
    """Beats until the file is there, so that nobody has to guess how long other things take."""
    note(log, f"start {ctx.attempt}")
    while not os.path.exists(told):
        ctx.beat()
        time.sleep(0.02)
    note(log, f"end {ctx.attempt}")
    return "done"


@workflow(stall=1, max_attempts=1)
def hard_to_stop(ctx: Any, silent: str, busy: str, log: str) -> None:
    """Falls silent until a file is there, and is told to stop meanwhile; then tidies up, beating, until another file is there."""
    ctx.beat(progress=0.5)
    note(log, "silent")
    while not os.path.exists(silent):
        time.sleep(0.02)
    note(log, "tidies up")
    while not os.path.exists(busy):
        time.sleep(0.02)
        with suppress(Cancelled):
            ctx.beat()
    ctx.raise_if_cancelled()


@workflow(stall=30)
def talk(ctx: Any, log: str) -> None:
    """Prints and logs at once, and then waits to be told to go on."""
    logging.basicConfig(level=logging.INFO, format="a handler of the user's: %(message)s", force=False)
    print("printed one")
    logging.getLogger("tenure.workflow").info("logged two")
    print("complained three", file=sys.stderr)
    while not os.path.exists(log):
        ctx.beat()
        time.sleep(0.02)
    print("printed last", end="")


@workflow
def large(ctx: Any, size: int) -> str:
    return "x" * size


@workflow
def raises(ctx: Any) -> None:
    raise ValueError("this workflow is wrong")


@workflow(stall=30)
def be_silent(ctx: Any, seconds: float, log: str) -> str:
    """Never beats, and may do so for up to its stall."""
    note(log, f"start {ctx.attempt}")
    time.sleep(seconds)
    note(log, f"end {ctx.attempt}")
    return "done"


@workflow(max_attempts=5)
def think(ctx: Any, done: str, log: str, declared_s: float = 0.0) -> int:
    """Shows a step, and is silent until a file is there, as a model call is; declared for that long, or within its stall threshold."""
    ctx.beat(progress=0.1)
    note(log, f"silent {ctx.attempt}")
    with ctx.silence(max_s=declared_s, why="model call") if declared_s else nullcontext():
        while not os.path.exists(done):
            time.sleep(0.02)
    return int(ctx.attempt)


@workflow(stall=30, max_attempts=1)
def count_until(ctx: Any, told: str, log: str) -> int:
    """Counts on from its checkpoint, saves each number, and returns the last one when the file is there."""
    count = ctx.resume or 0
    note(log, f"attempt {ctx.attempt} begins at {count}")
    while not os.path.exists(told):
        count += 1
        ctx.checkpoint(count)
        note(f"{log}.saved", f"{os.getpid()} {count}")
        time.sleep(0.02)
    return int(count)


@workflow
def save_and_wait(ctx: Any, rounds: int, log: str) -> int:
    """Saves one more round than it found, and then waits to be killed; in the last round it returns."""
    done = (ctx.resume or 0) + 1
    if done > rounds:
        return done
    ctx.checkpoint(done)
    note(log, f"saved {done}")
    while True:
        ctx.beat()
        time.sleep(0.05)
