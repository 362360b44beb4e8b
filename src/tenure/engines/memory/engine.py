"""`memory://`: an engine inside this process. Nothing outlives it; everything else is as on every engine."""

from __future__ import annotations

from itertools import count
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from tenure.clock import Clock, SystemClock
from tenure.engines.checks import check_name
from tenure.engines.contracts import BodyT, Election, Engine, Journal, Mailbox, ReplyT, Store
from tenure.engines.mailbox_records import MessageRecord
from tenure.engines.memory.election import MemoryElection, Seat
from tenure.engines.memory.journal import Log, MemoryJournal
from tenure.engines.memory.mailbox import MemoryMailbox
from tenure.engines.memory.shared_mailbox import ForeignMailboxName, SharedMailbox
from tenure.engines.memory.store import MemoryStore, Shelf
from tenure.errors import ConfigurationError, EngineClosedError
from tenure.ids import IdSource, new_id

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
        self._logs: dict[str, Log] = {}
        self._seats: dict[str, Seat] = {}
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
        return MemoryJournal(self, name, self._part(self._logs, name, Log))

    def election(self, name: str) -> Election:
        return MemoryElection(self, name, self._part(self._seats, name, Seat))

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
