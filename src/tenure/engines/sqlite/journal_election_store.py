"""The journal, the election and the store of one file.

A journal is a head row that appends compare and swap, the entries behind it, and one snapshot. An election is one row, whose epoch only
grows. A store keeps bytes under a key, and the highest fence that wrote it, which outlives them.
"""

from __future__ import annotations

import builtins
import sqlite3
import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.engines.checked_handles import CheckedElection, CheckedStore, PolledJournal, first_above, page_of
from tenure.engines.checks import EntryPlace
from tenure.engines.contracts import MAX_KEY_CHARS, Entry, Fence, Head, Leader, Snapshot, Term
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.database import micros
from tenure.engines.sqlite.message import KEY_MEMORY_US
from tenure.errors import Truncated

if TYPE_CHECKING:
    from tenure.engines.sqlite.engine import SqliteEngine

pack_events = msgspec.msgpack.Encoder().encode
unpack_events = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


class _Row(NamedTuple):
    id: int
    seq: int
    epoch: int
    first: int
    snapshot_seq: int
    snapshot_epoch: int


_NEVER_WRITTEN = _Row(0, 0, 0, 1, 0, 0)


class SqliteJournal(PolledJournal):
    topic_prefix = "journal/"
    engine: SqliteEngine

    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        packed = pack_events(events)
        with self.engine.database.writer as tx:
            seq = self.append_in(tx, packed, EntryPlace(epoch, expect, append_id))
        self.engine.wakeups.ring(self.topic)
        self.engine.upkeep.after_write()
        return seq

    def append_in(self, tx: sqlite3.Connection, packed: bytes, place: EntryPlace) -> int:
        """Writes one entry inside the caller's transaction, or raises."""
        journal, seq = self._advance(tx, place.epoch, place.expect)
        entry = (journal, seq, place.epoch, self.engine.database.now(), place.append_id, packed)
        tx.execute(sql.INSERT_ENTRY, entry)
        return seq

    def _advance(self, tx: sqlite3.Connection, epoch: int, expect: int) -> tuple[int, int]:
        """Swap the head, or say why not."""
        swapped: list[tuple[int, int]] = tx.execute(sql.ADVANCE_HEAD, (epoch, self.name, expect, epoch)).fetchall()
        if swapped:
            return swapped[0]
        row = self._row(tx)
        if epoch < row.epoch or expect != row.seq:
            self.refuse_append(epoch, expect, row.epoch, row.seq)
        tx.execute(sql.CREATE_JOURNAL, (self.name,))
        swapped = tx.execute(sql.ADVANCE_HEAD, (epoch, self.name, expect, epoch)).fetchall()
        return swapped[0]

    def _row(self, tx: sqlite3.Connection) -> _Row:
        row = tx.execute(sql.SELECT_JOURNAL, (self.name,)).fetchone()
        return _Row(*row) if row is not None else _NEVER_WRITTEN

    def head(self) -> Head:
        with self.engine.database.reader as tx:
            row = self._row(tx)
        return Head(row.seq, row.epoch)

    def _read(self, after: int, limit: int) -> list[Entry]:
        with self.engine.database.reader as tx:
            row = self._row(tx)
            if after < row.first - 1:
                raise Truncated(after, row.first)
            rows = tx.execute(sql.READ_ENTRIES, (row.id, after, limit)).fetchall()
        return [_entry(*row) for row in rows]

    def _snapshot(self, state: bytes, seq: int, epoch: int) -> None:
        with self.engine.database.writer as tx:
            tx.execute(sql.CREATE_JOURNAL, (self.name,))
            row = self._row(tx)
            newest = max(row.epoch, row.snapshot_epoch)
            if epoch < newest:
                self._refuse_snapshot("epoch", seq, epoch, newest)
            if not 0 <= seq <= row.seq:
                self._refuse_snapshot("ahead", seq, epoch, row.seq)
            if seq < row.snapshot_seq:
                self._refuse_snapshot("seq", seq, epoch, row.snapshot_seq)
            tx.execute(sql.SET_SNAPSHOT, (row.id, state))
            tx.execute(sql.SET_SNAPSHOT_SEQ, (seq, epoch, row.id))

    def latest_snapshot(self) -> Snapshot | None:
        rows = self.engine.database.reader.read(sql.SELECT_SNAPSHOT, (self.name,))
        return Snapshot(*rows[0]) if rows else None

    def truncate(self, seq: int) -> None:
        with self.engine.database.writer as tx:
            row = self._row(tx)
            upto = min(seq, row.snapshot_seq)
            if upto >= row.first:
                tx.execute(sql.TRUNCATE_ENTRIES, (row.id, upto))
                tx.execute(sql.SET_FIRST, (upto + 1, row.id))


def _entry(seq: int, epoch: int, append_id: str, at: int, events: bytes) -> Entry:
    try:
        return Entry(seq, epoch, append_id, at / 1e6, unpack_events(events))
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        stored = events if isinstance(events, bytes) else str(events).encode()
        return Entry(seq, epoch, append_id, at / 1e6, (), f"its events are no list of byte strings: {error}", stored)


class SqliteElection(CheckedElection):
    engine: SqliteEngine

    def _campaign(self, candidate: str, ttl: float, above: int) -> int | None:
        with self.engine.database.writer as tx:
            now = self.engine.database.now()
            row = tx.execute(sql.SELECT_ELECTION, (self.name,)).fetchone()
            last, holder, expires_at = row if row is not None else (0, "", 0)
            if holder != candidate and expires_at > now:
                return None
            epoch = int(max(last, above)) + 1
            tx.execute(sql.SET_LEADER, (self.name, epoch, candidate, now + micros(ttl)))
        return epoch

    def _renew(self, term: Term) -> int | None:
        with self.engine.database.writer as tx:
            now = self.engine.database.now()
            renewed = (now + micros(term.ttl), self.name, term.epoch, term.candidate, now)
            if tx.execute(sql.RENEW_TERM, renewed).rowcount == 1:
                return None
            row = tx.execute(sql.SELECT_ELECTION, (self.name,)).fetchone()
        return int(row[0]) if row is not None else 0

    def resign(self, term: Term) -> None:
        with self.engine.database.writer as tx:
            tx.execute(sql.END_TERM, (self.engine.database.now(), self.name, term.epoch, term.candidate))

    def current(self) -> Leader | None:
        rows = self.engine.database.reader.read(sql.SELECT_ELECTION, (self.name,))
        if not rows:
            return None
        epoch, candidate, expires_at = rows[0]
        expires_in = (expires_at - self.engine.database.now()) / 1e6
        return Leader(candidate, epoch, expires_in) if expires_in > 0 else None


class SqliteStore(CheckedStore):
    engine: SqliteEngine

    def _put(self, key: str, value: bytes, fence: Fence | None, ttl: float | None) -> Fence | None:
        with self.engine.database.writer as tx:
            now = self.engine.database.now()
            row = tx.execute(sql.SELECT_FENCE, (self.name, key)).fetchone()
            highest = Fence(row[0], row[1]) if row is not None and row[0] is not None else None
            if fence is not None and highest is not None and tuple(fence) < highest:
                return highest
            # A write without a fence keeps the one that is there: a late fenced writer stays refused.
            generation, delivery = fence if fence is not None else highest if highest is not None else (None, None)
            expires_at = None if ttl is None else now + micros(ttl)
            tx.execute(sql.SET_VALUE, (self.name, key, generation, delivery, expires_at, value))
        self.engine.upkeep.after_write()
        return None

    def _get(self, key: str) -> bytes | None:
        rows = self.engine.database.reader.read(sql.SELECT_VALUE, (self.name, key, self.engine.database.now()))
        return rows[0][0] if rows else None

    def _delete(self, key: str) -> bool:
        with self.engine.database.writer as tx:
            now = self.engine.database.now()
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

    def _list(self, prefix: str, limit: int, after: str | None) -> builtins.list[str]:
        arguments = (self.name, after or "", prefix, _below(prefix), self.engine.database.now(), limit)
        return [key for (key,) in self.engine.database.reader.read(sql.LIST_KEYS, arguments)]

    def _put_many(self, values: dict[str, bytes | None], fence: Fence, ttl: float | None) -> None:
        with self.engine.database.writer as tx:
            now = self.engine.database.now()
            kept, gone = None if ttl is None else now + micros(ttl), now + KEY_MEMORY_US
            rows = ((self.name, key, *fence, gone if value is None else kept, value) for key, value in values.items())
            tx.executemany(sql.SET_FENCED, rows)
        self.engine.upkeep.after_write()

    def _get_many(self, keys: builtins.list[str]) -> dict[str, bytes]:
        with self.engine.database.reader as tx:
            now = self.engine.database.now()
            rows = ((key, tx.execute(sql.SELECT_VALUE, (self.name, key, now)).fetchone()) for key in keys)
            return {key: row[0] for key, row in rows if row is not None}

    def _scan(self, prefix: str, limit: int, after: str | None, reverse: bool) -> builtins.list[tuple[str, bytes]]:
        below = _below(prefix)
        start = after if after is not None else below if reverse else ""
        with self.engine.database.reader as tx:
            arguments = (self.name, start, prefix, below, self.engine.database.now(), limit)
            return page_of(tx.execute(sql.SCAN_DOWN if reverse else sql.SCAN_UP, arguments))


def _below(prefix: str) -> str:
    """Returns a text above every key with this prefix. SQLite sorts texts by their UTF-8, which is the order of code points."""
    return first_above(prefix) or chr(sys.maxunicode) * (MAX_KEY_CHARS + 1)
