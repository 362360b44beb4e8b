"""The engine object, and its journal, election and store. It opens the file, hands out handles, and keeps the file small.

The upkeep forgets old keys and expired values, gives free pages back, and records the latest time. A thread that writes does it, at most
once a minute, in small steps, so that nothing has to run in the background.

A journal is a head row that appends compare and swap, the entries behind it, and one snapshot. An election is one row, whose epoch only
grows. A store keeps bytes under a key, and the highest fence that wrote it, which outlives them.
"""

from __future__ import annotations

import builtins
import contextlib
import sqlite3
import sys
from typing import Any, NamedTuple

import msgspec

from tenure.clock import Clock
from tenure.engines.checked_handles import (
    CheckedElection,
    CheckedStore,
    HandleTypes,
    PolledEngine,
    PolledJournal,
    first_above,
    page_of,
)
from tenure.engines.checked_mailbox import CheckedMessage
from tenure.engines.checks import EntryPlace
from tenure.engines.contracts import (
    MAX_KEY_CHARS,
    Appended,
    Entry,
    Fence,
    Finding,
    Head,
    Leader,
    Message,
    Sent,
    Snapshot,
    Term,
)
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.address import Address, examine, read_url
from tenure.engines.sqlite.database import SCHEMA_VERSION, Database, micros
from tenure.engines.sqlite.mailbox import SqliteConsumer, SqliteMailbox
from tenure.engines.sqlite.message import KEY_MEMORY_US, SqliteMessage
from tenure.engines.sqlite.wakeup_page import FileWakeups
from tenure.errors import EngineClosedError, EngineError, Truncated
from tenure.randomness import IdSource, new_id

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

    def _put_each(self, values: dict[str, bytes], ttl: float | None) -> None:
        with self.engine.database.writer as tx:
            until = None if ttl is None else self.engine.database.now() + micros(ttl)
            tx.executemany(sql.SET_UNFENCED, [(self.name, key, until, value) for key, value in values.items()])
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


EVERY_US = 60_000_000
_SOON_US = 1_000_000
_STEPS = 4
_ROWS = 2_000
_PAGES = 512
_SPARE_PAGES = 64
"""Free pages that are kept for the next messages: giving them back and asking again costs more than they are worth."""


class Upkeep:
    """One per engine."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next_at = database.now() + EVERY_US

    def after_write(self) -> None:
        """Called after each send; nearly always one comparison."""
        if self._database.now() >= self._next_at:
            self._next_at = self._database.now() + EVERY_US
            with contextlib.suppress(EngineError):  # what the caller asked for has succeeded; this comes around again
                self.run()

    def run(self) -> None:
        """A few steps; what is left over is taken up soon."""
        for _ in range(_STEPS):
            if not self.step():
                return
        self._next_at = self._database.now() + _SOON_US

    def step(self) -> bool:
        """One bounded piece of work; whether there may be more."""
        with self._database.writer as tx:
            now = self._database.now()
            tx.execute(sql.TOUCH_TIMELINE, (now,))
            gone = tx.execute(sql.PRUNE_KEYS, (now - KEY_MEMORY_US, _ROWS)).rowcount
            gone = max(gone, tx.execute(sql.BURY_STORED, (KEY_MEMORY_US, now, _ROWS)).rowcount)
            gone = max(gone, tx.execute(sql.PRUNE_STORED, (now, _ROWS)).rowcount)
            (free,) = tx.execute("PRAGMA freelist_count").fetchone()
        if free > _SPARE_PAGES:
            self._database.writer.vacuum(min(_PAGES, free - _SPARE_PAGES))
        return gone >= _ROWS or free > _SPARE_PAGES + _PAGES


class SqliteEngine(PolledEngine):
    """One SQLite file, shared with the other threads and processes of this machine."""

    appends_in_one_step = True
    handles = HandleTypes(SqliteMailbox, SqliteJournal, SqliteElection, SqliteStore, SqliteConsumer)

    def __init__(self, address: Address, clock: Clock, *, ids: IdSource = new_id) -> None:
        self.url, self.clock, self.new_id = address.url, clock, ids
        self.database = Database(address, clock)
        self.wakeups: FileWakeups = FileWakeups(address.path, clock, self.database.data_version)
        self.database.after_fork = self.wakeups.renew_after_fork
        self.upkeep = Upkeep(self.database)

    def now(self) -> float:
        return self.database.now() / 1e6

    def _send_across(self, batches: list[tuple[Any, list[CheckedMessage]]]) -> list[Sent]:
        sent: list[Sent] = batches[0][0].send_with(batches)
        return sent

    def _acknowledges(self, message: Message[Any, Any]) -> bool:
        return isinstance(message, SqliteMessage) and message.is_in(self.database)

    def _append_with(
        self, journal: Any, events: list[bytes], place: EntryPlace, batches: list[Any], acknowledges: list[Any]
    ) -> Appended:
        """One transaction: one sync to the disk."""
        packed, sent = pack_events(events), list[Sent]()
        with self.database.writer as tx:
            seq = journal.append_in(tx, packed, place)
            now = self.database.now()
            if batches:
                sent = batches[0][0].queue_in(tx, batches, now)
            lost = [message for message in acknowledges if message.settle_in(tx, now, None) is not None]
        for topic in {journal.topic, *(mailbox.topic for mailbox, _ in batches)}:
            self.wakeups.ring(topic)
        self.upkeep.after_write()
        return Appended(seq, sent, lost)

    def describe(self) -> dict[str, str]:
        """Returns facts about this engine for people; `wake-up` says when it polls, and why."""
        address = self.database.address
        return {
            "engine": f"SQLite {sqlite3.sqlite_version}, schema {SCHEMA_VERSION}",
            "file": str(address.path),
            "synchronous": address.synchronous.value,
            "wake-up": self.wakeups.notice or f"sockets in {address.path}-bells",
        }

    def check(self) -> list[Finding]:
        def integrity() -> str:
            return str(self.database.reader.read("PRAGMA quick_check(1)", ())[0][0])

        return examine(self.database.address, self.wakeups.notice, integrity=integrity)

    def check_open(self) -> None:
        if not self.database.is_open:
            raise EngineClosedError(f"the engine {self.url} was closed", remedy="Open it again")

    def close(self) -> None:
        if not self.database.is_open:
            return
        self.wakeups.end_polls()
        self.wakeups.close()
        self.database.close()


def open_sqlite(url: str, clock: Clock) -> SqliteEngine:
    """Open the file that a `sqlite:///` URL names; made when it is not there."""
    return SqliteEngine(read_url(url), clock)
