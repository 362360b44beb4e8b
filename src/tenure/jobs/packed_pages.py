"""Holds the records of jobs of one page packed (decision 0581), and the elections that they may not have seen."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tenure.jobs.job_kinds import PageSummary


class SeenElection(NamedTuple):
    """An election that packed records may not have seen."""

    at: float
    line: bytes
    """The event, for the histories of jobs; empty where they keep none."""


class PackedPage:
    """The records of some jobs of one page, as they were when `seen` elections had been."""

    __slots__ = ("bytes", "count", "first_id", "last_id", "left", "number", "seen", "size", "summary")

    def __init__(
        self,
        number: int,
        compressed: bytes,
        size: int,
        ids: Collection[str],
        left: int,
        seen: int,
        summary: PageSummary,
    ) -> None:
        self.number, self.bytes, self.summary = number, compressed, summary
        self.first_id, self.last_id = min(ids, default=""), max(ids, default="")
        """The bounds of their ids, as text: no id with a given prefix is outside of them."""
        self.count, self.size = len(ids), size
        """The number of all records in it, and their bytes before they were compressed."""
        self.left = left
        """The records that are not held in another way by now."""
        self.seen = seen

    @property
    def share(self) -> int:
        """The bytes that one record has in a snapshot, on average."""
        return self.size // max(1, self.count)
