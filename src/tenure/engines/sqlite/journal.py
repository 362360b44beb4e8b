"""Journals: a head row that appends compare and swap, the entries behind it, and one snapshot."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenure.engines.checks import check_append, check_name, check_seconds, check_snapshot
from tenure.engines.contracts import MAX_WAIT_S, Entry, Head, Journal, Snapshot
from tenure.engines.sqlite import statements as sql
from tenure.errors import LimitError, SequenceConflictError, StaleEpochError, StaleSnapshotError, Truncated

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
        self._polls = engine.bells.polls(self._topic)

    def append(self, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str) -> int:
        check_append(events, epoch, expect, append_id)
        packed = _pack([bytes(event) for event in events])
        with self._database.writer as tx:
            row = self._advance(tx, epoch, expect)
            seq: int = row[1]
            tx.execute(sql.INSERT_ENTRY, (row[0], seq, epoch, self._database.now(), append_id, packed))
        self._engine.bells.ring(self._topic)
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
        found = self.read(after)
        if found or not wait_time_seconds:
            return found
        # Time alone brings no entry.
        return self._engine.bells.wait_for(self._polls, wait_time_seconds, lambda: (self._look(after), math.inf))

    def _look(self, after: int) -> list[Entry]:
        return [] if self._polls.closed else self.read(after)

    def wake(self) -> None:
        self._engine.check_open()
        self._polls.wake()

    def close(self) -> None:
        """The engine is closing: end the follows."""
        self._polls.close()

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
