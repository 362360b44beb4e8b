"""What `bench_slots` lets slots run."""

from __future__ import annotations

from typing import Any

from tenure import workflow


@workflow
def noop(ctx: Any) -> int:
    return 1
