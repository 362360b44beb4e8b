"""The names of stored values: which blob each is, which fence wrote it, and when it ends. Pure, a part of the fold."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from tenure.engines.contracts import KEY_MEMORY_S, Fence
from tenure.engines.nats import commands as c
from tenure.engines.nats.pages import Value
from tenure.errors import StaleFenceError


class Values:
    """All stores; keys in each."""

    def __init__(self, stores: dict[str, dict[str, Value]] | None = None) -> None:
        self.stores: dict[str, dict[str, Value]] = stores or {}
        self.unnamed: list[Value] = []
        """Blobs that lost their name: whoever asked for that deletes them."""
        self._timers: list[tuple[float, str, str]] = []
        for store, values in self.stores.items():
            for key, value in values.items():
                if value.expires < inf:
                    heappush(self._timers, (value.expires, store, key))

    def put(self, command: c.Put, now: float) -> None:
        self.sweep(now)
        values = self.stores.setdefault(command.store, {})
        value = values.get(command.key) or Value()
        if command.fence is not None:
            if value.fence is not None and command.fence < value.fence:
                raise StaleFenceError(command.key, Fence(*command.fence), Fence(*value.fence))
            value.fence = command.fence
        values[command.key] = value
        self._unname(value)
        value.blob, value.chunks = command.blob, command.chunks
        self._expire(command.store, command.key, value, inf if command.ttl is None else now + command.ttl)

    def remove(self, command: c.Remove, now: float) -> bool:
        self.sweep(now)
        value = self.stores.get(command.store, {}).get(command.key)
        if value is None or not value.blob:
            return False
        self._bare(command.store, command.key, value, now)
        return True

    def sweep(self, now: float) -> None:
        """Removes the values that are past their time."""
        while self._timers and self._timers[0][0] <= now:
            at, store, key = heappop(self._timers)
            value = self.stores.get(store, {}).get(key)
            if value is None or value.expires != at:
                continue  # it was written again since
            if value.blob:
                self._bare(store, key, value, at)
            else:
                del self.stores[store][key]

    def _bare(self, store: str, key: str, value: Value, at: float) -> None:
        """The value is gone; a fence stays for a day."""
        self._unname(value)
        if value.fence is None:
            del self.stores[store][key]
        else:
            self._expire(store, key, value, at + KEY_MEMORY_S)

    def _unname(self, value: Value) -> None:
        if value.blob:
            self.unnamed.append(Value(value.blob, value.chunks))
        value.blob, value.chunks = "", 0

    def _expire(self, store: str, key: str, value: Value, at: float) -> None:
        value.expires = at
        if at < inf:
            heappush(self._timers, (at, store, key))
