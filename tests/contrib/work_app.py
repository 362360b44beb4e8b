"""Workflows that the tests of the frameworks have run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenure import workflow


@workflow
def count(ctx: Any, to: int) -> int:
    for number in ctx.track(range(to)):
        ctx.beat(note=f"at {number}")
    return to


@workflow
def wait_for_file(ctx: Any, path: str) -> str:
    for _ in ctx.polling(0.05, 60, "the file"):
        if Path(path).exists():
            break
    return "found"


SERVED = (count, wait_for_file)
