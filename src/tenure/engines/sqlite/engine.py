"""The engine object: opens the file and hands out handles."""

from __future__ import annotations

import sqlite3
from typing import Any
from weakref import WeakSet

from tenure.clock import Clock
from tenure.engines.contracts import BodyT, Election, Engine, Finding, Journal, Mailbox, ReplyT, Store
from tenure.engines.sqlite.bells import Bells
from tenure.engines.sqlite.database import Database
from tenure.engines.sqlite.election import SqliteElection
from tenure.engines.sqlite.examination import examine
from tenure.engines.sqlite.journal import SqliteJournal
from tenure.engines.sqlite.mailbox import SqliteMailbox, topic_of
from tenure.engines.sqlite.schema import SCHEMA_VERSION
from tenure.engines.sqlite.store import SqliteStore
from tenure.engines.sqlite.upkeep import Upkeep
from tenure.engines.sqlite.url import Address, read_url
from tenure.errors import EngineClosedError
from tenure.ids import IdSource, new_id


class SqliteEngine(Engine):
    """One SQLite file, shared with the other threads and processes of this machine."""

    def __init__(self, address: Address, clock: Clock, *, ids: IdSource = new_id) -> None:
        self.url, self.clock, self.new_id = address.url, clock, ids
        self.database = Database(address, clock)
        self.bells = Bells(address.path, clock, self.database.data_version)
        self.database.after_fork = self.bells.renew_after_fork
        self.upkeep = Upkeep(self.database)
        self._handles: WeakSet[SqliteMailbox[Any, Any] | SqliteJournal] = WeakSet()

    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        self.check_open()
        handle: SqliteMailbox[BodyT, ReplyT] = SqliteMailbox(self, name, body, reply, max_delivery_count)
        self._handles.add(handle)
        return handle

    def journal(self, name: str) -> Journal:
        self.check_open()
        handle = SqliteJournal(self, name)
        self._handles.add(handle)
        return handle

    def election(self, name: str) -> Election:
        self.check_open()
        return SqliteElection(self, name)

    def store(self, name: str) -> Store:
        self.check_open()
        return SqliteStore(self, name)

    def now(self) -> float:
        return self.database.now() / 1e6

    def ring_mailbox(self, name: str) -> None:
        """Tell whoever waits for that mailbox."""
        self.bells.ring(topic_of(name))

    def describe(self) -> dict[str, str]:
        """Returns facts about this engine for people; `wake-up` says when it polls, and why."""
        address = self.database.address
        return {
            "engine": f"SQLite {sqlite3.sqlite_version}, schema {SCHEMA_VERSION}",
            "file": str(address.path),
            "synchronous": address.synchronous.value,
            "wake-up": self.bells.notice or f"sockets in {address.path}-bells",
        }

    def check(self) -> list[Finding]:
        def integrity() -> str:
            return str(self.database.reader.read("PRAGMA quick_check(1)", ())[0][0])

        return examine(self.database.address, self.bells.notice, integrity=integrity)

    def check_open(self) -> None:
        if not self.database.is_open:
            raise EngineClosedError(f"the engine {self.url} was closed", remedy="Open it again")

    def close(self) -> None:
        if not self.database.is_open:
            return
        for handle in list(self._handles):
            handle.close()
        self.bells.close()
        self.database.close()


def open_sqlite(url: str, clock: Clock) -> SqliteEngine:
    """Open the file that a `sqlite:///` URL names; made when it is not there."""
    return SqliteEngine(read_url(url), clock)
