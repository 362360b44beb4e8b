"""A journal in this process's memory."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import TYPE_CHECKING

from tenure.engines.checked_handles import CheckedJournal
from tenure.engines.checks import EntryPlace
from tenure.engines.contracts import Entry, Head, Snapshot
from tenure.engines.long_poll import HandlePolls, Poll
from tenure.errors import Truncated

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine


class JournalEntries:
    """The state that all handles on one journal share."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first = 1  # the sequence of entries[0], or of the next one
        self.head = Head(0, 0)
        self.snapshot: Snapshot | None = None
        self.followers: dict[Poll, None] = {}

    def after(self, seq: int, limit: int) -> list[Entry]:
        if seq < self.first - 1:
            raise Truncated(seq, self.first)
        start = seq - self.first + 1
        return self.entries[start : start + limit]


class MemoryJournal(CheckedJournal):
    engine: MemoryEngine

    def __init__(self, engine: MemoryEngine, name: str) -> None:
        super().__init__(engine, name)
        self.log = engine.part(engine.logs, name, JournalEntries)
        """The entries, shared by every handle of this journal."""
        self._polls: HandlePolls[Poll] = HandlePolls()
        engine.enlist(self)

    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        with self.engine.lock:
            return self.append_locked(events, EntryPlace(epoch, expect, append_id))

    def append_locked(self, events: list[bytes], place: EntryPlace) -> int:
        """Writes one entry, or raises. The caller holds the engine's lock."""
        self.engine.check_open()
        log, (epoch, expect, append_id) = self.log, place
        if epoch < log.head.epoch or expect != log.head.seq:
            self.refuse_append(epoch, expect, log.head.epoch, log.head.seq)
        seq = expect + 1
        log.entries.append(Entry(seq, epoch, append_id, self.engine.now(), tuple(events)))
        log.head = Head(seq, epoch)
        for poll in list(log.followers):  # every follower wants every entry: here all of them get up
            poll.ring()
        return seq

    def head(self) -> Head:
        self.engine.check_open()
        return self.log.head

    def _read(self, after: int, limit: int) -> list[Entry]:
        with self.engine.lock:
            self.engine.check_open()
            return self.log.after(after, limit)

    def _follow(self, after: int, wait_s: float) -> list[Entry]:
        engine, log = self.engine, self.log
        with engine.lock:
            engine.check_open()
            found = log.after(after, 1_000)
            if found or not wait_s:
                return found
            condition = Condition(engine.lock)
            now = engine.clock.boottime()
            deadline = now + wait_s
            poll = self._enter(condition.notify)
            try:
                while not found and now < deadline and not poll.over:
                    engine.clock.wait(condition, deadline - now)
                    found = log.after(after, 1_000)
                    now = engine.clock.boottime()
            finally:
                self._leave(poll)
            return found

    def _enter(self, ring: Callable[[], object]) -> Poll:
        """Begins to follow; a follow of a handle that was woken before is over at once."""
        poll = Poll(ring)
        if self._polls.begin(poll):
            self.log.followers[poll] = None
        return poll

    def _leave(self, poll: Poll) -> None:
        self.log.followers.pop(poll, None)
        self._polls.end(poll)

    def listen(self, ring: Callable[[], object], after: int) -> Poll:
        """Begins to follow for asyncio, which must not wait on a lock: `ring` is called, under the lock, when it is time to look again.

        Give what it returns to `unlisten` each time.
        """
        with self.engine.lock:
            self.engine.check_open()
            poll = self._enter(ring)
            if poll.over or self.log.head.seq > after:
                poll.ring()
            return poll

    def unlisten(self, poll: Poll) -> bool:
        """Stops listening. Returns False when the follow is to end: it was woken, or the engine closed."""
        with self.engine.lock:
            self._leave(poll)
            return not poll.over

    def wake(self) -> None:
        with self.engine.lock:
            self.engine.check_open()
            self._polls.wake()

    def close(self) -> None:
        """Ends its follows: the engine is closing."""
        with self.engine.lock:
            self._polls.close()

    def _snapshot(self, state: bytes, seq: int, epoch: int) -> None:
        with self.engine.lock:
            self.engine.check_open()
            log = self.log
            kept = log.snapshot
            self._check_snapshot(seq, epoch, log.head, None if kept is None else Head(kept.seq, kept.epoch))
            log.snapshot = Snapshot(seq, epoch, state)

    def latest_snapshot(self) -> Snapshot | None:
        self.engine.check_open()
        return self.log.snapshot

    def truncate(self, seq: int) -> None:
        with self.engine.lock:
            self.engine.check_open()
            log = self.log
            upto = min(seq, log.snapshot.seq if log.snapshot else 0)
            if upto >= log.first:
                del log.entries[: upto - log.first + 1]
                log.first = upto + 1
