"""Which of many keys are due, when due times move all the time and mostly to later.

One heap entry per key: a key that moved to a later time is found when its old time comes and put back. So moving is a
dictionary write, and finding the due ones costs O(log n) each, once per period, not per move.
"""

from __future__ import annotations

import heapq


class ExpiryHeap:
    """Keys with a due time each."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        # Of each key with an entry in the heap, the earliest one. Invariant: scheduled[key] <= due[key].
        self._scheduled: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, key: str, at: float) -> None:
        """Make a key due at a time, instead of the time it had."""
        self._due[key] = at
        scheduled = self._scheduled.get(key)
        if scheduled is None or at < scheduled:
            self._scheduled[key] = at
            heapq.heappush(self._heap, (at, key))

    def discard(self, key: str) -> None:
        """Forget a key; harmless when it is not there."""
        self._due.pop(key, None)

    def pop_due(self, now: float) -> list[str]:
        """Remove and give the keys whose time has come, in order of their times."""
        entries: list[tuple[float, str]] = []
        one_by_one = len(self._heap) // 16
        while self._heap and self._heap[0][0] <= now:
            if len(entries) < one_by_one:
                entries.append(heapq.heappop(self._heap))
                continue
            # Many are due, as when a switch reboots: one pass and a sort beat that many pops.
            entries += sorted([entry for entry in self._heap if entry[0] <= now])
            self._heap = [entry for entry in self._heap if entry[0] > now]
            heapq.heapify(self._heap)
        found: list[tuple[float, str]] = []
        for at, key in entries:
            if self._scheduled.get(key) != at:
                continue  # an earlier entry of this key was handled already
            due = self._due.get(key)
            if due is not None and due > now:  # it moved to a later time
                self._scheduled[key] = due
                heapq.heappush(self._heap, (due, key))
                continue
            del self._scheduled[key]
            if due is not None:
                del self._due[key]
                found.append((due, key))
        found.sort()
        return [key for _, key in found]

    def next_due(self) -> float | None:
        """No key is due before this time; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._due)
