"""A table of waiting processes in shared memory beside the file: a page of bytes and one socket per process.

    FILE-bells/page      one row per topic (64, by hash), one column per process (256): 1 means "ring me"
    FILE-bells/NUMBER    the datagram socket of the process that has that column

A sender looks at one row, which costs well under a microsecond, and sends one byte to the processes that wait. It clears the
byte first, so a burst of sends rings once; a waiter sets it again before it looks into the database. Nothing here is
trusted: a socket without a reader is removed by whoever notices, and a bell that was lost is made good by `bells`,
which looks once a second whether anything was committed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import socket
import stat
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

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


class Page:
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
            os.posix_fallocate(self._page_fd, 0, _SIZE)
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
        short = f"/proc/self/fd/{self._folder_fd}/"
        if not Path(short).is_dir():
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
