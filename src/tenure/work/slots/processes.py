"""Processes below a worker: finds them, kills whole trees of them, ends those that attempts started, and collects evidence.

`tenure.machine` asks the kernel. A pid alone is never trusted: it is compared with the start time of the process.

The slot is a subreaper: whatever below it loses its parent becomes its child, so nothing gets out of the tree. Processes that were there
before the first attempt belong to the slot's libraries and are left alone. A slot with one attempt at a time ends everything else that it
finds. A slot with several cannot tell whose a process is. There, a process ends when every attempt that was running when it started has ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tenure import machine
from tenure.beat.board import read_own_file
from tenure.clock import Clock
from tenure.errors import ForeignFileError
from tenure.machine import ProcessStat
from tenure.work.delivery import MAX_EVIDENCE_CHARS, Cause
from tenure.work.slots.interpreters import MARK


def read_stat(pid: int) -> ProcessStat | None:
    """Returns the state of a process; None when it is gone."""
    return machine.here.read_stat(pid)


def all_processes() -> Iterator[ProcessStat]:
    return machine.here.all_processes()


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
        if wanted in machine.here.environment_of(process.pid):
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
    machine.here.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Makes this process a subreaper: orphans below it become its children instead of init's, so that none escapes."""
    machine.here.adopt_orphans()


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
        self._began[attempt] = machine.here.started_now(self._clock.boottime(), self._clock.wall())

    def over(self, attempt: int) -> None:
        """Records that an attempt runs no more, and that nothing of it is left to end."""
        self._began.pop(attempt, None)

    def runs(self, attempt: int) -> bool:
        return attempt in self._began

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
    found = (read_stat(pid) for pid in machine.here.own_children())
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


STATES = {"T": "stopped by a signal", "t": "stopped by a tracer", "D": "waiting inside the kernel", "Z": "a zombie"}


def look_at_process(pid: int) -> dict[str, str]:
    """Returns what the kernel shows of a process that cannot answer."""
    found = {}
    stat = read_stat(pid)
    if stat is not None:
        found["state"] = f"{stat.state} ({STATES.get(stat.state, 'running or sleeping')})"
    found.update(machine.here.facts_of(pid))
    if memory := peak_memory(pid):
        found["peak_memory"] = memory
    return found


def cannot_answer(pid: int) -> bool:
    """Returns True when the process is gone or stopped, so that it will run no signal handler."""
    stat = read_stat(pid)
    return stat is None or stat.state in "TtZX"


def peak_memory(pid: int) -> str:
    return machine.here.peak_memory(pid)


FATAL = "Fatal Python error: "


def read_dump(path: Path, after: int) -> str:
    """Returns the text that faulthandler wrote after offset `after`; only its end when it is long."""
    try:
        return read_own_file(path, MAX_EVIDENCE_CHARS, after=after).decode(errors="replace")
    except (OSError, ForeignFileError):
        return ""


def last_dump(path: Path) -> str:
    """Returns what the fault handler wrote for a fatal signal: the last dump of the file, from its first line on."""
    whole = read_dump(path, 0)
    return whole[whole.rindex(FATAL) :] if FATAL in whole else ""


def dump_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def cgroup_oom_kills() -> int | None:
    return machine.here.oom_kills()


def describe_exit(status: int, *, oom_before: int | None, peak: str) -> tuple[Cause, str, dict[str, str]]:
    """Returns cause, sentence and evidence for a slot that ended without being asked to. `status` is from waitpid."""
    evidence = {"peak_memory": peak} if peak else {}
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        evidence["exit_code"] = str(code)
        return Cause.EXITED, f"the slot process ended itself with exit code {code}", evidence
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name
    evidence["signal"] = name
    if number == signal.SIGKILL:
        now = cgroup_oom_kills()
        if now is not None and oom_before is not None:
            evidence["cgroup_oom_kills"] = f"{oom_before} before, {now} now"
            if now > oom_before:
                return Cause.MEMORY, f"killed by the kernel for memory (peak {peak or 'unknown'})", evidence
        return (
            Cause.KILLED,
            f"SIGKILL, not ours (peak memory {peak or 'unknown'}): the kernel's or somebody's",
            evidence,
        )
    return Cause.KILLED, f"the slot process died of {name}", evidence
