"""Workflows that behave, hang, crash and lie, for the tests of slots. Served by real worker processes."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import itertools
import logging
import os
import signal
import subprocess
import sys
import time
from os import _exit
from pathlib import Path
from typing import Any

from tenure import current, workflow
from tenure.backoff import Retry

SOON = Retry(delay=0.05, max_delay=0.2)
TRIES = 6
"""Of work that may be silent for half a second only: a machine that stands still for longer costs an attempt, rightly."""


def note(path: str, text: str) -> None:
    """One line, one write: safe from several processes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


@workflow(max_attempts=50, retry=SOON)
def add(ctx: Any, one: int, two: int = 1, log: str = "") -> int:
    if log:
        note(log, f"start {one} {ctx.attempt} {os.getpid()} {time.monotonic()}")
        ctx.beat()
        note(log, f"end {one} {ctx.attempt} {os.getpid()} {time.monotonic()}")
    return one + two


@workflow(stall=0.6, max_attempts=TRIES, retry=SOON)
def hold_the_gil(ctx: Any) -> str:
    if ctx.attempt == 1:
        collections.deque(itertools.repeat(0), maxlen=0)  # an endless loop inside C: no signal, no thread gets in
    return "second attempt"


@workflow(stall=0.6, max_attempts=TRIES, retry=SOON)
def stop_myself(ctx: Any) -> str:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return "second attempt"


@workflow(max_attempts=2, retry=SOON)
def kill_myself(ctx: Any) -> str:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "second attempt"


@workflow(stall=30)
def crash_in_c(ctx: Any) -> str:
    ctx.beat(note="about to read address 0")
    ctypes.string_at(0)
    return "never"


@workflow(max_attempts=2, retry=SOON)
def exit_hard(ctx: Any) -> str:
    if ctx.attempt == 1:
        _exit(17)
    return "second attempt"


@workflow(max_attempts=2, retry=SOON)
def exit_softly(ctx: Any) -> str:
    if ctx.attempt == 1:
        sys.exit(4)
    return "second attempt"


@workflow(max_attempts=1)
def eat_memory(ctx: Any) -> int:
    kept = [bytearray(1 << 20) for _ in range(4_096)]
    return len(kept)


@workflow(max_attempts=2, retry=SOON)
def fork_and_leave(ctx: Any, log: str) -> str:
    child = os.fork()
    if child == 0:
        time.sleep(1_000)
    note(log, str(child))
    return "forked"


@workflow(stall=0.6, max_attempts=TRIES, retry=SOON)
def daemon_grandchild(ctx: Any, log: str) -> str:
    """A double fork with a session of its own, then a hang: the classic way to get away."""
    if ctx.attempt == 1:
        subprocess.Popen(["sh", "-c", f"setsid sleep 1000 & echo $! >> {log}"], start_new_session=True).wait()
        time.sleep(1_000)
    return "second attempt"


@workflow(stall=30, max_attempts=3, retry=SOON)
def count_on(ctx: Any, until: int, log: str) -> list[int]:
    """Kills itself half way; the next attempt goes on from the checkpoint."""
    done: list[int] = ctx.resume or []
    for n in range(len(done), until):
        done.append(n)
        ctx.checkpoint(done)
        note(log, f"{ctx.attempt} {n}")
        if n == until // 2 and ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return done


@workflow(stall=3.0)
def declared_silence(ctx: Any) -> str:
    with ctx.silence(max_s=60, why="a slow answer"):
        time.sleep(5)
    return "not killed"


@workflow(stall=60)
def beat_for(ctx: Any, seconds: float, log: str = "") -> int:
    until = time.monotonic() + seconds
    if log:
        note(log, f"start {ctx.attempt} {os.getpid()}")
    beats = 0
    while time.monotonic() < until:
        ctx.beat(progress=min(1.0, 1 - (until - time.monotonic()) / seconds))
        beats += 1
        time.sleep(0.01)
    return beats


@workflow(stall=60)
def beat_until(ctx: Any, told: str, log: str) -> int:
    """Beats until the file is there: nobody has to guess how long it takes until something else has happened."""
    note(log, f"start {ctx.attempt} {os.getpid()}")
    beats = 0
    try:
        while not Path(told).exists():
            ctx.beat()
            beats += 1
            time.sleep(0.01)
    except BaseException:
        note(log, f"stopped {ctx.attempt} {os.getpid()}")
        raise
    return beats


@workflow(stall=60)
def save_when_told(ctx: Any, told: str, log: str) -> str:
    """Saves once when the file is there, and goes on until it is stopped. The next one has what was saved."""
    if ctx.resume is not None:
        return str(ctx.resume)
    note(log, f"start {ctx.attempt} {os.getpid()}")
    saved = False
    while True:
        ctx.beat()
        if not saved and Path(told).exists():
            ctx.checkpoint("saved")
            saved = True
        time.sleep(0.01)


@workflow(stall=60)
def ignore_cancel(ctx: Any, log: str) -> None:
    note(log, f"start {ctx.attempt} {os.getpid()}")
    while True:
        with contextlib.suppress(Exception):
            ctx.beat()
        time.sleep(0.01)


@workflow(timeout=0.5, max_attempts=1)
def too_long(ctx: Any) -> None:
    while True:
        ctx.beat()
        time.sleep(0.01)


@workflow
def with_log(ctx: Any) -> str:
    ctx.log.info("from the context: %d", 1)
    logging.getLogger("somebody.else").warning("from a library")
    assert current() is ctx
    return "logged"


@workflow(max_attempts=1)
def raises(ctx: Any) -> None:
    raise ValueError("this workflow is wrong")


@workflow(stall=20)
async def add_slowly(ctx: Any, one: int, seconds: float = 0.05) -> int:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(0.01)
        ctx.beat()
    return one + 1


@workflow(stall=0.8, max_attempts=TRIES, retry=SOON)
async def block_the_loop(ctx: Any) -> str:
    if ctx.attempt == 1:
        ctx.beat()
        collections.deque(itertools.repeat(0), maxlen=0)
    return "second attempt"


@workflow(stall=0.5, max_attempts=TRIES, retry=SOON)
async def wait_for_ever(ctx: Any, log: str) -> str:
    if ctx.attempt == 1:
        try:
            await asyncio.Event().wait()
        finally:
            note(log, "cancelled in the task")
    return "second attempt"


@workflow
def crash_on_import_flag(ctx: Any) -> str:
    return "served"


if (flag := os.environ.get("TENURE_TEST_BREAK_IMPORT")) and Path(flag).exists():
    raise RuntimeError("this module cannot be imported today")
