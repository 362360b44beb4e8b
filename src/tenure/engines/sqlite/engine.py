"""The engine object: opens the file, hands out handles, and keeps the file small.

The upkeep forgets old keys and expired values, gives free pages back, and records the latest time. A thread that writes does it, at most
once a minute, in small steps, so that nothing has to run in the background.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

from tenure.clock import Clock
from tenure.engines.checked_handles import HandleTypes, PolledEngine
from tenure.engines.checked_mailbox import CheckedMessage
from tenure.engines.checks import EntryPlace
from tenure.engines.contracts import Appended, Finding, Message, Sent
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.address import Address, examine, read_url
from tenure.engines.sqlite.database import SCHEMA_VERSION, Database
from tenure.engines.sqlite.journal_election_store import SqliteElection, SqliteJournal, SqliteStore, pack_events
from tenure.engines.sqlite.mailbox import SqliteConsumer, SqliteMailbox
from tenure.engines.sqlite.message import KEY_MEMORY_US, SqliteMessage
from tenure.engines.sqlite.wakeup_page import FileWakeups
from tenure.errors import EngineClosedError, EngineError
from tenure.randomness import IdSource, new_id

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
