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
from tenure.engines.checks import check_key, check_max_messages, check_name, check_store_value, check_ttl
from tenure.engines.contracts import (
    KEY_MEMORY_S,
    BodyT,
    Election,
    Engine,
    Fence,
    Journal,
    Leader,
    Mailbox,
    ReplyT,
    Store,
    Term,
    term_margin,
)
from tenure.engines.mailbox_records import MessageRecord
from tenure.engines.memory.journal import JournalEntries, MemoryJournal
from tenure.engines.memory.mailbox import MemoryMailbox
from tenure.engines.memory.shared_mailbox import ForeignMailboxName, SharedMailbox
from tenure.errors import ConfigurationError, EngineClosedError, LimitError, StaleFenceError, TermLostError
from tenure.ids import IdSource, new_id


class HeldTerm:
    """The holder of the term. The epoch stays when the term has no holder: it only grows."""

    def __init__(self) -> None:
        self.epoch = 0
        self.candidate = ""
        self.expires = 0.0

    def taken(self, now: float) -> bool:
        return self.candidate != "" and now < self.expires


class MemoryElection(Election):
    def __init__(self, engine: MemoryEngine, name: str, seat: HeldTerm) -> None:
        self.name = name
        self._engine, self._seat = engine, seat

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked = self._engine.clock.boottime()
        with self._engine.lock:
            self._engine.check_open()
            seat, now = self._seat, self._engine.clock.boottime()
            if seat.taken(now) and seat.candidate != candidate:
                return None
            seat.epoch = max(seat.epoch, above) + 1
            seat.candidate, seat.expires = candidate, now + ttl
            return Term(seat.epoch, candidate, ttl, asked + ttl - term_margin(ttl))

    def renew(self, term: Term) -> Term:
        asked = self._engine.clock.boottime()
        with self._engine.lock:
            self._engine.check_open()
            seat, now = self._seat, self._engine.clock.boottime()
            if seat.epoch != term.epoch or not seat.taken(now):
                raise TermLostError(self.name, term.epoch, seat.epoch)
            seat.expires = now + term.ttl
            return term._replace(safe_until=asked + term.ttl - term_margin(term.ttl))

    def resign(self, term: Term) -> None:
        with self._engine.lock:
            self._engine.check_open()
            if self._seat.epoch == term.epoch:
                self._seat.candidate = ""

    def current(self) -> Leader | None:
        with self._engine.lock:
            self._engine.check_open()
            seat, now = self._seat, self._engine.clock.boottime()
            return Leader(seat.candidate, seat.epoch, seat.expires - now) if seat.taken(now) else None


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


PartT = TypeVar("PartT")


class MemoryEngine(Engine):
    """One lock, no threads. Driven by one thread, and given its ids, it does the same thing every time."""

    def __init__(self, clock: Clock | None = None, *, ids: IdSource = new_id, url: str = "memory://") -> None:
        self.url = url
        self.clock = clock or SystemClock()
        self.lock = Lock()
        # Engine time is boot time from a fixed point: stepping the wall clock moves no lease and no timestamp.
        self.epoch = self.clock.wall() - self.clock.boottime()
        self.prefix = f"{ids()[:12]}-"
        self.next_number = count(1).__next__  # of messages, which have the prefix before it, and of claims
        self.outbox: list[tuple[MemoryEngine, str, MessageRecord]] = []
        self._boxes: dict[str, SharedMailbox] = {}
        self.logs: dict[str, JournalEntries] = {}
        self.seats: dict[str, HeldTerm] = {}
        self._shelves: dict[str, Shelf] = {}
        self._handles: WeakSet[MemoryMailbox[Any, Any] | MemoryJournal] = WeakSet()
        self.closed = False

    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        return MemoryMailbox(self, name, body, reply, max_delivery_count)

    def journal(self, name: str) -> Journal:
        return MemoryJournal(self, name, self._part(self.logs, name, JournalEntries))

    def election(self, name: str) -> Election:
        return MemoryElection(self, name, self._part(self.seats, name, HeldTerm))

    def store(self, name: str) -> Store:
        return MemoryStore(self, name, self._part(self._shelves, name, Shelf))

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

    def enlist(self, handle: MemoryMailbox[Any, Any] | MemoryJournal) -> None:
        with self.lock:
            self.check_open()
            self._handles.add(handle)

    def box(self, name: str) -> SharedMailbox:
        check_name(name, "mailbox name")
        with self.lock:
            return self._box(name)

    def _box(self, name: str) -> SharedMailbox:
        box = self._boxes.get(name)
        if box is None:
            box = self._boxes[name] = SharedMailbox(name, self)
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

    def _part(self, parts: dict[str, PartT], name: str, make: type[PartT]) -> PartT:
        check_name(name)
        with self.lock:
            self.check_open()
            if name not in parts:
                parts[name] = make()
            return parts[name]


def open_memory(url: str, clock: Clock) -> MemoryEngine:
    """A new, empty engine: data is never shared between two openings."""
    parts = urlsplit(url)
    if parts.netloc or parts.path.strip("/") or parts.query:
        raise ConfigurationError(
            f"{url!r} names something, and memory engines are always new and private",
            remedy="Use memory:// and share the engine object, or sqlite:///file.db",
        )
    return MemoryEngine(clock, url=url)
