"""One connection to the file, the lock that its threads queue on, a transaction, and the errors that SQLite reports.

Threads that queue on a lock of ours do not meet in SQLite's own, whose waiters sleep. Between processes it is SQLite's lock
that decides; waiting for it is a loop of short pauses here, because the library's own pauses grow to 100 ms.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tenure.clock import Clock
from tenure.engines.sqlite.address import Address, Synchronous
from tenure.errors import (
    EngineBusyError,
    EngineCorruptError,
    EngineError,
    EngineFullError,
    EngineReadOnlyError,
    EngineRefusedError,
    EngineUnavailableError,
    EngineWentBackError,
)

_ALMOST_NOTHING = 1 << 20
_RESTORE = "Restore the file from a copy, or keep what can be read with `sqlite3 FILE .recover`, and open a new one"


def primary_code(error: sqlite3.Error) -> int:
    """The error's primary result code; 0 when the Python module itself raised it."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def explain(error: sqlite3.Error, path: Path) -> EngineError:
    """The error of our tree that says what happened to the file and what to do."""
    code, name = primary_code(error), getattr(error, "sqlite_errorname", "")
    said = f"{error}{f' ({name})' if name else ''}"
    if is_busy(error):
        return EngineBusyError(
            f"{path} is locked by another process: {said}",
            remedy=f"Find it with `fuser {path}`; a longer ?busy_timeout= waits longer",
        )
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _no_room(path)):
        return EngineFullError(f"no room to write {path}: {said}")
    if code == sqlite3.SQLITE_NOTADB:
        return EngineCorruptError(
            f"{path} is not an SQLite database: {said}", remedy="Check the path, or " + _lower(_RESTORE)
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return EngineCorruptError(f"{path} is damaged: {said}", remedy=_RESTORE)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH):
        return _cannot_open(path, said)
    return EngineUnavailableError(f"{path} cannot be used: {said}", remedy="Check the disk; the outcome is unknown")


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _cannot_open(path: Path, said: str) -> EngineError:
    folder = path.parent
    if not folder.is_dir():
        return EngineUnavailableError(
            f"the folder {folder} does not exist: {said}", remedy="Create it, or change the path"
        )
    if path.is_dir():
        return EngineUnavailableError(f"{path} is a folder: {said}", remedy="Name a file in it")
    if not path.exists() and os.access(folder, os.W_OK):
        return EngineUnavailableError(
            f"{path} is gone: {said}",
            remedy="It was moved or deleted while in use: put it back, or open the engine anew",
        )
    remedy = f"SQLite writes beside the file, so user {os.geteuid()} must be able to write {folder} and every file of that name in it"
    return EngineReadOnlyError(f"{path} may not be written: {said}", remedy=remedy)


def _no_room(path: Path) -> bool:
    """Returns True when a write failed for want of room: SQLite reports a file size limit as a plain input/output error."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    if disk.f_bavail * disk.f_frsize < _ALMOST_NOTHING:
        return True
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return False
    largest = max((_size(path), _size(Path(f"{path}-wal")), _size(Path(f"{path}-shm"))))
    return largest + _ALMOST_NOTHING > limit


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


T = TypeVar("T")

_FIRST_PAUSE_S = 0.000_2
_LONGEST_PAUSE_S = 0.005
# A mistake of ours, not a state of the file: shown as it is.
_BUGS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.NotSupportedError)


LOOK_EVERY_S = 0.5
"""The seconds between two looks at the path. A look costs a microsecond, and a file that is gone takes with it what was sent before the look
anyway: what counts is that nodes notice soon, and that two leaders do not go on beside each other."""


class FileIdentity:
    """Knows which file the engine was opened on, and refuses everything once the path names another file, or none.

    SQLite itself notices nothing: it goes on writing to a file without a name, which is gone with the last process that has it open, while
    a process that starts now makes a new file at the path, and elects a leader there.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self.monotonic = path, clock.monotonic
        self._opened: tuple[int, int] | None = None
        self.look_at = 0.0
        """The monotonic time from which on the next call looks. Callers compare it themselves: this is on the path of every message."""

    def remember(self) -> None:
        """The file at the path is the one: it was opened just now."""
        self._opened = self._found()

    def check(self) -> None:
        """Looks, and raises `EngineWentBackError` until the same file is back."""
        if (found := self._found()) == self._opened:
            self.look_at = self.monotonic() + LOOK_EVERY_S
            return
        how = "was deleted or moved away" if found is None else "was replaced by another file"
        raise EngineWentBackError(
            f"{self._path} {how} while it was in use, so nothing more is written to it",
            remedy=(
                "Stop every process of Tenure that uses it, put the file back together with those named "
                f"{self._path.name}-wal and -shm, and start them again; without a copy, they begin anew and empty"
            ),
        )

    def _found(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            return self._opened  # the path cannot be looked at, which says nothing about the file: SQLite will say more
        return found.st_dev, found.st_ino


class SharedConnection:
    """One connection and the lock that its users queue on. `with shared as tx:` is a transaction.

    It commits when the block ends, and rolls back when the block raises.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], begin: str, address: Address, file: FileIdentity
    ) -> None:
        self._connect, self._begin, self._address, self._file = connect, begin, address, file
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self.now: Callable[[], int] = _not_anchored
        self.unsynced = UnsyncedTransactions(self)

    def __enter__(self) -> sqlite3.Connection:
        return self.begin()

    def begin(self, before: str = "") -> sqlite3.Connection:
        """Takes the lock and begins a transaction, after the statement `before`."""
        if os.getpid() != self._pid:
            self._refuse_unseen_fork()
        self._lock.acquire()
        try:
            connection = self._connection
            if connection is None or self._file.monotonic() >= self._file.look_at:
                connection = self._usable()
            try:
                if before:
                    connection.execute(before)
                connection.execute(self._begin)
            except sqlite3.Error as error:
                self._begin_late(connection, error)
        except BaseException:
            if before:
                self._drop()  # the next user opens another, without what `before` did
            self._lock.release()
            raise
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)

    def end(self, error: BaseException | None, after: str = "") -> None:
        """Commits, or rolls back because of the error, runs the statement `after`, and gives the lock back."""
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
            try:
                if after and self._connection is not None:
                    self._connection.execute(after)
            except sqlite3.Error:
                self._drop()  # what was committed is committed; the next user opens another connection
            finally:
                self._lock.release()
        if isinstance(error, sqlite3.Error) and not isinstance(error, _BUGS):
            raise explain(error, self._address.path) from error

    @property
    def is_synced(self) -> bool:
        """True when each commit waits for the disk."""
        return self._address.synchronous is Synchronous.FULL

    def once(self, statement: str, *arguments: object, stamps: int = 1) -> int:
        """One statement as a transaction of its own; how many rows it changed.

        Its last arguments, as many as `stamps`, are the time, read when it is our turn and not before.
        """
        if os.getpid() != self._pid:
            self._refuse_unseen_fork()
        with self._lock:
            connection = self._connection
            if connection is None or self._file.monotonic() >= self._file.look_at:
                connection = self._usable()
            try:
                return connection.execute(statement, arguments + (self.now(),) * stamps).rowcount
            except sqlite3.Error as error:
                return self._once_late(connection, error, lambda: (statement, arguments + (self.now(),) * stamps))

    def _once_late(
        self, connection: sqlite3.Connection, error: sqlite3.Error, call: Callable[[], tuple[str, tuple[object, ...]]]
    ) -> int:
        changed = 0

        def again() -> None:
            nonlocal changed
            changed = connection.execute(*call()).rowcount

        failed = retry_while_busy(again, error, self._address.busy_timeout_s)
        if failed is None:
            return changed
        self._undo()
        if isinstance(failed, _BUGS):
            raise failed
        raise explain(failed, self._address.path) from failed

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
            connection = self._connection
            if connection is None or self._file.monotonic() >= self._file.look_at:
                connection = self._usable()
            try:
                return work(connection)
            except _BUGS:
                raise
            except sqlite3.Error as error:
                raise explain(error, self._address.path) from error

    def _usable(self) -> sqlite3.Connection:
        """Returns the connection, opened where there is none, after a look at the file. The caller holds the lock."""
        self._file.check()
        if self._connection is None:
            connection = self._connect()
            try:
                self._file.check()  # another file may have taken the place of ours in between
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

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


class UnsyncedTransactions:
    """`with shared.unsynced as tx:` is a transaction that survives the end of every process, and is synced to the disk only with the next one that is.

    A power cut takes away the last transactions of the log and no others, so whatever was decided on one of these in the file goes with it.
    What leaves the file must wait for a synced one.
    """

    _UNSYNCED, _SYNCED = "PRAGMA synchronous = normal", "PRAGMA synchronous = full"

    def __init__(self, shared: SharedConnection) -> None:
        self._shared = shared
        self._before, self._after = (self._UNSYNCED, self._SYNCED) if shared.is_synced else ("", "")

    def __enter__(self) -> sqlite3.Connection:
        return self._shared.begin(self._before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shared.end(error, self._after)


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


def _not_anchored() -> int:
    raise AssertionError("the database tells its connections the time once it is anchored")
