"""The beat board: a page of shared memory with one record for each attempt that may run. The supervisor makes it, slots open it.

Boards, logs and stack dumps lie in shared memory or a temporary folder, under names that anybody can guess. Somebody else may have put a
symbolic link, a pipe or a file of his own there first. So a file counts only when it is a regular file, belongs to this user and cannot be
written by anybody else, and a folder only when the same holds for it. The check is made on the open file, so that nothing can be exchanged
in between.

The owner of a board holds a lock on its file. The kernel frees the lock when the owner ends, however it ends, so a free lock proves that the
owner is gone. A pid proves nothing where /dev/shm is shared by containers: in another PID namespace it is nobody, or somebody else.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import stat
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from tenure import machine
from tenure.beat.record import RECORD_BYTES, BeatRecord
from tenure.errors import BoardError, ForeignFileError

MAGIC = b"TNRBOARD"
VERSION = 1
_HEADER = struct.Struct("<8sIIQQ")  # magic, version, records, supervisor's pid, length of the identity that follows
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class BoardIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a board. A later supervisor reads it to find out whether the owner is dead."""

    incarnation: str
    pid: int
    pid_started: int  # clock ticks after boot, from /proc: a pid alone is reused
    boot_id: str
    engine: str = ""  # URL without secrets
    worker: str = ""  # its name, which may outlive this start
    locked: bool = False  # the owner holds the lock while it lives; False on boards of releases that knew no lock


class BeatBoard:
    """The whole page. The supervisor creates it, slots open it by path."""

    def __init__(self, path: Path, page: mmap.mmap, records: int, identity: BoardIdentity, *, owner: bool) -> None:
        self.path, self.identity, self._page, self._owner = path, identity, page, owner
        self._lock: int | None = None
        """The open file whose lock this process holds. Closing it frees the lock."""
        self.records = [BeatRecord(page, i, mmap.PAGESIZE + i * RECORD_BYTES) for i in range(records)]
        # The last word of the first page, behind the identity.
        self._tick = memoryview(page)[mmap.PAGESIZE - 8 : mmap.PAGESIZE].cast("d")

    @classmethod
    def create(cls, folder: Path, records: int, identity: BoardIdentity) -> BeatBoard:
        """Makes a board in `folder`, which is in shared memory where there is any (see `board_folder`)."""
        # The file has another name until its header is whole. Otherwise a cleanup at this moment would remove it as a broken board.
        path, unfinished = folder / f"board-{identity.incarnation}", folder / f"new-{identity.incarnation}"
        size = mmap.PAGESIZE + records * RECORD_BYTES
        identity = msgspec.structs.replace(identity, locked=True)
        name = msgspec.msgpack.encode(identity)
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before it has the name that a cleanup looks for
            # Reserve the room now: a full /dev/shm must be an error here, not a SIGBUS at some later beat.
            machine.here.allocate(descriptor, size)
            page = mmap.mmap(descriptor, size)
        except OSError:
            unfinished.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        _HEADER.pack_into(page, 0, MAGIC, VERSION, records, identity.pid, len(name))
        page[_HEADER.size : _HEADER.size + len(name)] = name
        unfinished.rename(path)
        board = cls(path, page, records, identity, owner=True)
        board._lock = descriptor
        return board

    @classmethod
    def private(cls, records: int) -> BeatBoard:
        """Makes a board that only this process sees, for attempts in threads and for tests."""
        page = mmap.mmap(-1, mmap.PAGESIZE + records * RECORD_BYTES)
        identity = BoardIdentity(incarnation="private", pid=os.getpid(), pid_started=0, boot_id="")
        return cls(Path("private"), page, records, identity, owner=False)

    @classmethod
    def open(cls, path: Path) -> BeatBoard:
        """Opens a board of this user. Raises `ForeignFileError` for another user's file, `BoardError` for a file that is no board."""
        try:
            descriptor = open_own_file(path, os.O_RDWR)
            try:
                page = mmap.mmap(descriptor, 0)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise BoardError(f"cannot open the beat board {path}: {error}") from error
        if len(page) < mmap.PAGESIZE:
            page.close()
            raise BoardError(f"{path} is too short to be a beat board")
        magic, version, records, _, length = _HEADER.unpack_from(page, 0)
        expected = mmap.PAGESIZE + records * RECORD_BYTES
        if magic != MAGIC or version != VERSION or len(page) != expected or length > mmap.PAGESIZE - 8 - _HEADER.size:
            page.close()
            raise BoardError(f"{path} is not a beat board of version {VERSION}")
        try:
            identity = msgspec.msgpack.decode(page[_HEADER.size : _HEADER.size + length], type=BoardIdentity)
        except msgspec.DecodeError as error:
            page.close()
            raise BoardError(f"{path} does not say whose board it is: {error}") from error
        # The name leads to files and processes: it must be the one that the file was found under, and a plain word.
        if path.name != f"board-{identity.incarnation}" or not _PLAIN.fullmatch(identity.incarnation):
            page.close()
            raise BoardError(f"{path} says that it is the board of {identity.incarnation[:200]!r}")
        return cls(path, page, records, identity, owner=False)

    def lock(self) -> bool:
        """Takes the lock of a board whose owner is gone, until `close`. Returns False while its owner lives, or another cleanup has it."""
        try:
            descriptor = open_own_file(self.path, os.O_RDWR)
        except OSError:
            return False  # another cleanup has removed it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return os.fstat(descriptor).st_nlink > 0  # 0: another cleanup removed it between the open and the lock

    def unlock(self) -> None:
        """Frees the lock that `lock` took."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def tick(self, now: float) -> None:
        """Records that the supervisor looked at its slots at this monotonic time."""
        self._tick[0] = now

    @property
    def ticked_at(self) -> float:
        """Returns the time of the last look. A supervisor that is stopped extends no lease, so its slots should claim nothing."""
        return self._tick[0]

    def close(self) -> None:
        """Unmaps the board; the owner also removes the file."""
        for record in self.records:
            record.release_views()
        self.records = []
        self._tick.release()
        self._page.close()
        if self._owner:
            self.path.unlink(missing_ok=True)
        self.unlock()  # after the file is gone: a cleanup in between would take it for a dead worker's


def board_folder(preferred: Path | None = None, *, needs: int = 1 << 20) -> Path:
    """Returns the folder for boards: shared memory, or a temporary folder where that is missing, read-only or too small."""
    name = f"tenure-{os.getuid()}"
    why = ""
    for base in (preferred or machine.here.shared_memory, Path(tempfile.gettempdir())):
        try:
            folder = own_folder(base / name)
            room = os.statvfs(folder)
        except ForeignFileError as error:
            why += f"; {error.fact}"
            continue
        except OSError:
            continue
        if room.f_bavail * room.f_frsize > needs and os.access(folder, os.W_OK):
            return folder
    raise BoardError(
        f"no place for the beat board: neither /dev/shm nor the temporary folder can be written{why}",
        remedy="Set TMPDIR to a folder that this user can write",
    )


def open_own_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Returns a descriptor of a file that is ours, or raises `ForeignFileError`; `OSError` where there is none to open.

    A new file (`O_CREAT`) can be read and written by this user alone.
    """
    try:
        # Without waiting: opening a pipe that nobody writes to would last for ever.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if path.is_symlink():
            raise ForeignFileError(path, "it is a symbolic link") from error
        raise
    if why := _foreign(os.fstat(descriptor), stat.S_ISREG, "regular file"):
        os.close(descriptor)
        raise ForeignFileError(path, why)
    return descriptor


def read_own_file(path: Path, most: int, *, after: int = 0) -> bytes:
    """Returns the last `most` bytes at most of what is behind `after`, of a file that is ours."""
    descriptor = open_own_file(path)
    try:
        size = os.fstat(descriptor).st_size
        begin = max(after, size - most)
        return os.pread(descriptor, max(0, size - begin), begin)
    finally:
        os.close(descriptor)


def own_folder(path: Path) -> Path:
    """Make a folder that only this user can enter, or take it when it is there and ours. Raises `ForeignFileError`, `OSError`."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    check_own_folder(path)
    path.chmod(0o700)  # it may have been made by hand, readable for others
    return path


def check_own_folder(path: Path) -> None:
    """Raise `ForeignFileError` unless this is a folder of ours that nobody else can write to; `OSError` where there is none."""
    if why := _foreign(path.lstat(), stat.S_ISDIR, "folder"):
        raise ForeignFileError(path, why)


def _foreign(found: os.stat_result, right_kind: Callable[[int], bool], kind: str) -> str:
    """Returns why this is not ours; empty text for what is."""
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link"
    if not right_kind(found.st_mode):
        return f"it is not a {kind}"
    if found.st_uid != os.getuid():
        return f"it belongs to user {found.st_uid}, and we are user {os.getuid()}"
    if found.st_mode & _OTHERS_WRITE:
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""
