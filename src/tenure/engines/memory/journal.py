"""A journal in this process's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition
from typing import TYPE_CHECKING

from tenure.engines.checks import check_append, check_seconds, check_snapshot
from tenure.engines.contracts import MAX_WAIT_S, Entry, Head, Journal, Snapshot
from tenure.errors import LimitError, SequenceConflictError, StaleEpochError, StaleSnapshotError, Truncated

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine

Ring = Callable[[], object]


class JournalEntries:
    """The state that all handles on one journal share."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first = 1  # the sequence of entries[0], or of the next one
        self.head = Head(0, 0)
        self.snapshot: Snapshot | None = None
        self.followers: dict[Ring, None] = {}

    def after(self, seq: int, limit: int) -> list[Entry]:
        if seq < self.first - 1:
            raise Truncated(seq, self.first)
        start = seq - self.first + 1
        return self.entries[start : start + limit]


class MemoryJournal(Journal):
    def __init__(self, engine: MemoryEngine, name: str, log: JournalEntries) -> None:
        self.name = name
        self._engine = engine
        self.log = log
        """The entries, shared by every handle of this journal."""
        self._following: dict[Ring, None] = {}
        self._woken = False
        engine.enlist(self)

    def append(self, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str) -> int:
        check_append(events, epoch, expect, append_id)
        with self._engine.lock:
            self._engine.check_open()
            log = self.log
            if epoch < log.head.epoch:
                raise StaleEpochError(epoch, log.head.epoch)
            if expect != log.head.seq:
                raise SequenceConflictError(expect, log.head.seq)
            seq = expect + 1
            log.entries.append(Entry(seq, epoch, append_id, self._engine.now(), tuple(map(bytes, events))))
            log.head = Head(seq, epoch)
            for ring in list(log.followers):  # every follower wants every entry: here all of them get up
                ring()
            return seq

    def head(self) -> Head:
        self._engine.check_open()
        return self.log.head

    def read(self, after: int = 0, *, limit: int = 1_000) -> list[Entry]:
        if limit < 1:
            raise LimitError("limit", limit, "1 or more")
        with self._engine.lock:
            self._engine.check_open()
            return self.log.after(after, limit)

    def follow(self, after: int, wait_time_seconds: float) -> list[Entry]:
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        engine, log = self._engine, self.log
        with engine.lock:
            engine.check_open()
            found = log.after(after, 1_000)
            if found or not wait_time_seconds:
                return found
            condition = Condition(engine.lock)
            ring = condition.notify
            now = engine.clock.boottime()
            deadline = now + wait_time_seconds
            self._enter(ring)
            try:
                while not found and now < deadline and ring in self._following:
                    engine.clock.wait(condition, deadline - now)
                    found = log.after(after, 1_000)
                    now = engine.clock.boottime()
            finally:
                self._leave(ring)
            return found

    def _enter(self, ring: Ring) -> None:
        """Begin to follow; a handle that was woken before is over at once."""
        if self._woken:
            self._woken = False
        else:
            self.log.followers[ring] = self._following[ring] = None

    def _leave(self, ring: Ring) -> None:
        self.log.followers.pop(ring, None)
        self._following.pop(ring, None)

    def listen(self, ring: Ring, after: int) -> None:
        """For asyncio, which must not wait on a lock: `ring` is called, under the lock, when it is time to look again."""
        with self._engine.lock:
            self._engine.check_open()
            self._enter(ring)
            if ring not in self._following or self.log.head.seq > after:
                ring()

    def unlisten(self, ring: Ring) -> bool:
        """Stop listening. False when the follow is to end: it was woken, or the engine closed."""
        with self._engine.lock:
            goes_on = ring in self._following
            self._leave(ring)
            return goes_on

    def wake(self) -> None:
        with self._engine.lock:
            self._engine.check_open()
            self._end_follows()

    def close(self) -> None:
        """Ends its follows: the engine is closing."""
        with self._engine.lock:
            self._end_follows()

    def _end_follows(self) -> None:
        self._woken = not self._following
        following, self._following = self._following, {}
        for ring in following:
            ring()

    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        check_snapshot(state)
        with self._engine.lock:
            self._engine.check_open()
            log = self.log
            if epoch < log.head.epoch:
                raise StaleEpochError(epoch, log.head.epoch)
            if not 0 <= seq <= log.head.seq:
                raise LimitError("seq", seq, f"between 0 and the last sequence, {log.head.seq}")
            if log.snapshot is not None:
                if epoch < log.snapshot.epoch:
                    raise StaleEpochError(epoch, log.snapshot.epoch)
                if seq < log.snapshot.seq:
                    raise StaleSnapshotError(seq, log.snapshot.seq)
            log.snapshot = Snapshot(seq, epoch, bytes(state))

    def latest_snapshot(self) -> Snapshot | None:
        self._engine.check_open()
        return self.log.snapshot

    def truncate(self, seq: int) -> None:
        with self._engine.lock:
            self._engine.check_open()
            log = self.log
            upto = min(seq, log.snapshot.seq if log.snapshot else 0)
            if upto >= log.first:
                del log.entries[: upto - log.first + 1]
                log.first = upto + 1
