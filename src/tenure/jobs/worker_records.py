"""Defines what the journal keeps of a worker, as plain data. Only the folds of `workers.py` and `extensions.py` change it."""

from __future__ import annotations

import msgspec

EVICTED = "evict"
"""The verdict on an evicted worker. Its attempts have failed, and the leader has issued them anew."""


class WorkerRecord(msgspec.Struct, kw_only=True):
    """Holds what the journal knows of a worker, so that a new leader neither forgets a verdict nor grants a second series of extensions."""

    incarnation: str = ""
    verdict: str = "route"
    reason: str = ""
    since: float = 0.0
    extension_count: int = 0
    total_extended: float = 0.0
    last_progress: float = 0.0
    last_counter: int | None = None
    deadline: float = 0.0
    """The time until which its last extension reaches. Reports since then may have moved its deadline further."""


class DrainRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Records that an operator drained a worker."""

    at: float
    by: str = ""
    reason: str = ""
