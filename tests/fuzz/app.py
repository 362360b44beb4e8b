"""Workflows that fuzzed jobs, and honest ones, call."""

from __future__ import annotations

from typing import Any

from tenure import workflow


@workflow
def echo(ctx: Any, value: Any = None) -> Any:
    return value


@workflow(max_attempts=2)
def raises(ctx: Any) -> None:
    raise ValueError("as it was written")


@workflow
def double(ctx: Any, n: int) -> int:
    """What honest clients ask for."""
    ctx.beat()
    return n * 2
