"""Workflows for the benchmark of a datacenter."""

from __future__ import annotations

import time
from typing import Any

from tenure import workflow


@workflow
def nothing(ctx: Any) -> None:
    """A no-op."""


@workflow
def begun(ctx: Any) -> float:
    """When it began. Monotonic time is one clock for all processes of a machine."""
    return time.monotonic()


@workflow(stall=7_200.0)
def occupied(ctx: Any, path: str, quality: int) -> None:
    """Keeps its slot for an hour, so that what is behind it waits."""
    time.sleep(3_600.0)
