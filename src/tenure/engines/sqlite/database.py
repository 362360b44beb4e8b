"""Connections, transactions and forks: the only file that opens the database.

Two connections per process, each with a lock that its threads queue on: one writes, one reads. Measured against a
connection per thread (docs/decisions/0020), threads that queue on a lock do not meet in SQLite's own lock, whose waiters sleep.
Between processes it is SQLite's lock that decides; waiting for it is a loop of short pauses here, because the library's
own pauses grow to 100 ms.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from tenure.clock import Clock
from tenure.engines.sqlite import schema
from tenure.engines.sqlite.faults import explain, is_busy
from tenure.engines.sqlite.timeline import Timeline, anchored
from tenure.engines.sqlite.url import Address
from tenure.errors import EngineClosedError, EngineRefusedError

T = TypeVar("T")

_FIRST_PAUSE_S = 0.000_2
_LONGEST_PAUSE_S = 0.005
_WAL_LIMIT_BYTES = 16 << 20
# A mistake of ours, not a state of the file: shown as it is.
_BUGS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.NotSupportedError)


class Lane:
    """One connection and the lock that its users queue on. `with lane as tx:` is a transaction.

    It commits when the block ends, and rolls back when the block raises.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], begin: str, address: Address) -> None:
        self._connect, self._begin, self._address = connect, begin, address
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> sqlite3.Connection:
        if os.getpid() != self._pid:
            self._refuse_unseen_fork()
        self._lock.acquire()
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._connect()
            try:
                connection.execute(self._begin)
            except sqlite3.Error as error:
                self._begin_late(connection, error)
        except BaseException:
            self._lock.release()
            raise
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self._connection
        assert connection is not None, "only the holder of the lock drops the connection"
        try:
            if error is None:
                try:
                    connection.execute("COMMIT")
                except sqlite3.Error as failed:
                    self._undo()
                    raise explain(failed, self._address.path) from failed
            else:
                self._undo()
        finally:
            self._lock.release()
        if isinstance(error, sqlite3.Error) and not isinstance(error, _BUGS):
            raise explain(error, self._address.path) from error

    def read(self, statement: str, arguments: Iterable[Any] = ()) -> list[Any]:
        """One statement that stands alone."""
        return self._alone(lambda connection: connection.execute(statement, tuple(arguments)).fetchall())

    def vacuum(self, pages: int) -> None:
        """Give up to this many free pages back to the file system."""
        # Of all ways to run a statement, only a script runs this pragma to its end: the others stop after one page.
        self._alone(lambda connection: connection.executescript(f"PRAGMA incremental_vacuum({pages:d})"))

    def _alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if os.getpid() != self._pid:
            self._refuse_unseen_fork()
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            try:
                return work(self._connection)
            except _BUGS:
                raise
            except sqlite3.Error as error:
                raise explain(error, self._address.path) from error

    def _refuse_unseen_fork(self) -> None:
        """A parent's connection is never used in a child: see `Database.hold_for_fork`."""
        raise EngineRefusedError(
            f"this process was forked in a way that Python did not see, with {self._address.path} open",
            remedy="Fork with os.fork, multiprocessing or subprocess, or open the engine in the child",
        )

    def _begin_late(self, connection: sqlite3.Connection, error: sqlite3.Error) -> None:
        pausing = retry_while_busy(lambda: connection.execute(self._begin), error, self._address.busy_timeout_s)
        if pausing is not None:
            raise explain(pausing, self._address.path) from pausing

    def _undo(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            # The connection is of no more use; closing it rolls back, and the next user opens another.
            self._connection = None
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def hold_for_fork(self) -> bool:
        """Close the connection, and keep others from opening one, until `release_after_fork`."""
        if not self._lock.acquire(timeout=30):
            return False
        self._drop()
        return True

    def release_after_fork(self, *, child: bool) -> None:
        if child:
            self._lock, self._pid = threading.Lock(), os.getpid()
        else:
            self._lock.release()


def retry_while_busy(work: Callable[[], object], error: sqlite3.Error, patience_s: float) -> sqlite3.Error | None:
    """Try again, in real time, until it is no longer busy; the error that it ended with, or None."""
    waiting = threading.Event()  # never set: a pause that no manual clock can hold up
    waited, pause = 0.0, _FIRST_PAUSE_S
    while is_busy(error) and waited < patience_s:
        waiting.wait(pause)
        waited, pause = waited + pause, min(pause * 1.5, _LONGEST_PAUSE_S)
        try:
            work()
        except sqlite3.Error as again:
            error = again
        else:
            return None
    return error


class Database:
    """One file, as this process uses it."""

    def __init__(self, address: Address, clock: Clock) -> None:
        schema.check_library()
        self.address, self._clock = address, clock
        self._open = True
        self._held: list[Lane] = []
        self.writer = Lane(lambda: self._connect(wait_s=0), "BEGIN IMMEDIATE", address)
        # Reads wait only while another process recovers or locks the whole file: the library's own pauses are good enough.
        self.reader = Lane(lambda: self._connect(wait_s=address.busy_timeout_s), "BEGIN", address)
        self._timeline = self._create()
        self.now: Callable[[], int] = self._timeline.now
        self.after_fork: Callable[[], None] = lambda: None
        _watch_forks(self)

    def _create(self) -> Timeline:
        path = self.address.path
        try:
            connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        except sqlite3.Error as error:
            raise explain(error, path) from error
        with contextlib.closing(connection):
            try:
                schema.prepare_file(connection, path)
            except sqlite3.Error as error:
                failed = retry_while_busy(
                    lambda: schema.prepare_file(connection, path), error, self.address.busy_timeout_s
                )
                if failed is not None:
                    raise explain(failed, path) from failed
        with self.writer as tx:
            schema.create_tables(tx, path)
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
                timeout=wait_s,
                check_same_thread=False,
                cached_statements=128,
            )
            connection.execute(f"PRAGMA synchronous = {self.address.synchronous.value}")
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
        except sqlite3.Error as error:
            raise explain(error, self.address.path) from error
        return connection

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
        self._held = [lane for lane in (self.writer, self.reader) if lane.hold_for_fork()]

    def release_after_fork(self, *, child: bool) -> None:
        # A lane that could not be held keeps its parent's pid, and so refuses to work in the child.
        for lane in self._held:
            lane.release_after_fork(child=child)
        if child:
            self.after_fork()


class _ForkWatch:
    """Which databases this process has open. Hooks of a fork cannot be removed again, so there is one set for all."""

    def __init__(self) -> None:
        self._open: weakref.WeakValueDictionary[int, Database] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()
        self._held: list[Database] = []
        self._one_at_a_time = threading.Lock()
        os.register_at_fork(
            before=self._before,
            after_in_parent=lambda: self._after(child=False),
            after_in_child=lambda: self._after(child=True),
        )

    def add(self, database: Database) -> None:
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


_fork_watch: _ForkWatch | None = None


def _watch_forks(database: Database) -> None:
    global _fork_watch
    if _fork_watch is None:
        _fork_watch = _ForkWatch()
    _fork_watch.add(database)
