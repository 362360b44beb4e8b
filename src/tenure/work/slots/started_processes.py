"""The processes that attempts started in a slot. They end when the attempt ends, also those that detached themselves.

The slot is a subreaper: whatever below it loses its parent becomes its child, so nothing gets out of the tree. Processes that were there
before the first attempt belong to the slot's libraries and are left alone.

A slot with one attempt at a time ends everything else that it finds. A slot with several cannot tell whose a process is. There, a process
ends when every attempt that was running when it started has ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from tenure.clock import Clock
from tenure.work.slots.processes import ProcessStat, all_processes, descendants, read_stat, send

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
"""The unit in which the kernel says when a process started."""
LOOK_S = 0.002
"""The pause between two looks at processes that got a signal."""
BURY_S = 2.0
"""`end` waits this long for killed processes. One that waits inside the kernel may take longer, and the next attempt does not wait for it."""


class StartedProcesses:
    """Ends the processes that attempts leave behind. `end` may be called from several threads."""

    def __init__(self, clock: Clock, *, grace_s: float) -> None:
        self._clock, self._grace_s = clock, grace_s
        self._kept: set[tuple[int, int]] = set()
        self._began: dict[int, int] = {}
        self._ending = threading.Lock()

    def keep_present(self) -> None:
        """Exempts every process that runs below this one now."""
        self._kept = {(child.pid, child.started) for child in own_children()} if has_children() else set()

    def begin(self, attempt: int) -> None:
        """Records that an attempt, named by its record, starts now."""
        self._began[attempt] = int(self._clock.boottime() * TICKS_A_SECOND)

    def end(self, attempt: int) -> int:
        """Ends the processes that an attempt started; returns how many. It takes about a microsecond when there is no child."""
        self._began.pop(attempt, None)
        if not has_children():
            return 0
        with self._ending:
            earliest = min(self._began.values(), default=sys.maxsize)
            found = self._left_behind(earliest)
            if not found:
                return 0
            ended = set(found)
            self._tell(found, signal.SIGTERM)
            deadline = self._clock.monotonic() + self._grace_s
            while (found := self._left_behind(earliest)) and self._clock.monotonic() < deadline:
                ended.update(found)
                self._clock.sleep(LOOK_S)
            deadline = self._clock.monotonic() + BURY_S
            while (found := self._left_behind(earliest)) and self._clock.monotonic() < deadline:
                ended.update(found)
                # Kill again at each look: a process may have forked just before the last signal.
                self._tell(found, signal.SIGKILL)
                self._clock.sleep(LOOK_S)
            return len(ended)

    def _left_behind(self, earliest: int) -> list[int]:
        """Returns the living processes below us that no running attempt can have started. Reaps the dead ones among our children."""
        roots = []
        for child in own_children():
            if (
                (child.pid, child.started) in self._kept
                or child.started >= earliest
                or child.pid == _resource_tracker()
            ):
                continue
            if child.state in "ZX":
                _bury(child.pid)
            else:
                roots.append(child.pid)
        return [pid for root in roots for pid in (root, *descendants(root))]

    def _tell(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            send(pid, number)
            if number is signal.SIGTERM:
                send(pid, signal.SIGCONT)  # a stopped process handles SIGTERM only after it is continued


def has_children() -> bool:
    """Returns True when this process has a child, dead or alive. It makes one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def own_children() -> list[ProcessStat]:
    """Returns the children of all threads of this process."""
    try:
        lists = [
            Path(f"/proc/self/task/{thread}/children").read_text()
            for thread in os.listdir("/proc/self/task")  # noqa: PTH208  names are all we need
        ]
    except FileNotFoundError:
        # A kernel without CONFIG_PROC_CHILDREN, or a thread that ended at this moment: every process is looked at.
        return [process for process in all_processes() if process.parent == os.getpid()]
    found = (read_stat(int(pid)) for text in lists for pid in text.split())
    return [stat for stat in found if stat is not None]


def _bury(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # a thread of the workflow has waited for it


def _resource_tracker() -> int | None:
    """The process with which Python's multiprocessing keeps account. It runs no user code, ends with the slot, and is missed when it is gone."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return getattr(getattr(module, "_resource_tracker", None), "_pid", None)
