"""Wake-ups between the processes that share a file: a page of bytes in shared memory beside it, and one socket per process.

    FILE-bells/page      one row per topic (64, by hash), one column per process (256): 1 means "ring me"
    FILE-bells/NUMBER    the datagram socket of the process that has that column

A sender looks at one row, which costs well under a microsecond, and sends one byte to the processes that wait. It clears the
byte first, so a burst of sends rings once; a waiter sets it again before it looks into the database. Nothing here is
trusted: a socket without a reader is removed by the process that notices, and a wake-up that was lost is made good by `FileWakeups`,
which looks once a second whether anything was committed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import mmap
import os
import select
import socket
import stat
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tenure import machine
from tenure.clock import Clock
from tenure.engines.long_poll import LookResult, WakeupSource, WakeupTopic
from tenure.errors import EngineError

T = TypeVar("T")

log = logging.getLogger("tenure.engines.sqlite")

_LOOK_EVERY_S = 1.0
"""The seconds between looks of the listener at the file itself, in case a wake-up was lost: a sender died between commit and ring."""
_POLL_EVERY_S = 0.05
"""The seconds between looks where sockets are impossible."""

ROWS = 64
COLUMNS = 256
_OVERFLOW = ROWS * COLUMNS
"""Behind the rows: one byte per process, set when its socket was full, so that it looks at everything."""
_SIZE = _OVERFLOW + COLUMNS
_RING = b"\x01"
_LOCK_ATTEMPTS = 200
_LONGEST_SOCKET_PATH = 100  # the kernels' limit is 104 to 108 with its end


def row_of(topic: str) -> int:
    return zlib.crc32(topic.encode()) % ROWS


class WakeupPage:
    """This process's view of the page. Raises `OSError` where the file system cannot do it."""

    def __init__(self, database: Path) -> None:
        self._folder = Path(f"{database}-bells")
        self._mode = stat.S_IMODE(database.stat().st_mode) & 0o666
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir()
            self._folder.chmod(self._mode | (self._mode & 0o444) >> 2)  # who may write the file may ring its bells
        self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._page_fd = -1
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._sender.setblocking(False)
            self._prefix = self._socket_prefix()
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC  # no link leads us to somebody else's file
            self._page_fd = os.open(self._folder / "page", flags, self._mode)
            # Its blocks, not only its length: a store into a hole of a mapped file kills the process when the disk is full.
            machine.here.allocate(self._page_fd, _SIZE)
            self._flags = mmap.mmap(self._page_fd, _SIZE)
        except OSError:
            self._close_files()
            raise
        self.column: int | None = None
        self._listener: socket.socket | None = None

    def _socket_prefix(self) -> str:
        plain = f"{self._folder}/"
        if len(os.fsencode(plain)) + 3 <= _LONGEST_SOCKET_PATH:
            return plain
        short = machine.here.alias_of(self._folder_fd)
        if short is None:
            raise OSError(errno.ENAMETOOLONG, "the path is too long for a socket", str(self._folder))
        return short

    def ring(self, row: int) -> None:
        """Wake the processes that wait for this row; called after each commit that may interest them."""
        begin = row * COLUMNS
        found = self._flags.find(_RING, begin, begin + COLUMNS)
        while found >= 0:
            column = found - begin
            if column != self.column:
                self._flags[found] = 0
                self._send(column, row)
            found = self._flags.find(_RING, found + 1, begin + COLUMNS)

    def _send(self, column: int, row: int) -> None:
        try:
            self._sender.sendto(bytes((row,)), f"{self._prefix}{column}")
        except BlockingIOError:
            # Its socket is full, so it is about to read. The second try is for the case that it has read by now and
            # will not see the mark.
            self._flags[_OVERFLOW + column] = 1
            with contextlib.suppress(OSError):
                self._sender.sendto(bytes((row,)), f"{self._prefix}{column}")
        except (FileNotFoundError, ConnectionRefusedError):
            self._retire(column)
        except OSError:
            pass  # not ours to ring (another user's): the process looks once a second

    def _retire(self, column: int) -> None:
        """Remove what a dead process left; if that fails, the next one who notices tries again."""
        with contextlib.suppress(OSError), self._locked():
            if not self._is_alive(column):
                self._clear(column)

    def _is_alive(self, column: int) -> bool:
        try:
            self._sender.sendto(b"", f"{self._prefix}{column}")
        except BlockingIOError:
            return True
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
        return True

    def _clear(self, column: int) -> None:
        for row in range(ROWS + 1):
            self._flags[row * COLUMNS + column] = 0
        with contextlib.suppress(OSError):
            (self._folder / str(column)).unlink()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time gives out or takes back columns. Held for microseconds; death releases it.

        A process that was stopped while it held the lock must not stop the others: after a second, `OSError`.
        """
        if self._page_fd < 0:
            raise OSError(errno.EBADF, "the page was closed")
        patience = threading.Event()
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._page_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == _LOCK_ATTEMPTS - 1:
                    raise
                patience.wait(0.005)
        try:
            yield
        finally:
            fcntl.flock(self._page_fd, fcntl.LOCK_UN)

    def join(self) -> socket.socket:
        """Take a column; its socket, on which rows arrive. Raises `OSError` when 256 processes wait already.

        Also removes what dead processes left: one that was killed while it did not wait is rung by nobody.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setblocking(False)
        with self._locked():
            taken = {int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()}
            alive = {column for column in taken if self._is_alive(column)}
            for column in taken - alive:
                self._clear(column)
            for column in range(COLUMNS):
                if column in alive:
                    continue
                self._clear(column)
                try:
                    listener.bind(f"{self._prefix}{column}")
                    (self._folder / str(column)).chmod(self._mode)
                except OSError:
                    listener.close()
                    raise
                self.column, self._listener = column, listener
                return listener
        listener.close()
        raise OSError(errno.EUSERS, f"{COLUMNS} processes wait already")

    def ring_self(self) -> None:
        """Make our own listener look up."""
        with contextlib.suppress(OSError):
            self._sender.sendto(b"", f"{self._prefix}{self.column}")

    def arm(self, row: int) -> None:
        """Ask to be rung for this row; before looking, so that what is committed after the look rings."""
        if self.column is not None:
            self._flags[row * COLUMNS + self.column] = 1

    def disarm(self, row: int) -> None:
        if self.column is not None:
            self._flags[row * COLUMNS + self.column] = 0

    def take_overflow(self) -> bool:
        """Returns True when wake-ups were lost because our socket was full."""
        if self.column is None or not self._flags[_OVERFLOW + self.column]:
            return False
        self._flags[_OVERFLOW + self.column] = 0
        return True

    def close(self) -> None:
        if self.column is not None:
            with contextlib.suppress(OSError), self._locked():
                self._clear(self.column)
        self.forget()

    def forget(self) -> None:
        """Close our files and touch nothing else: in a forked child the column is the parent's."""
        if self._listener is not None:
            self._listener.close()
        self.column = self._listener = None
        self._close_files()

    def _close_files(self) -> None:
        # The mapping is left to the garbage collector: another thread may be about to look at it.
        self._sender.close()
        for fd in (self._folder_fd, self._page_fd):
            if fd >= 0:
                os.close(fd)
        self._folder_fd = self._page_fd = -1


class FileTopic(WakeupTopic):
    """A topic with its rows of the page: one, or those of all topics of a bundle. Topics that share a row are rung together."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.row = row_of(name)
        self.rows = frozenset((self.row,))


class FileWakeups(WakeupSource[FileTopic]):
    """The topics of one engine. One listener thread, started by the first long poll, rings them when another process rang their row."""

    def __init__(self, database: Path, clock: Clock, data_version: Callable[[], int]) -> None:
        super().__init__(clock)
        self._path, self._data_version = database, data_version
        self._waiting = 0
        """The polls that wait for any topic: without one, the listener asks the file nothing."""
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.notice = ""
        """Empty, or why this process polls."""
        self._page = self._open_page()

    def _open_page(self) -> WakeupPage | None:
        try:
            return WakeupPage(self._path)
        except OSError as error:
            self._fall_back(error)
            return None

    def _fall_back(self, error: OSError) -> None:
        if not self.notice:
            self.notice = f"consumers of {self._path} poll every {_POLL_EVERY_S * 1000:.0f} ms, for want of sockets beside it: {error}"
            log.warning(self.notice)

    @property
    def listens(self) -> bool:
        """True when a poll waits, and the thread that rings for it runs."""
        return self._waiting > 0 and self._thread is not None

    @property
    def column(self) -> int | None:
        """This process's column of the page, once it has waited."""
        return self._page.column if self._page is not None else None

    def new_topic(self, name: str) -> FileTopic:
        return FileTopic(name)

    def entered(self, topic: FileTopic) -> bool:
        self._waiting += 1
        if self._thread is None and not self._closing.is_set():
            self._start_listening()
        return True  # the look before was made unarmed: a commit after it rang nothing

    def left(self, topic: FileTopic) -> None:
        self._waiting -= 1
        page = self._page
        if page is not None:
            others = (other.rows for other in self._topics.values() if other.waiting)
            for row in topic.rows.difference(*others):
                page.disarm(row)

    def look_again(self, topic: FileTopic, look: Callable[[], LookResult[T]]) -> LookResult[T]:
        if (page := self._page) is not None:
            for row in topic.rows:
                page.arm(row)
        return look()

    def covered(self, bundle: FileTopic, topics: list[FileTopic]) -> None:
        bundle.rows = frozenset(topic.row for topic in topics)

    def ring(self, name: str) -> None:
        """A transaction was committed that waiters on this topic may want."""
        topic = self._topics.get(name)
        if topic is not None and (topic.waiting or topic.bundles):
            topic.ring()
        page = self._page
        if page is not None:
            page.ring(topic.row if topic is not None else row_of(name))

    def _start_listening(self) -> None:
        listener: socket.socket | None = None
        if self._page is not None:
            try:
                listener = self._page.join()
            except OSError as error:
                self._fall_back(error)
        listen = self._listen if listener is not None else self._poll
        self._thread = threading.Thread(target=listen, args=(listener,), name="tenure-sqlite-bells", daemon=True)
        self._thread.start()

    def _listen(self, listener: socket.socket) -> None:
        """Rings the topics of rows that arrive; once a second, asks the file itself."""
        page, closing = self._page, self._closing
        ready = select.poll()
        ready.register(listener, select.POLLIN)
        seen = math.nan
        while not closing.is_set():
            if ready.poll(_LOOK_EVERY_S * 1000):
                rows = _drain(listener)
                everything = page is not None and page.take_overflow()
                self._ring_rows(None if everything else rows)
            elif self._waiting:
                seen = self._ring_if_changed(seen)

    def _poll(self, _: None) -> None:
        seen = math.nan
        while not self._closing.wait(_POLL_EVERY_S):
            if self._waiting:
                seen = self._ring_if_changed(seen)

    def _ring_if_changed(self, seen: float) -> float:
        try:
            version = float(self._data_version())
        except EngineError:
            version = math.nan  # the waiters meet the error themselves
        if version != seen:
            self._ring_rows(None)
        return version

    def _ring_rows(self, rows: set[int] | None) -> None:
        """Rings the topics of these rows here; None means all of them."""
        with self.lock:
            waited = [topic for topic in self._topics.values() if topic.waiting]
            topics = [topic for topic in waited if rows is None or not topic.rows.isdisjoint(rows)]
        for topic in topics:
            topic.ring()

    def close(self) -> None:
        """Ends the listener and gives back the column. The polls have ended before."""
        self._closing.set()
        thread, page = self._thread, self._page
        if page is not None and page.column is not None:
            page.ring_self()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)
        self._page = None
        if page is not None:
            page.close()

    def renew_after_fork(self) -> None:
        """In the child: own conditions, own page, no listener yet; the parent's column is left alone."""
        super().renew_after_fork()
        if self._page is not None:
            self._page.forget()
        self._closing = threading.Event()
        self._thread, self._waiting = None, 0
        self._page = self._open_page()


def _drain(listener: socket.socket) -> set[int]:
    rows: set[int] = set()
    while True:
        try:
            rows.update(listener.recv(1))
        except BlockingIOError:
            return rows
        except OSError:
            return rows  # closed under us: the engine is closing
