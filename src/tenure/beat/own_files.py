"""Opening what is found by name in a folder that others may reach: only what is ours is opened.

Boards, logs and stack dumps lie in shared memory or a temporary folder, under names that anybody can guess. Somebody else may have put a
symbolic link, a pipe or a file of his own there first. So a file counts only when it is a regular file, belongs to this user and cannot be
written by anybody else, and a folder only when the same holds for it. The check is made on the open file, so that nothing can be exchanged
in between.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from tenure.errors import ForeignFileError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


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
    """The last `most` bytes at most of what is behind `after`, of a file that is ours."""
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
    """Why this is not ours, or nothing."""
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link"
    if not right_kind(found.st_mode):
        return f"it is not a {kind}"
    if found.st_uid != os.getuid():
        return f"it belongs to user {found.st_uid}, and we are user {os.getuid()}"
    if found.st_mode & _OTHERS_WRITE:
        return f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""
