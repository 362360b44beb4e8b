"""What honest clients ask for while others do harm. Served by real worker processes."""

from __future__ import annotations

from typing import Any

from tenure import workflow


@workflow
def double(ctx: Any, n: int) -> int:
    return n * 2
