"""Runs one program and ends with it everything that it started, in whatever session or process group: `python command_guard.py PROGRAM ARGUMENT...`.

It is a program of its own and imports nothing of Tenure, because it starts for each command. The guard is a subreaper: orphans below it become its children, so
that none gets away by a double fork. Where commands run as root, the guard gives up the capabilities by which root reads the memory of other processes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 24, 36
READS_MEMORY = (19, 21, 38)
"""CAP_SYS_PTRACE, CAP_SYS_ADMIN and CAP_PERFMON: each of them opens /proc/PID/environ of a process that does not want it."""


def main(command: list[str]) -> int:
    """Returns the exit code of the program, negative for the signal that ended it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    for capability in READS_MEMORY:
        libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)  # refused where we have no right to anyway
    signal.signal(signal.SIGTERM, _end)
    libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM), 0, 0, 0)  # nobody waits for it any more
    try:
        # A group of its own: what the program sends to its group does not end the guard.
        child = os.posix_spawnp(command[0], command, os.environ, setpgroup=0, setsigdef=[signal.SIGTERM])
        while True:
            pid, status = os.wait()  # orphans, too: they are our children now
            if pid == child:
                return os.waitstatus_to_exitcode(status)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_all()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end_all() -> None:
    """Kills everything below this process. Without a child left there is no descendant either: orphans come to us."""
    with suppress(ChildProcessError):
        while True:
            for pid in _below():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            os.wait()


def _below() -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code < 0:  # ends as the program did, so that whoever waits sees the same
        with suppress(OSError):  # SIGKILL and SIGSTOP are always as they are
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
