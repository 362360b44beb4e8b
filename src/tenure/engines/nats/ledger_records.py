"""The records of the fold beside mailboxes: terms, stored values, commands that have come already, and deliveries as claims get them. Pure."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, Self

import msgspec

from tenure.engines.contracts import KEY_MEMORY_S, Fence
from tenure.engines.mailbox_records import MessageRecord
from tenure.engines.nats import commands as c
from tenure.errors import StaleFenceError

_MISSING = 256  # commands of one process that are under way at once, at most


class Seat(msgspec.Struct):
    epoch: int = 0
    candidate: str = ""
    expires: float = 0.0

    def taken(self, now: float) -> bool:
        return self.candidate != "" and now < self.expires


class Value(msgspec.Struct):
    """A stored value's place; after it went, its fence for another while."""

    blob: str = ""  # empty: there is none
    chunks: int = 0
    fence: tuple[int, int] | None = None
    expires: float = inf

    def there(self, now: float) -> bool:
        return self.blob != "" and now < self.expires


class Heard(msgspec.Struct):
    """Which commands of one process have come: all up to `top`, but for those `missing`."""

    top: int = 0
    missing: list[int] = []
    at: float = 0.0

    def is_new(self, number: int, now: float) -> bool:
        self.at = now
        if number > self.top:
            self.missing += range(max(self.top + 1, number - _MISSING), number)
            if len(self.missing) > _MISSING:
                del self.missing[:-_MISSING]
            self.top = number
            return True
        if number in self.missing:
            self.missing.remove(number)
            return True
        return False


class Delivery(NamedTuple):
    """A record as it was when it was claimed: it may change before the claimer looks at it."""

    id: str
    body: bytes
    delivery_count: int
    forgiven: int
    enqueued_at: float
    reply_to: str | None
    checkpoint: bytes | None
    key: str | None
    generation: int
    is_failure: bool
    suspect: bool

    @classmethod
    def of(cls, record: MessageRecord) -> Self:
        return cls(
            record.id,
            record.body,
            record.count,
            record.base,
            record.enqueued_at,
            record.reply_to,
            record.checkpoint,
            record.key,
            record.generation,
            record.is_failure,
            record.suspect,
        )


class Awaited(NamedTuple):
    """The result of an `Await`: deliveries, or a claim that stands from `at` on."""

    at: float
    deliveries: list[Delivery]


class Handed(NamedTuple):
    """The deliveries of a standing claim, and their time."""

    receipt: str
    box: str
    lease: float
    at: float
    deliveries: list[Delivery]


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
