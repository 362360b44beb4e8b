"""Workflows of `test_flows.py`, served by real slot processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenure import Permanent, Retry, RetryAfter, workflow

SOON = Retry(delay=0.05, max_delay=0.1)


class LocalError(Exception):
    """An exception that no other process could make again: its `__init__` takes what its `args` do not have."""

    def __init__(self, one: int, *, two: int) -> None:
        super().__init__(f"{one} and {two}")


@workflow(retry=SOON, give_up_on=[LocalError])
def says(ctx: Any, what: str) -> int:
    if what == "permanent":
        raise Permanent("no such user")
    if what == "local":
        raise LocalError(1, two=2)
    if ctx.attempt == 1:
        raise RetryAfter(1.5)
    return int(ctx.attempt)


@workflow
def fetch(ctx: Any, rows: int) -> list[int]:
    return list(range(rows))


@workflow(retry=SOON, max_attempts=2)
def report(ctx: Any, broken: str = "") -> int:
    """Sums what was fetched, by the name of the workflow and by its function; fails while the file `broken` exists."""
    if broken and Path(broken).exists():
        raise ValueError("broken")
    assert ctx.results["rows"] == ctx.results[fetch]
    return sum(ctx.results[fetch])


@workflow(retry=SOON)
def large(ctx: Any, size: int) -> str:
    return "x" * size


@workflow
def measure(ctx: Any) -> int:
    return len(ctx.results[large])


@workflow
def sizes(ctx: Any, text: str, children: int = 0) -> list[int]:
    """Returns the length of its argument, and those that its children found."""
    made = [ctx.submit(sizes, text=text + "y", key=str(number)) for number in range(children)]
    return [len(text), *(one for child in made for one in child.wait())]
