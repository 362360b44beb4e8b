"""The findings of `tenure doctor` about a SQLite file: do this machine and this place keep the engine's promises?"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tenure.engines.contracts import Finding, Level
from tenure.engines.sqlite.url import Address, Synchronous

OLDEST_SQLITE = (3, 35, 0)  # RETURNING
LITTLE_ROOM_BYTES = 256 << 20
NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph", "lustre"}
)


def examine(address: Address, polls: str, *, integrity: Callable[[], str]) -> list[Finding]:
    """`polls` says why wake-ups are polled for, or is empty; `integrity` asks SQLite for a quick check."""
    return [
        _version(),
        _synchronous(address),
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


def _synchronous(address: Address) -> Finding:
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
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    where = str(path.resolve().parent) + "/"
    for line in lines:
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ").rstrip("/") + "/"
        if where.startswith(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
