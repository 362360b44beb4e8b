"""Keeps next-due times in one heap: a check costs what is due, and nothing while nothing is.

Setting a later time for a key only notes it; the heap's old entry is corrected when it comes up. So work that beats
all the time, and whose due time moves with every beat, costs a dictionary write per beat.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    """Holds one next-due time for each key."""

    __slots__ = ("_due", "_heap", "_tickets")

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        # Equal times come up in the order in which they were set, and keys need not be comparable.
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, due: float) -> None:
        """Makes the key due at `due`, whatever was set before. Infinity removes it."""
        if due == math.inf:
            self._due.pop(key, None)
            return
        before = self._due.get(key)
        # An entry at or before `due` is in the heap already: it will come up early, and `_settle` corrects it then.
        if before is None or due < before:
            self._push(due, key)
        self._due[key] = due  # after the entry is in the heap: a key without one would never come up

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def due(self, key: K) -> float:
        """Returns when the key is due; infinity when it is not set."""
        return self._due.get(key, math.inf)

    def keys(self) -> Iterator[K]:
        """Returns the keys that are set, in the order in which each was first set."""
        return iter(self._due)

    def next_due(self) -> float:
        """Returns when the first key is due; infinity when there is none."""
        self._settle()
        return self._heap[0][0] if self._heap else math.inf

    def pop_due(self, now: float, limit: int | None = None) -> list[K]:
        """Removes and returns the keys that are due, earliest first, each once."""
        popped: list[K] = []
        while limit is None or len(popped) < limit:
            self._settle()
            if not self._heap or self._heap[0][0] > now:
                break
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            popped.append(key)
        return popped

    def _settle(self) -> None:
        """Drops or corrects entries at the top until the first one holds the due time of its key."""
        heap = self._heap
        while heap:
            noted, _, key = heap[0]
            actual = self._due.get(key)
            if actual == noted:
                return
            heapq.heappop(heap)
            # An entry that came up early is the key's only one below `actual`; push its true time.
            if actual is not None and actual > noted:
                self._push(actual, key)

    def _push(self, due: float, key: K) -> None:
        self._tickets += 1
        heapq.heappush(self._heap, (due, self._tickets, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._due):
            self._rebuild()

    def _rebuild(self) -> None:
        """Builds the heap anew from the keys, so that entries left behind do not outgrow them."""
        self._heap = [(due, ticket, key) for ticket, (key, due) in enumerate(self._due.items())]
        self._tickets = len(self._heap)
        heapq.heapify(self._heap)
