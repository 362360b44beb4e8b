"""Which of many keys are due, when due times move all the time and mostly to later.

One heap entry per key: a key that moved to a later time is found when its old time comes and put back. So moving is a
dictionary write, and finding the due ones costs O(log n) each, once per period, not per move.
"""

from __future__ import annotations

import heapq
from typing import Final

_NEVER: Final = float("inf")


class ExpiryHeap:
    """Keys with a due time each."""

    def __init__(self) -> None:
        # Of each key with an entry in the heap: when it is due (never, if it was discarded), and the time of its earliest
        # entry. Invariant: entry <= due.
        self._keys: dict[str, list[float]] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, key: str, at: float) -> None:
        """Make a key due at a time, instead of the time it had."""
        times = self._keys.get(key)
        if times is None:
            self._keys[key] = [at, at]
            heapq.heappush(self._heap, (at, key))
        else:
            times[0] = at
            if at < times[1]:
                times[1] = at
                heapq.heappush(self._heap, (at, key))

    def discard(self, key: str) -> None:
        """Forget a key; harmless when it is not there."""
        if key in self._keys:
            self._keys[key][0] = _NEVER

    def pop_due(self, now: float) -> list[str]:
        """Remove and give the keys whose time has come, in order of their times."""
        found: list[tuple[float, str]] = []
        keys = self._keys
        for entry in self._take(now):
            at, key = entry
            times = keys.get(key)
            if times is None or times[1] != at:
                continue  # an earlier entry of this key was handled already
            due = times[0]
            if due == at:
                del keys[key]
                found.append(entry)
            elif due <= now:
                del keys[key]
                found.append((due, key))
            elif due == _NEVER:
                del keys[key]
            else:  # it moved to a later time
                times[1] = due
                heapq.heappush(self._heap, (due, key))
        found.sort()
        return [key for _, key in found]

    def _take(self, now: float) -> list[tuple[float, str]]:
        """Remove and give the entries up to now, in any order."""
        heap, taken = self._heap, list[tuple[float, str]]()
        for _ in range(len(heap) // 64):
            if heap[0][0] > now:
                return taken
            taken.append(heapq.heappop(heap))
        if heap and heap[0][0] <= now:
            # Many are due, as when a switch reboots: one pass beats that many pops.
            taken += [entry for entry in heap if entry[0] <= now]
            self._heap = [entry for entry in heap if entry[0] > now]
            heapq.heapify(self._heap)
        return taken

    def next_due(self) -> float | None:
        """No key is due before this time; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return sum(due < _NEVER for due, _ in self._keys.values())
