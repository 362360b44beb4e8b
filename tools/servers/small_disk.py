"""Servers on a disk of a few megabytes that a test can fill: what they are told then is what the kernel says of a full disk.

The disk is a tmpfs in a mount namespace of its own, which a small process holds. So only the server sees it, and it is gone when both have ended, however
they ended. That needs root, or a kernel that gives ordinary users a namespace; elsewhere the server cannot start, and says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tools.servers.nats import Nats
from tools.servers.postgres import Postgres
from tools.servers.process import CannotStart, Server, unprivileged

_HOLDER = r"""
import ctypes, os, sys
place, options = sys.argv[1:]
NEWNS, NEWUSER, PRIVATE = 0x20000, 0x10000000, 0x44000
libc = ctypes.CDLL(None, use_errno=True)
def check(what, failed):
    if failed:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")
uid, gid = os.getuid(), os.getgid()
check("a namespace", libc.unshare(NEWNS if uid == 0 else NEWNS | NEWUSER))
if uid:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
check("a private tree", libc.mount(b"none", b"/", None, PRIVATE, None))
check("a tmpfs", libc.mount(b"tmpfs", place.encode(), b"tmpfs", 0, options.encode()))
ballast = place + "/ballast"
print("ready", flush=True)
for line in sys.stdin:
    if line == "fill\n":
        with open(ballast, "ab", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
    else:
        os.unlink(ballast)
    print("done", flush=True)
"""


class OnSmallDisk(Server):
    """Beside a kind of server: `place`, a folder in its own, is on a small disk."""

    place: str
    size_mb: int
    _holder: subprocess.Popen[str] | None = None

    def fill(self) -> None:
        """Leaves not a page of the disk free."""
        self._ask("fill")

    def make_room(self) -> None:
        self._ask("free")

    def after_room(self) -> None:
        """What an operator has to do besides making room."""
        if not self.alive:
            self.restart()

    def _ask(self, word: str) -> None:
        assert self._holder is not None
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.write(f"{word}\n")
        self._holder.stdin.flush()
        assert self._holder.stdout.readline() == "done\n"

    def _prepare(self) -> None:
        place = self.folder / self.place
        place.mkdir()
        user = unprivileged() if self.refuses_root else None
        owner = f",uid={user[0]},gid={user[1]}" if user else ""
        options = f"size={self.size_mb}m,mode=0700{owner}"
        self._holder = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HOLDER, str(place), options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "ready\n":
            raise CannotStart(f"{self.name}: no small disk can be made here: {self._holder.stderr.read().strip()}")
        super()._prepare()  # type: ignore[safe-super]

    def _as_its_user(self, command: Sequence[str]) -> tuple[list[str], Mapping[str, Any]]:
        assert self._holder is not None
        enter = ["nsenter", f"--target={self._holder.pid}", "--mount"]
        if os.geteuid():
            enter += ["--user", "--preserve-credentials"]
        elif user := (unprivileged() if self.refuses_root else None):
            enter += [f"--setuid={user[0]}", f"--setgid={user[1]}"]
        return [*enter, f"--wd={self.folder}", *command], {}

    def _clean(self) -> None:
        super()._clean()
        if self._holder is not None:
            self._holder.communicate()


class SmallPostgres(OnSmallDisk, Postgres):
    place, size_mb = "data", 56
    initial = ("--wal-segsize=1",)


class SmallNats(OnSmallDisk, Nats):
    place, size_mb = "store", 12

    def after_room(self) -> None:
        """A server that could not write to a stream tries again only after a restart."""
        self.restart()
