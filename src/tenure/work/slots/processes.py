"""Reads processes from /proc: descendants, liveness, start times; and kills whole trees of them.

Linux only, from /proc; no dependency. A pid alone is never trusted: it is compared with the start time of the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MARK = "TENURE_INCARNATION"
"""Environment variable that every descendant of a slot inherits: strays of a dead worker are found by it."""


class ProcessStat(NamedTuple):
    pid: int
    parent: int
    state: str
    session: int
    started: int  # clock ticks after boot


def read_stat(pid: int) -> ProcessStat | None:
    """Returns the state of a process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name is in parentheses and may hold anything, closing parentheses too.
    rest = text[text.rindex(")") + 2 :].split()
    return ProcessStat(pid, int(rest[1]), rest[0], int(rest[3]), int(rest[19]))


def all_processes() -> Iterator[ProcessStat]:
    for name in os.listdir("/proc"):  # noqa: PTH208  names are all we need
        if name.isdigit() and (found := read_stat(int(name))) is not None:
            yield found


def is_alive(pid: int, started: int) -> bool:
    """Returns True when the process with this pid and this start time runs. A zombie does not run."""
    found = read_stat(pid)
    return found is not None and found.started == started and found.state not in "ZX"


def descendants(root: int) -> list[int]:
    """Returns all processes below one, parents before children."""
    children: dict[int, list[int]] = {}
    for process in all_processes():
        children.setdefault(process.parent, []).append(process.pid)
    found, queue = [], [root]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def kill_tree(root: int) -> set[int]:
    """Kills a process and everything below it; returns the pids below it.

    It stops the root first, so that the root forks nothing more, and repeats the search until it finds no new process.
    """
    send(root, signal.SIGSTOP)
    killed: set[int] = set()
    while fresh := [pid for pid in descendants(root) if pid not in killed]:
        for pid in fresh:
            send(pid, signal.SIGKILL)
        killed.update(fresh)
    send(root, signal.SIGKILL)
    return killed


def kill_strays(incarnation: str) -> int:
    """Kills every process that carries the mark of a dead worker; returns how many. These are descendants that detached themselves."""
    wanted = f"{MARK}={incarnation}".encode()
    killed = 0
    for process in all_processes():
        if process.pid == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue  # gone, or another user's
        if wanted in environment.split(b"\0"):
            killed += send(process.pid, signal.SIGKILL)
    return killed


def send(pid: int, number: signal.Signals) -> bool:
    """Sends a signal; returns False when the process is gone, or the pid has become another user's."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent dies. Exits at once if the parent died before the call."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Makes this process a subreaper: orphans below it become its children instead of init's, so that none escapes."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")
