"""Keeps next-due times in one heap: a check costs what is due, and nothing while nothing is.

Setting a later time for a key only notes it; the heap's old entry is corrected when it comes up. So work that beats
all the time, and whose due time moves with every beat, costs a dictionary write per beat. Deadlines of jobs, of workers and of nodes are kept so.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
TAKEN_SINGLY = 64
"""So many entries at least are taken from the heap one by one, and one in so many of those in it."""


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
        if before is not None and due >= before:
            # An entry at or before `due` is in the heap already: it will come up early, and `_settle` corrects it then.
            self._due[key] = due
            return
        # The heap comes first: a key that is noted as due and has no entry would never come up.
        self._tickets += 1
        heapq.heappush(self._heap, (due, self._tickets, key))
        self._due[key] = due
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._due):
            self._rebuild()

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
        if limit is None:
            return self._pop_all(now)
        popped: list[K] = []
        while len(popped) < limit and self.next_due() <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            popped.append(key)
        return popped

    def _pop_all(self, now: float) -> list[K]:
        found: list[tuple[float, int, K]] = []
        for noted, ticket, key in self._take_early(now):
            due = self._due.get(key)
            if due is None:
                continue  # it was cancelled, or an earlier entry of it was handled already
            if due != noted:
                self._tickets += 1
                ticket = self._tickets
            if due <= now:
                del self._due[key]
                found.append((due, ticket, key))
            else:  # it moved to a later time
                heapq.heappush(self._heap, (due, ticket, key))
        found.sort()  # no ticket is there twice, so keys are never compared
        return [key for _, _, key in found]

    def _take_early(self, now: float) -> list[tuple[float, int, K]]:
        """Takes the entries up to now out of the heap."""
        heap, taken = self._heap, list[tuple[float, int, K]]()
        for _ in range(max(TAKEN_SINGLY, len(heap) // TAKEN_SINGLY)):
            if not heap or heap[0][0] > now:
                return taken
            taken.append(heapq.heappop(heap))
        # There are many, as when a switch reboots: one pass beats as many pops.
        taken += [entry for entry in heap if entry[0] <= now]
        self._heap = [entry for entry in heap if entry[0] > now]
        heapq.heapify(self._heap)
        return taken

    def _settle(self) -> None:
        """Drops or corrects entries at the top until the first one holds the due time of its key."""
        heap = self._heap
        while heap:
            noted, _, key = heap[0]
            actual = self._due.get(key)
            if actual == noted:
                return
            if actual is not None and actual > noted:
                # An entry that came up early is the key's only one below `actual`. Its true time takes its place, in one step.
                self._tickets += 1
                heapq.heapreplace(heap, (actual, self._tickets, key))
            else:
                heapq.heappop(heap)

    def _rebuild(self) -> None:
        """Builds the heap anew from the keys, so that entries left behind do not outgrow them."""
        self._heap = [(due, ticket, key) for ticket, (key, due) in enumerate(self._due.items())]
        self._tickets = len(self._heap)
        heapq.heapify(self._heap)
