"""Defines what the journal keeps of a worker, as plain data. Only the folds of `workers.py` and `extensions.py` change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

EVICTED = "evict"
"""The verdict on an evicted worker. Its attempts have failed, and the leader has issued them anew."""

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


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
    until: float = 0.0
    """The time by which what runs there has to leave; 0 where it may run to its end."""
    moved: int = 0
    """The attempts that left since."""
    lost_s: float = 0.0
    """The seconds of work that these did since they last saved, and that are done again."""


def note_departure(book: JobBook, worker: str, lost_s: float) -> None:
    """Notes that an attempt left a worker, where that worker is drained."""
    if (record := book.state.drained.get(worker)) is not None:
        book.state.drained[worker] = msgspec.structs.replace(
            record, moved=record.moved + 1, lost_s=record.lost_s + lost_s
        )
