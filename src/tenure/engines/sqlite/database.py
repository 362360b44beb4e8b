"""The file as this process uses it: its tables, a connection that writes, one that reads, the time, and forks.

Two connections per process, not one per thread: docs/decisions/0020 has the measurements.

The engine's time is boot time plus an anchor that the file keeps for this boot. Boot time is the same in all processes of one boot and is
never stepped, so neither are leases. A new boot has a new boot time: then the anchor is set anew, from the wall clock, or from the latest
time that the file knows if that is later. No process of the earlier boot can be alive, so its leases and terms end there and then.

Every open database is called before a fork, and after it on both sides. A fork in C code that does not tell Python is found out by the
process id: see `SharedConnection`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from tenure.clock import Clock
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.address import OLDEST_SQLITE, Address
from tenure.engines.sqlite.connection import (
    FileIdentity,
    SharedConnection,
    UnsyncedTransactions,
    explain,
    retry_while_busy,
)
from tenure.errors import (
    ConfigurationError,
    EngineClosedError,
    EngineRefusedError,
    EngineVersionError,
)

SCHEMA_VERSION = 1
APPLICATION_ID = 0x544E5231
"""`TNR1`, in the file's header: `file tenure.db` shows it, and no other program's database is mistaken for ours."""
_STANDING = """
SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version, pragma_application_id"""
"""One statement, so that all three are of one moment: another process may be turning the same new file into ours right now."""


def check_library() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise EngineVersionError(
            f"this Python has SQLite {sqlite3.sqlite_version}",
            remedy=f"Use a Python with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer",
        )


def make_private(path: Path) -> None:
    """Makes an empty file that only this user can read, where there is none: SQLite would let the umask decide, and copies the mode to its log.

    It is made under another name and linked: to close a file that SQLite may have open by now would drop SQLite's locks on it.
    """
    if path.exists() or not path.parent.is_dir():
        return
    try:
        handle, made = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # always with mode 0600
        os.close(handle)
    except OSError:
        return  # SQLite says why nothing can be made there
    try:
        with contextlib.suppress(OSError):  # another process was first, or the file system has no links
            os.link(made, path)
    finally:
        Path(made).unlink()


def prepare_file(connection: sqlite3.Connection, path: Path) -> None:
    """Turn a new file into ours, outside of any transaction: neither pragma works inside one."""
    if _version(connection, path) == 0:
        # Must come before the first table. Free pages are then given back in steps: see upkeep.py.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise EngineRefusedError(
            f"{path} cannot use a write-ahead log: SQLite stays in mode {mode!r}",
            remedy="Put the file on a local disk: network file systems lack the shared memory that it needs",
        )


def create_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Make what is missing, inside the caller's transaction; another process may have been first."""
    if _version(connection, path) == SCHEMA_VERSION:
        if connection.execute(_LATEST_PART).fetchone() is None:
            _run(connection, "schema_later.sql")
        return
    _run(connection, "schema.sql")
    _run(connection, "schema_later.sql")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The file's schema version; 0 for a new one."""
    version, application, tables = connection.execute(_STANDING).fetchone()
    if tables and application != APPLICATION_ID:
        raise ConfigurationError(f"{path} is a database of another program", remedy="Give Tenure a file of its own")
    if version > SCHEMA_VERSION:
        raise EngineVersionError(
            f"{path} was written by a newer Tenure: its schema is {version}, this one knows {SCHEMA_VERSION}",
            remedy="Upgrade Tenure here, or open another file; nothing was changed",
        )
    return int(version)


_LATEST_PART = "SELECT 1 FROM sqlite_master WHERE name = 'message_step_forgotten'"
"""Finds the last statement of schema_later.sql."""


def _run(connection: sqlite3.Connection, name: str) -> None:
    for statement in _statements(name):
        connection.execute(statement)


def _statements(name: str) -> Iterator[str]:
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    pending = ""
    for line in text.splitlines():
        pending += line.split("--")[0] + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


MICRO = 1_000_000


def micros(seconds: float) -> int:
    """Whole microseconds: sums of them are exact, so a lease ends at its very moment and not a rounding later."""
    return round(seconds * MICRO)


class Timeline:
    """Tells the engine's time, in microseconds, once it is anchored."""

    __slots__ = ("_anchor", "_boottime")

    def __init__(self, clock: Clock, anchor: int) -> None:
        self._boottime, self._anchor = clock.boottime, anchor

    def now(self) -> int:
        return round(self._boottime() * MICRO) + self._anchor


def anchored(connection: sqlite3.Connection, clock: Clock) -> Timeline:
    """Read the anchor of this boot, or drop one; inside the caller's write transaction."""
    row = connection.execute(sql.READ_TIMELINE).fetchone()
    if row is not None and row[0] == clock.boot_id():
        return Timeline(clock, row[1])
    now = max(micros(clock.wall()), _latest_known(connection))
    anchor = now - micros(clock.boottime())
    connection.execute(sql.SET_TIMELINE, (clock.boot_id(), anchor, now))
    if row is not None:
        connection.execute(sql.FREE_ALL_LEASES)
        connection.execute(sql.END_ALL_TERMS, (now,))
    return Timeline(clock, anchor)


def _latest_known(connection: sqlite3.Connection) -> int:
    """The latest time that anything in the file was written at: reads whole tables, once per boot."""
    return max(int(connection.execute(query).fetchone()[0] or 0) for query in sql.LATEST_TIMES)


class Forkable(Protocol):
    """The interface of an object that takes part in a fork."""

    @property
    def is_open(self) -> bool: ...

    def hold_for_fork(self) -> None: ...

    def release_after_fork(self, *, child: bool) -> None: ...


class _ForkWatch:
    """Which databases this process has open. Hooks of a fork cannot be removed again, so there is one set for all."""

    def __init__(self) -> None:
        self._open: WeakValueDictionary[int, Forkable] = WeakValueDictionary()
        self._numbers = itertools.count()
        self._held: list[Forkable] = []
        self._one_at_a_time = threading.Lock()
        os.register_at_fork(
            before=self._before,
            after_in_parent=lambda: self._after(child=False),
            after_in_child=lambda: self._after(child=True),
        )

    def add(self, database: Forkable) -> None:
        self._open[next(self._numbers)] = database

    def _before(self) -> None:
        self._one_at_a_time.acquire()
        self._held = [database for _, database in sorted(self._open.items()) if database.is_open]
        for database in self._held:
            database.hold_for_fork()

    def _after(self, *, child: bool) -> None:
        held, self._held = self._held, []
        for database in held:
            database.release_after_fork(child=child)
        self._one_at_a_time.release()


_watch: _ForkWatch | None = None


def watch(database: Forkable) -> None:
    global _watch
    if _watch is None:
        _watch = _ForkWatch()
    _watch.add(database)


_WAL_PAGES = 3_000
"""The log is copied into the file each time it is about 12 MB long: each copy flushes the file, three times less often than by default."""
_WAL_LIMIT_BYTES = 16 << 20
"""A log that grew beyond this behind a slow reader is cut when it starts anew."""


class Database:
    """One file, as this process uses it."""

    def __init__(self, address: Address, clock: Clock) -> None:
        check_library()
        self.address, self._clock = address, clock
        self._open = True
        self._held: list[SharedConnection] = []
        self._identity = FileIdentity(address.path, clock)
        self.writer = SharedConnection(lambda: self._connect(wait_s=0), "BEGIN IMMEDIATE", address, self._identity)
        # Reads wait only while another process recovers or locks the whole file: the library's own pauses are good enough.
        self.reader = SharedConnection(
            lambda: self._connect(wait_s=address.busy_timeout_s), "BEGIN", address, self._identity
        )
        self._timeline = self._create()
        self.now: Callable[[], int] = self._timeline.now
        self.writer.now = self.now
        self.after_fork: Callable[[], None] = lambda: None
        watch(self)

    def _create(self) -> Timeline:
        path = self.address.path
        make_private(path)
        try:
            connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        except sqlite3.Error as error:
            raise explain(error, path) from error
        with contextlib.closing(connection):
            try:
                prepare_file(connection, path)
            except sqlite3.Error as error:
                failed = retry_while_busy(lambda: prepare_file(connection, path), error, self.address.busy_timeout_s)
                if failed is not None:
                    raise explain(failed, path) from failed
            self._identity.remember()  # before the connection closes: until then nobody else can have made another file of it
        with self.writer as tx:
            create_tables(tx, path)
            return anchored(tx, self._clock)

    def _connect(self, wait_s: float) -> sqlite3.Connection:
        """A connection to a file that is there: reopening never makes an empty one in the place of a lost one."""
        if not self._open:
            raise EngineClosedError(f"the engine on {self.address.path} was closed", remedy="Open it again")
        try:
            connection = sqlite3.connect(
                f"{self.address.path.as_uri()}?mode=rw",
                uri=True,
                isolation_level=None,
                timeout=self.address.busy_timeout_s,
                check_same_thread=False,
                cached_statements=128,
            )
        except sqlite3.Error as error:
            raise explain(error, self.address.path) from error
        self._set_up(connection, wait_s)
        return connection

    def _set_up(self, connection: sqlite3.Connection, wait_s: float) -> None:
        """The first look at the file may meet somebody who recovers or removes the log: that passes in a moment."""

        def pragmas() -> None:
            connection.execute(f"PRAGMA synchronous = {self.address.synchronous.value}")
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            connection.execute(f"PRAGMA busy_timeout = {round(wait_s * 1_000)}")

        try:
            pragmas()
        except sqlite3.Error as error:
            # SQLite does not wait for every kind of lock, however long its own timeout is.
            failed = retry_while_busy(pragmas, error, self.address.busy_timeout_s)
            if failed is not None:
                connection.close()
                raise explain(failed, self.address.path) from failed

    def claiming(self, *, provisional: bool) -> SharedConnection | UnsyncedTransactions:
        """Returns the transactions for a claim. A provisional one is not synced: what it gave out a power cut takes away, and its holder with it."""
        return self.writer.unsynced if provisional else self.writer

    def sync(self) -> None:
        """Syncs what was committed so far to the disk."""
        if self.writer.is_synced:
            with self.writer as tx:
                tx.execute(sql.TOUCH_TIMELINE, (self.now(),))

    def data_version(self) -> int:
        """A number that changes when another connection has committed."""
        (version,) = self.reader.read("PRAGMA data_version")[0]
        return int(version)

    @property
    def is_open(self) -> bool:
        return self._open

    def close(self) -> None:
        self._open = False
        self.reader.close()
        self.writer.close()

    def hold_for_fork(self) -> None:
        """Close everything that SQLite would carry into the child.

        SQLite counts a file's locks per process in memory. A child would inherit the count without the locks, and two
        processes would each believe to be the last one to close, or to write the log. So no connection lives across a fork.
        """
        self._held = [one for one in (self.writer, self.reader) if one.hold_for_fork()]

    def release_after_fork(self, *, child: bool) -> None:
        # A connection that could not be held keeps its parent's pid, and so refuses to work in the child.
        for connection in self._held:
            connection.release_after_fork(child=child)
        if child:
            self.after_fork()
