"""The journal, the election and the store of one file.

A journal is a head row that appends compare and swap, the entries behind it, and one snapshot. An election is one row, whose epoch only
grows. A store keeps bytes under a key, and the highest fence that wrote it, which outlives them.
"""

from __future__ import annotations

import builtins
import sqlite3
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.engines.checks import (
    check_append,
    check_key,
    check_max_messages,
    check_name,
    check_seconds,
    check_snapshot,
    check_store_value,
    check_ttl,
)
from tenure.engines.contracts import (
    MAX_WAIT_S,
    Election,
    Entry,
    Fence,
    Head,
    Journal,
    Leader,
    Snapshot,
    Store,
    Term,
    term_margin,
)
from tenure.engines.long_poll import Look
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.database import micros
from tenure.engines.sqlite.message import KEY_MEMORY_US
from tenure.errors import (
    LimitError,
    SequenceConflictError,
    StaleEpochError,
    StaleFenceError,
    StaleSnapshotError,
    TermLostError,
    Truncated,
)

if TYPE_CHECKING:
    from tenure.engines.sqlite.engine import SqliteEngine

_PAGE = 1_000
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


class _Row(NamedTuple):
    id: int
    seq: int
    epoch: int
    first: int
    snapshot_seq: int
    snapshot_epoch: int


_NEVER_WRITTEN = _Row(0, 0, 0, 1, 0, 0)


class SqliteJournal(Journal):
    """A handle on one journal. Safe to share between threads."""

    def __init__(self, engine: SqliteEngine, name: str) -> None:
        self.name = check_name(name, "journal")
        self._engine, self._database = engine, engine.database
        self._topic = f"journal/{name}"
        self.polls = engine.wakeups.long_polls(self._topic)

    def append(self, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str) -> int:
        check_append(events, epoch, expect, append_id)
        packed = _pack([bytes(event) for event in events])
        with self._database.writer as tx:
            row = self._advance(tx, epoch, expect)
            seq: int = row[1]
            tx.execute(sql.INSERT_ENTRY, (row[0], seq, epoch, self._database.now(), append_id, packed))
        self._engine.wakeups.ring(self._topic)
        self._engine.upkeep.after_write()
        return seq

    def _advance(self, tx: sqlite3.Connection, epoch: int, expect: int) -> tuple[int, int]:
        """Swap the head, or say why not."""
        swapped: list[tuple[int, int]] = tx.execute(sql.ADVANCE_HEAD, (epoch, self.name, expect, epoch)).fetchall()
        if swapped:
            return swapped[0]
        row = self._row(tx)
        if epoch < row.epoch:
            raise StaleEpochError(epoch, row.epoch)
        if expect != row.seq:
            raise SequenceConflictError(expect, row.seq)
        tx.execute(sql.CREATE_JOURNAL, (self.name,))
        swapped = tx.execute(sql.ADVANCE_HEAD, (epoch, self.name, expect, epoch)).fetchall()
        return swapped[0]

    def _row(self, tx: sqlite3.Connection) -> _Row:
        row = tx.execute(sql.SELECT_JOURNAL, (self.name,)).fetchone()
        return _Row(*row) if row is not None else _NEVER_WRITTEN

    def head(self) -> Head:
        with self._database.reader as tx:
            row = self._row(tx)
        return Head(row.seq, row.epoch)

    def read(self, after: int = 0, *, limit: int = _PAGE) -> list[Entry]:
        if limit < 1:
            raise LimitError("limit", limit, "1 or more")
        with self._database.reader as tx:
            row = self._row(tx)
            if after < row.first - 1:
                raise Truncated(after, row.first)
            rows = tx.execute(sql.READ_ENTRIES, (row.id, after, limit)).fetchall()
        return [_entry(*row) for row in rows]

    def follow(self, after: int, wait_time_seconds: float) -> list[Entry]:
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        if not wait_time_seconds:
            return self.read(after)
        return self.polls.poll(wait_time_seconds, lambda: Look(self.read(after)))

    def wake(self) -> None:
        self._engine.check_open()
        self.polls.wake()

    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        check_snapshot(state)
        with self._database.writer as tx:
            tx.execute(sql.CREATE_JOURNAL, (self.name,))
            row = self._row(tx)
            newest = max(row.epoch, row.snapshot_epoch)
            if epoch < newest:
                raise StaleEpochError(epoch, newest)
            if not 0 <= seq <= row.seq:
                raise LimitError("seq", seq, f"between 0 and the last sequence, {row.seq}")
            if seq < row.snapshot_seq:
                raise StaleSnapshotError(seq, row.snapshot_seq)
            tx.execute(sql.SET_SNAPSHOT, (row.id, bytes(state)))
            tx.execute(sql.SET_SNAPSHOT_SEQ, (seq, epoch, row.id))

    def latest_snapshot(self) -> Snapshot | None:
        rows = self._database.reader.read(sql.SELECT_SNAPSHOT, (self.name,))
        return Snapshot(*rows[0]) if rows else None

    def truncate(self, seq: int) -> None:
        with self._database.writer as tx:
            row = self._row(tx)
            upto = min(seq, row.snapshot_seq)
            if upto >= row.first:
                tx.execute(sql.TRUNCATE_ENTRIES, (row.id, upto))
                tx.execute(sql.SET_FIRST, (upto + 1, row.id))


def _entry(seq: int, epoch: int, append_id: str, at: int, events: bytes) -> Entry:
    try:
        return Entry(seq, epoch, append_id, at / 1e6, _unpack(events))
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        stored = events if isinstance(events, bytes) else str(events).encode()
        return Entry(seq, epoch, append_id, at / 1e6, (), f"its events are no list of byte strings: {error}", stored)


class SqliteElection(Election):
    """A handle on one election. Safe to share between threads."""

    def __init__(self, engine: SqliteEngine, name: str) -> None:
        self.name = check_name(name, "election")
        self._clock, self._database = engine.clock, engine.database

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked_at = self._clock.boottime()
        with self._database.writer as tx:
            now = self._database.now()
            row = tx.execute(sql.SELECT_ELECTION, (self.name,)).fetchone()
            last, holder, expires_at = row if row is not None else (0, "", 0)
            if holder != candidate and expires_at > now:
                return None
            epoch = max(last, above) + 1
            tx.execute(sql.SET_LEADER, (self.name, epoch, candidate, now + micros(ttl)))
        return _term(epoch, candidate, ttl, asked_at)

    def renew(self, term: Term) -> Term:
        asked_at = self._clock.boottime()
        with self._database.writer as tx:
            now = self._database.now()
            renewed = (now + micros(term.ttl), self.name, term.epoch, term.candidate, now)
            if tx.execute(sql.RENEW_TERM, renewed).rowcount != 1:
                row = tx.execute(sql.SELECT_ELECTION, (self.name,)).fetchone()
                raise TermLostError(self.name, term.epoch, row[0] if row is not None else 0)
        return _term(term.epoch, term.candidate, term.ttl, asked_at)

    def resign(self, term: Term) -> None:
        with self._database.writer as tx:
            tx.execute(sql.END_TERM, (self._database.now(), self.name, term.epoch, term.candidate))

    def current(self) -> Leader | None:
        rows = self._database.reader.read(sql.SELECT_ELECTION, (self.name,))
        if not rows:
            return None
        epoch, candidate, expires_at = rows[0]
        expires_in = (expires_at - self._database.now()) / 1e6
        return Leader(candidate, epoch, expires_in) if expires_in > 0 else None


def _term(epoch: int, candidate: str, ttl: float, asked_at: float) -> Term:
    return Term(epoch, candidate, ttl, asked_at + ttl - term_margin(ttl))


class SqliteStore(Store):
    """A handle on one store. Safe to share between threads."""

    def __init__(self, engine: SqliteEngine, name: str) -> None:
        self.name = check_name(name, "store")
        self._engine, self._database = engine, engine.database

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        with self._database.writer as tx:
            now = self._database.now()
            row = tx.execute(sql.SELECT_FENCE, (self.name, key)).fetchone()
            highest = Fence(row[0], row[1]) if row is not None and row[0] is not None else None
            if fence is not None and highest is not None and tuple(fence) < highest:
                raise StaleFenceError(key, fence, highest)
            # A write without a fence keeps the one that is there: a late fenced writer stays refused.
            generation, delivery = fence if fence is not None else highest if highest is not None else (None, None)
            expires_at = None if ttl is None else now + micros(ttl)
            tx.execute(sql.SET_VALUE, (self.name, key, generation, delivery, expires_at, bytes(value)))
        self._engine.upkeep.after_write()

    def get(self, key: str) -> bytes | None:
        check_key(key)
        rows = self._database.reader.read(sql.SELECT_VALUE, (self.name, key, self._database.now()))
        return rows[0][0] if rows else None

    def delete(self, key: str) -> bool:
        check_key(key)
        with self._database.writer as tx:
            now = self._database.now()
            row = tx.execute(sql.SELECT_FENCE, (self.name, key)).fetchone()
            if row is None:
                return False
            generation, delivery, has_value, expires_at = row
            if not has_value or (expires_at is not None and expires_at <= now):
                return False
            if generation is None:
                tx.execute(sql.DELETE_VALUE, (self.name, key))
            else:
                tx.execute(sql.SET_VALUE, (self.name, key, generation, delivery, now + KEY_MEMORY_US, None))
            return True

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> builtins.list[str]:
        check_max_messages(limit)
        arguments = (self.name, after or "", prefix, _above(prefix), self._database.now(), limit)
        return [key for (key,) in self._database.reader.read(sql.LIST_KEYS, arguments)]


_LAST = sys.maxunicode


def _above(prefix: str) -> str:
    """The lowest text above everything that begins with `prefix`, in the order of code points, which is UTF-8's too."""
    while prefix:
        last = ord(prefix[-1])
        if last < _LAST:
            following = 0xE000 if last == 0xD7FF else last + 1  # the surrogates between are no characters
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return chr(_LAST) * 513  # longer than any key: above all of them
