"""What the left one of the two workers of the catalogue's benchmark serves."""

from __future__ import annotations

from typing import Any

from tenure import workflow


@workflow
def left(ctx: Any) -> None:
    """A no-op that only this worker serves."""


@workflow
def equal(ctx: Any) -> None:
    """A no-op that both workers serve."""
