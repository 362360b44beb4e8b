"""Work whose starts can be counted, in slots that may be struck."""

from __future__ import annotations

from typing import Any

import tests.process.slots.struck_worker  # noqa: F401  strikes this slot, where the test wants that
from tests.process.slots.app import note

from tenure import workflow
from tenure.backoff import Retry


@workflow(max_attempts=5, stall=30, retry=Retry(delay=0.01, max_delay=0.01))
def count(ctx: Any, one: int, log: str) -> int:
    note(log, f"{one} {ctx._handle.delivery.ticket.delivery_count} {ctx._handle.delivery.ticket.receipt_handle}")
    return one
