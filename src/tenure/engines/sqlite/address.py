"""The file that a URL names: reads `sqlite:///file.db?option=value`, and examines the file and its place for `tenure doctor`.

Reading opens nothing. The examination says whether this machine and this place keep the engine's promises.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tenure import machine
from tenure.engines.contracts import Finding, Level
from tenure.errors import ConfigurationError

OPTIONS = {
    "synchronous": "full (default: a commit survives a power cut) or normal (faster: it survives a crash of any process)",
    "busy_timeout": "seconds to wait for another process that holds the file; 0 to 600, default 10",
}


class Synchronous(StrEnum):
    """The failures that a commit survives."""

    FULL = "full"  # a power cut: the log is flushed to the disk at each commit
    NORMAL = "normal"  # a crash of any process; a power cut may lose the last commits, never consistency


@dataclass(frozen=True, slots=True)
class Address:
    """Where the file is and how it is used."""

    url: str
    path: Path
    synchronous: Synchronous = Synchronous.FULL
    busy_timeout_s: float = 10.0


def read_url(url: str) -> Address:
    """`sqlite:///relative.db`, `sqlite:////absolute/path.db`, with `?synchronous=` and `?busy_timeout=`."""
    parts = urlsplit(url)
    if parts.netloc:
        raise ConfigurationError(
            f"{url!r} has {parts.netloc!r} where a host would be",
            remedy=f"Use three slashes for a relative path (sqlite:///{parts.netloc}{parts.path}), four for an absolute one",
        )
    name = unquote(parts.path[1:])
    if not name or name.endswith("/"):
        raise ConfigurationError(f"{url!r} names no file", remedy="Use sqlite:///path/to/file.db")
    if name == ":memory:":
        raise ConfigurationError("an SQLite engine lives in a file", remedy="Use memory:// for an engine without one")
    options = _options(url, parts.query)
    return Address(
        url=url,
        path=Path(name).absolute(),
        synchronous=_synchronous(options.get("synchronous", "full")),
        busy_timeout_s=_busy_timeout(options.get("busy_timeout", "10")),
    )


def _options(url: str, query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    known = "; ".join(f"{name}: {meaning}" for name, meaning in OPTIONS.items())
    for name, _ in pairs:
        if name not in OPTIONS:
            raise ConfigurationError(f"{url!r} has an unknown option {name!r}", remedy=f"The options are {known}")
    if len(pairs) != len(dict(pairs)):
        raise ConfigurationError(f"{url!r} gives an option twice", remedy="Give each option once")
    return dict(pairs)


def _synchronous(value: str) -> Synchronous:
    try:
        return Synchronous(value.lower())
    except ValueError:
        raise ConfigurationError(
            f"synchronous is {value!r}, and must be full or normal", remedy=OPTIONS["synchronous"]
        ) from None


def _busy_timeout(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 600:
        raise ConfigurationError(f"busy_timeout is {value!r}, and must be 0 to 600 seconds")
    return seconds


OLDEST_SQLITE = (3, 40, 0)
LITTLE_ROOM_BYTES = 256 << 20
NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph", "lustre"}
)


def examine(address: Address, polls: str, *, integrity: Callable[[], str]) -> list[Finding]:
    """`polls` says why wake-ups are polled for, or is empty; `integrity` asks SQLite for a quick check."""
    return [
        _version(),
        _power_cut(address),
        _filesystem(address.path),
        _room(address.path),
        Finding(Level.WARNING, f"waiting consumers poll: {polls}", "Use a local folder that this user can write")
        if polls
        else Finding(Level.OK, "waiting consumers are woken by sockets beside the file"),
        _integrity(integrity()),
    ]


def _version() -> Finding:
    found = tuple(map(int, sqlite3.sqlite_version.split(".")))
    if found < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        return Finding(
            Level.ERROR, f"SQLite {sqlite3.sqlite_version} is too old", f"Use a Python with SQLite {oldest} or newer"
        )
    return Finding(Level.OK, f"SQLite {sqlite3.sqlite_version}")


def _power_cut(address: Address) -> Finding:
    if address.synchronous is Synchronous.FULL:
        return Finding(Level.OK, "synchronous=full: what was acknowledged survives a power cut")
    return Finding(
        Level.WARNING,
        f"synchronous={address.synchronous.value}: a power cut may lose the last commits, though never the file",
        "Leave ?synchronous= away where that matters",
    )


def _filesystem(path: Path) -> Finding:
    kind = filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        return Finding(
            Level.ERROR,
            f"the file is on {kind}: locks and shared memory do not hold there",
            "Move it to a local disk, or use PostgreSQL, Redis or NATS",
        )
    return Finding(Level.OK, f"the file is on {kind or 'a file system that could not be told'}")


def _room(path: Path) -> Finding:
    room = os.statvfs(path.parent)
    free = room.f_bavail * room.f_frsize
    if free < LITTLE_ROOM_BYTES:
        return Finding(Level.WARNING, f"only {free >> 20} MB are free beside the file", "Make room, or move the file")
    return Finding(Level.OK, f"{free >> 30} GB are free beside the file")


def _integrity(answer: str) -> Finding:
    if answer == "ok":
        return Finding(Level.OK, "a quick integrity check found nothing")
    return Finding(Level.ERROR, f"the file is damaged: {answer[:200]}", "Restore it from a backup")


def filesystem_of(path: Path) -> str:
    """The type of the file system that holds a path, from the mount table; empty where there is none to read."""
    best, kind = "", ""
    where = str(path.resolve().parent) + "/"
    for line in machine.here.mounts():
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ").rstrip("/") + "/"
        if where.startswith(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
