"""A small process that outlives us by a moment: it ends the servers and removes their folder when we are gone.

It notices our end by the closing of its pipe, or by its parent changing (a child that we forked may hold the pipe open). So nothing is left
behind even when the test run is killed with SIGKILL, where no handler of ours could run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = r"""
import os, select, shutil, signal, sys, time
folder, parent = sys.argv[1], int(sys.argv[2])
pids, buffer = {}, b""
while True:
    # The parent may be gone before we have begun: what it told us is read first, then its end is believed.
    if not select.select([0], [], [], 0.5 if os.getppid() == parent else 0)[0]:
        if os.getppid() != parent:
            break
        continue
    read = os.read(0, 4096)
    if not read:
        break
    *lines, buffer = (buffer + read).split(b"\n")
    for line in lines:
        word, pid, number = line.split()
        if word == b"+":
            pids[int(pid)] = int(number)
        else:
            pids.pop(int(pid), None)
def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
for pid, number in pids.items():
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        continue
    for _ in range(500):
        if gone(pid):
            break
        time.sleep(0.01)
    else:
        os.kill(pid, signal.SIGKILL)
for _ in range(20):
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.exists(folder):
        break
    time.sleep(0.05)
"""


class Guard:
    """Watches over the processes of one folder. `close()` removes the folder and waits until that is done."""

    def __init__(self, folder: Path, parent: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT, str(folder), str(parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C in the terminal is not for it
            cwd="/",
        )

    def watch(self, pid: int, signal_number: int) -> None:
        """End this process with that signal (and then SIGKILL) when we are gone."""
        self._tell(f"+ {pid} {signal_number}\n")

    def forget(self, pid: int) -> None:
        """It ended and was reaped: its number may soon be somebody else's."""
        self._tell(f"- {pid} 0\n")

    def close(self) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(timeout=30)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
