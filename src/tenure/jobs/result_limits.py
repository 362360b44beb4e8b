"""Limits the results that the journal takes."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.errors import LimitError
from tenure.jobs.settings import LIMITS


def check_result(workflow: str, result: Any) -> None:
    """Raises `LimitError` for a result that is too large for the journal. It belongs into the store, and its key into the journal."""
    if result is None:
        return
    size = len(msgspec.json.encode(result))
    if size > LIMITS.max_result_bytes:
        raise LimitError(
            f"result of {workflow!r}",
            f"{size:,} bytes",
            f"at most {LIMITS.max_result_bytes:,} bytes",
            remedy="Put it into the store, and record its key",
        )
