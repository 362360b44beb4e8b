"""Bytes under keys, in this process's memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from tenure.engines.checks import check_key, check_max_messages, check_store_value, check_ttl
from tenure.engines.contracts import KEY_MEMORY_S, Fence, Store
from tenure.errors import StaleFenceError

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine


class Shelf:
    """The state that all handles on one store share. A fence outlives its value, so that a late writer stays refused."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.fences: dict[str, Fence] = {}
        self.expires: dict[str, float] = {}
        self._timers: list[tuple[float, str]] = []
        self._sorted: list[str] | None = None

    def put(self, key: str, value: bytes, expires: float | None) -> None:
        if key not in self.values:
            self._sorted = None
        self.values[key] = value
        self._schedule(key, expires)

    def remove(self, key: str, now: float) -> bool:
        if self.values.pop(key, None) is None:
            return False
        self._sorted = None
        self._schedule(key, now + KEY_MEMORY_S if key in self.fences else None)
        return True

    def _schedule(self, key: str, at: float | None) -> None:
        """When the value, or after it its fence, is to be forgotten."""
        if at is None:
            self.expires.pop(key, None)
        else:
            self.expires[key] = at
            heappush(self._timers, (at, key))
            if len(self._timers) > 64 and len(self._timers) > 2 * len(self.expires):
                # A key that is written again and again leaves its old times behind.
                self._timers = [(at, key) for key, at in self.expires.items()]
                heapify(self._timers)

    def sweep(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            at, key = heappop(self._timers)
            if self.expires.get(key) != at:
                continue  # it was written again since
            del self.expires[key]
            if not self.remove(key, now):
                self.fences.pop(key, None)

    def keys(self) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(self.values)
        return self._sorted


class MemoryStore(Store):
    def __init__(self, engine: MemoryEngine, name: str, shelf: Shelf) -> None:
        self.name = name
        self._engine, self._shelf = engine, shelf

    def _now(self) -> float:
        """The time, with everything gone that had to be. The caller holds the lock."""
        self._engine.check_open()
        now = self._engine.clock.boottime()
        self._shelf.sweep(now)
        return now

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        with self._engine.lock:
            now, shelf = self._now(), self._shelf
            if fence is not None:
                highest = shelf.fences.get(key)
                if highest is not None and fence < highest:
                    raise StaleFenceError(key, fence, highest)
                shelf.fences[key] = Fence(*fence)
            shelf.put(key, bytes(value), None if ttl is None else now + ttl)

    def get(self, key: str) -> bytes | None:
        check_key(key)
        with self._engine.lock:
            self._now()
            return self._shelf.values.get(key)

    def delete(self, key: str) -> bool:
        check_key(key)
        with self._engine.lock:
            return self._shelf.remove(key, self._now())

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        check_max_messages(limit)
        with self._engine.lock:
            self._now()
            keys = self._shelf.keys()
            start = bisect_left(keys, prefix)
            if after is not None:
                start = max(start, bisect_right(keys, after))
            found = keys[start : start + limit]
            return [key for key in found if key.startswith(prefix)]
