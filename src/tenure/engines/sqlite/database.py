"""The file as this process uses it: a connection that writes, one that reads, the time, and forks.

Two connections per process, not one per thread: docs/decisions/0020 has the measurements.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable

from tenure.clock import Clock
from tenure.engines.sqlite import forks, schema
from tenure.engines.sqlite.faults import explain
from tenure.engines.sqlite.lane import Lane, retry_while_busy
from tenure.engines.sqlite.timeline import Timeline, anchored
from tenure.engines.sqlite.url import Address
from tenure.errors import EngineClosedError

_WAL_PAGES = 3_000
"""The log is copied into the file each time it is about 12 MB long: each copy flushes the file, three times less often than by default."""
_WAL_LIMIT_BYTES = 16 << 20
"""A log that grew beyond this behind a slow reader is cut when it starts anew."""


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
        self.writer.now = self.now
        self.after_fork: Callable[[], None] = lambda: None
        forks.watch(self)

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
