"""Workflows near their deadlines. Served by real worker processes."""

from __future__ import annotations

import time
from typing import Any

from tenure import workflow


@workflow
def only_beats(ctx: Any) -> None:
    """Advances as far as anybody can see, and never ends by itself."""
    while True:
        ctx.beat()
        time.sleep(0.05)


@workflow
def stays_at_item_7(ctx: Any) -> None:
    """Beats, and gets nowhere."""
    while True:
        ctx.beat(progress=0.35, completed_items=7, total_items=20)
        time.sleep(0.05)


@workflow
def counts(ctx: Any, seconds: float) -> str:
    """Says how far it is, and ends."""
    begun = time.monotonic()
    while (done := (time.monotonic() - begun) / seconds) < 1:
        ctx.beat(progress=done)
        time.sleep(0.05)
    return "done"
