"""From what SQLite reports to what a user can act on."""

from __future__ import annotations

import os
import resource
import sqlite3
from pathlib import Path

from tenure.errors import (
    EngineBusyError,
    EngineCorruptError,
    EngineError,
    EngineFullError,
    EngineReadOnlyError,
    EngineUnavailableError,
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
