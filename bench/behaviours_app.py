"""Workflows for the benchmark of behaviours. Each tells a file what happens, with the machine's monotonic time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tenure import workflow

STALL_S = 3.0


def tell(path: str, what: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{what} {os.getpid()} {time.monotonic()}\n")


@workflow
def healthy(ctx: Any, path: str, seconds: float) -> None:
    """Works for longer than its lease, and beats."""
    tell(path, "started")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.2)
        ctx.beat()


@workflow(stall=STALL_S, max_attempts=1)
def hangs(ctx: Any, path: str) -> None:
    """Beats once, and never again."""
    ctx.beat()
    tell(path, "started")
    time.sleep(3_600.0)


@workflow(stall=600.0)
def silent(ctx: Any, path: str) -> None:
    """Hangs for as long as the benchmark takes, within its stall threshold: nobody ends it."""
    tell(path, "started")
    time.sleep(3_600.0)


@workflow
def short(ctx: Any, path: str) -> None:
    tell(path, "done")
