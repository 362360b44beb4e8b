"""Workflows that wait, for `test_waiting.py`. Each leaves a line for everything that it does, in the order in which it happened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tenure import Retry, workflow

SOON = Retry(delay=0.05, max_delay=0.1, max_attempts=5)


def note(path: str, text: str) -> str:
    """Writes one line with one write: safe from several processes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)
    return text


@workflow(retry=SOON)
def asks(ctx: Any, log: str, times: int = 1) -> list[Any]:
    """Waits for signals, one after the other."""
    ctx.step("ask", note, log, f"{ctx.job} asked")
    said = [ctx.wait_event("approved") for _ in range(times)]
    ctx.step("told", note, log, f"{ctx.job} told")
    return said


@workflow(retry=SOON)
def sleeps(ctx: Any, log: str, seconds: float) -> Any:
    """Sleeps with a checkpoint and a step behind it."""
    if ctx.resume is None:
        ctx.checkpoint({"at": 7})
    ctx.step("before", note, log, f"{ctx.job} before")
    ctx.sleep(minutes=seconds / 60)
    ctx.step("after", note, log, f"{ctx.job} after")
    return ctx.resume


@workflow(retry=SOON)
def child(ctx: Any, log: str, n: int) -> int:
    ctx.step("born", note, log, f"child-{n} {ctx.job}")
    ctx.wait_event("go")
    return n * n


@workflow(retry=SOON)
def parent(ctx: Any, log: str) -> int:
    children = [ctx.submit(child, log=log, n=n, key=str(n)) for n in (2, 3)]
    return sum(ctx.gather(children))


@workflow(retry=SOON)
def holds_when_awake(ctx: Any, log: str, until: str) -> str:
    """Waits for a signal, and then for a file: a test ends its worker meanwhile."""
    ctx.step("before", note, log, f"{ctx.job} before")
    ctx.wait_event("approved")
    ctx.step("first", note, log, f"{ctx.job} first")
    note(log, f"{ctx.job} awake")
    for _ in ctx.polling(0.05, 500, "the file"):
        if Path(until).exists():
            break
    ctx.step("last", note, log, f"{ctx.job} last")
    return "done"


@workflow(retry=Retry(delay=0.02, max_delay=0.05, max_attempts=10))
def counts(ctx: Any, log: str, steps: int, enough: str) -> int:
    """Says of each step when it runs, and when it is acknowledged. Before the last one it waits for a file."""
    note(log, f"pid {os.getpid()}")
    for number in range(steps):
        if number == steps - 1:
            note(log, f"waits {os.getpid()}")
            for _ in ctx.polling(0.05, 500, "the file"):
                if Path(enough).exists():
                    break
        ctx.step("count", note, log, f"ran {number}", key=str(number))
        note(log, f"ack {number}")
    return steps


@workflow(retry=SOON)
def leaf(ctx: Any, n: int) -> int:
    return n


@workflow(retry=SOON)
def family(ctx: Any, depth: int, children: int) -> int:
    """Counts its descendants: one child at each depth, and all of them at the last."""
    if depth > 1:
        return 1 + ctx.wait_job(ctx.submit(family, depth=depth - 1, children=children, key="heir"))  # type: ignore[no-any-return]
    found = [ctx.submit(leaf, n=1, key=str(number)) for number in range(children)]
    return sum(ctx.gather(found))
