"""Workflows that do harm to their slot, their worker and their machine, for the tests of poison. Served by real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from os import _exit
from pathlib import Path
from typing import Any

from tests.process.slots.app import SOON, note

from tenure import workflow
from tenure.work.slots.slot_channel import SlotChannel

if path := os.environ.get("TENURE_TEST_DAEMON"):
    # What a library starts when it is imported: it belongs to the slot, and not to any attempt.
    note(path, str(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid))


@workflow(max_attempts=50, retry=SOON)
def add(ctx: Any, one: int, two: int = 1) -> int:
    return one + two


@workflow(max_attempts=3, retry=SOON)
def kill_the_worker(ctx: Any, log: str) -> str:
    note(log, f"start {ctx.attempt}")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1_000)
    return "never"


@workflow(stall=0.5, max_attempts=2, retry=SOON)
def hang(ctx: Any, log: str) -> None:
    note(log, f"start {ctx.attempt}")
    while True:
        time.sleep(1_000)


@workflow(max_attempts=1)
def close_descriptors(ctx: Any) -> str:
    os.closerange(3, 4_096)
    return "closed"


@workflow(max_attempts=1)
def hang_the_settler(ctx: Any) -> str:
    """Its code runs in the process that hands its outcome over, and can break that."""
    SlotChannel.finish = lambda *args, **options: time.sleep(1_000)  # type: ignore[assignment,method-assign]
    return "done"


@workflow(max_attempts=1)
def leave_children(ctx: Any, log: str) -> int:
    """Twenty processes: plain ones, some that ignore SIGTERM, stopped ones, and daemons with sessions of their own."""
    for n in range(20):
        if (pid := os.fork()) == 0:
            if n % 4 == 1:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if n % 4 == 2:
                os.setsid()
                if os.fork():
                    _exit(0)
            note(log, str(os.getpid()))
            if n % 4 == 3:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1_000)
        if n % 4 == 2:
            os.waitpid(pid, 0)
    while len(Path(log).read_text().split()) < 20:
        time.sleep(0.01)
    return os.getpid()


@workflow(max_attempts=1)
def whoami(ctx: Any) -> int:
    return os.getpid()


@workflow(max_attempts=1)
def fork_and_return(ctx: Any) -> str:
    return "parent" if os.fork() else "child"


@workflow(max_attempts=1)
async def exit_in_the_loop(ctx: Any) -> None:
    await asyncio.sleep(0.2)
    sys.exit(7)


@workflow(stall=30, max_attempts=1)
async def stay(ctx: Any, told: str) -> str:
    while not Path(told).exists():
        await asyncio.sleep(0.01)
        ctx.beat()
    return "stayed"


@workflow(max_attempts=1)
def write_to_the_line(ctx: Any) -> str:
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                socket.socket(fileno=os.dup(descriptor)).send(b'{"type": "nonsense"}\n\xff\xfe garbage\n')
        except OSError:
            continue
    return "written"


@workflow(stall=30, max_attempts=1)
def damage_the_board(ctx: Any) -> None:
    ctx._handle.record._ints[3] = 77
    time.sleep(1_000)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@workflow(max_attempts=1)
def raise_badly(ctx: Any, how: str) -> None:
    if how == "mute":
        raise Mute
    if how == "surrogate":
        raise ValueError("half a \udc80 character")
    if how == "long":
        raise ValueError("x" * 2_000_000)
    if how == "base":
        raise GeneratorExit("not even an Exception")
