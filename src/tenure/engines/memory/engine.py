"""`memory://`: an engine inside this process, with its elections and stores. Nothing outlives it; everything else is as on every engine."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush
from itertools import count
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from tenure.clock import Clock, SystemClock
from tenure.engines.checked_handles import (
    CheckedElection,
    CheckedEngine,
    CheckedStore,
    HandleTypes,
    first_above,
    page_of,
)
from tenure.engines.checks import EntryPlace, check_name
from tenure.engines.contracts import (
    KEY_MEMORY_S,
    Appended,
    Fence,
    Leader,
    Message,
    Term,
)
from tenure.engines.mailbox_records import MessageRecord
from tenure.engines.memory.journal import JournalEntries, MemoryJournal
from tenure.engines.memory.mailbox import MemoryConsumer, MemoryMailbox
from tenure.engines.memory.shared_mailbox import ForeignMailboxName, MemoryMessage, MemoryPolls, SharedMailbox
from tenure.errors import ConfigurationError, EngineClosedError
from tenure.randomness import IdSource, new_id


class HeldTerm:
    """The holder of the term. The epoch stays when the term has no holder: it only grows."""

    def __init__(self) -> None:
        self.epoch = 0
        self.candidate = ""
        self.expires = 0.0

    def taken(self, now: float) -> bool:
        return self.candidate != "" and now < self.expires


class MemoryElection(CheckedElection):
    engine: MemoryEngine

    def __init__(self, engine: MemoryEngine, name: str) -> None:
        super().__init__(engine, name)
        self.seat = engine.part(engine.seats, name, HeldTerm)

    def _campaign(self, candidate: str, ttl: float, above: int) -> int | None:
        with self.engine.lock:
            now = self._now()
            if self.seat.taken(now) and self.seat.candidate != candidate:
                return None
            self.seat.epoch = max(self.seat.epoch, above) + 1
            self.seat.candidate, self.seat.expires = candidate, now + ttl
            return self.seat.epoch

    def _renew(self, term: Term) -> int | None:
        with self.engine.lock:
            now = self._now()
            if self.seat.epoch != term.epoch or not self.seat.taken(now):
                return self.seat.epoch
            self.seat.expires = now + term.ttl
            return None

    def resign(self, term: Term) -> None:
        with self.engine.lock:
            self._now()
            if self.seat.epoch == term.epoch:
                self.seat.candidate = ""

    def current(self) -> Leader | None:
        with self.engine.lock:
            seat, now = self.seat, self._now()
            return Leader(seat.candidate, seat.epoch, seat.expires - now) if seat.taken(now) else None

    def _now(self) -> float:
        self.engine.check_open()
        return self.engine.clock.boottime()


class StoreShelf:
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
        self.remember(key, now)
        return True

    def remember(self, key: str, now: float) -> None:
        """Keeps the fence of a key without a value for a day."""
        self._schedule(key, now + KEY_MEMORY_S if key in self.fences else None)

    def _schedule(self, key: str, at: float | None) -> None:
        """Notes when the value, or after it its fence, is to be forgotten."""
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


class MemoryStore(CheckedStore):
    engine: MemoryEngine

    def __init__(self, engine: MemoryEngine, name: str) -> None:
        super().__init__(engine, name)
        self._shelf = engine.part(engine.shelves, name, StoreShelf)

    def _now(self) -> float:
        """Drops what is past its time, and returns the time. The caller holds the lock."""
        self.engine.check_open()
        now = self.engine.clock.boottime()
        self._shelf.sweep(now)
        return now

    def _put(self, key: str, value: bytes, fence: Fence | None, ttl: float | None) -> Fence | None:
        with self.engine.lock:
            now, shelf = self._now(), self._shelf
            if fence is not None:
                highest = shelf.fences.get(key)
                if highest is not None and fence < highest:
                    return highest
                shelf.fences[key] = Fence(*fence)
            shelf.put(key, value, None if ttl is None else now + ttl)
            return None

    def _get(self, key: str) -> bytes | None:
        with self.engine.lock:
            self._now()
            return self._shelf.values.get(key)

    def _delete(self, key: str) -> bool:
        with self.engine.lock:
            return self._shelf.remove(key, self._now())

    def _list(self, prefix: str, limit: int, after: str | None) -> list[str]:
        with self.engine.lock:
            self._now()
            keys = self._shelf.keys()
            start = bisect_left(keys, prefix)
            if after is not None:
                start = max(start, bisect_right(keys, after))
            found = keys[start : start + limit]
            return [key for key in found if key.startswith(prefix)]

    def _put_many(self, values: dict[str, bytes | None], fence: Fence, ttl: float | None) -> None:
        with self.engine.lock:
            now, shelf = self._now(), self._shelf
            for key, value in values.items():
                if shelf.fences.get(key, fence) > fence:
                    continue
                shelf.fences[key] = Fence(*fence)
                if value is not None:
                    shelf.put(key, value, None if ttl is None else now + ttl)
                elif not shelf.remove(key, now):
                    shelf.remember(key, now)

    def _get_many(self, keys: list[str]) -> dict[str, bytes]:
        with self.engine.lock:
            self._now()
            values = self._shelf.values
            return {key: values[key] for key in keys if key in values}

    def _scan(self, prefix: str, limit: int, after: str | None, reverse: bool) -> list[tuple[str, bytes]]:
        with self.engine.lock:
            self._now()
            keys, values = self._shelf.keys(), self._shelf.values
            start, above = bisect_left(keys, prefix), first_above(prefix)
            end = len(keys) if above is None else bisect_left(keys, above)
            if after is not None and reverse:
                end = min(end, bisect_left(keys, after))
            elif after is not None:
                start = max(start, bisect_right(keys, after))
            found = range(end - 1, start - 1, -1) if reverse else range(start, end)
            return page_of((keys[place], values[keys[place]]) for place in found[:limit])


PartT = TypeVar("PartT")


class MemoryEngine(CheckedEngine):
    """An engine with one lock and no threads. Driven by one thread, and given its ids, it does the same thing every time."""

    appends_in_one_step = True
    handles = HandleTypes(MemoryMailbox, MemoryJournal, MemoryElection, MemoryStore, MemoryConsumer)

    def __init__(self, clock: Clock | None = None, *, ids: IdSource = new_id, url: str = "memory://") -> None:
        self.url = url
        self.clock = clock or SystemClock()
        self.lock = Lock()
        # Engine time is boot time from a fixed point: stepping the wall clock moves no lease and no timestamp.
        self.epoch = self.clock.wall() - self.clock.boottime()
        self.prefix = f"{ids()[:12]}-"
        self.next_number = count(1).__next__  # numbers messages, whose ids have the prefix before it, and claims
        self.outbox: list[tuple[MemoryEngine, str, MessageRecord]] = []
        self.boxes: dict[str, SharedMailbox] = {}
        self.logs: dict[str, JournalEntries] = {}
        self.seats: dict[str, HeldTerm] = {}
        self.shelves: dict[str, StoreShelf] = {}
        self._handles: WeakSet[MemoryPolls | MemoryJournal] = WeakSet()
        self.closed = False

    def _acknowledges(self, message: Message[Any, Any]) -> bool:
        return isinstance(message, MemoryMessage) and message.is_in(self)

    def _append_with(
        self, journal: Any, events: list[bytes], place: EntryPlace, batches: list[Any], acknowledges: list[Any]
    ) -> Appended:
        with self.lock:
            seq = journal.append_locked(events, place)
            now = self.clock.boottime()
            sent = [mailbox.add_locked(message, now) for mailbox, messages in batches for message in messages]
            lost = [message for message in acknowledges if message.settle_now(None) is not None]
        return Appended(seq, sent, lost)

    def now(self) -> float:
        return self.epoch + self.clock.boottime()

    def close(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            handles = list(self._handles)
        for handle in handles:
            handle.close()

    # What its handles use

    def check_open(self) -> None:
        if self.closed:
            raise EngineClosedError(f"the engine {self.url} was closed", remedy="Open it again")

    def next_id(self) -> str:
        return f"{self.prefix}{self.next_number()}"

    def enlist(self, handle: MemoryPolls | MemoryJournal) -> None:
        with self.lock:
            self.check_open()
            self._handles.add(handle)

    def box(self, name: str) -> SharedMailbox:
        check_name(name, "mailbox name")
        with self.lock:
            return self._box(name)

    def _box(self, name: str) -> SharedMailbox:
        box = self.boxes.get(name)
        if box is None:
            box = self.boxes[name] = SharedMailbox(name, self)
        return box

    def post(self, answered: MessageRecord, encoded: bytes, is_failure: bool) -> None:
        """Sends to where a record's replies go. The caller holds the lock."""
        now, reply_to = self.clock.boottime(), answered.reply_to
        record = MessageRecord(self.next_id(), encoded, self.epoch + now, is_failure=is_failure)
        if isinstance(reply_to, ForeignMailboxName):
            if (other := reply_to.engine()) is not None:
                self.outbox.append((other, reply_to, record))
        elif reply_to is not None:
            self._box(reply_to).add(record, now)

    def forward(self) -> None:
        """Hand over what goes to other memory engines. Not under our lock: two engines may answer each other."""
        while self.outbox:
            with self.lock:
                posts, self.outbox = self.outbox, []
            for engine, name, record in posts:
                engine.take_in(name, record)

    def take_in(self, name: str, record: MessageRecord) -> None:
        with self.lock:
            self._box(name).add(record, self.clock.boottime())

    def part(self, parts: dict[str, PartT], name: str, make: type[PartT]) -> PartT:
        """Returns what all handles of this name share."""
        with self.lock:
            self.check_open()
            if name not in parts:
                parts[name] = make()
            return parts[name]


def open_memory(url: str, clock: Clock) -> MemoryEngine:
    """Opens a new, empty engine: two openings never share data."""
    parts = urlsplit(url)
    if parts.netloc or parts.path.strip("/") or parts.query:
        raise ConfigurationError(
            f"{url!r} names something, and memory engines are always new and private",
            remedy="Use memory:// and share the engine object, or sqlite:///file.db",
        )
    return MemoryEngine(clock, url=url)
