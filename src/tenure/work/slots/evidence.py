"""Collects evidence on a process that hangs or died: stacks, states, exit codes, memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tenure.beat.own_files import read_own_file
from tenure.errors import ForeignFileError
from tenure.work.envelope import MAX_EVIDENCE_CHARS, Cause
from tenure.work.slots.processes import read_stat

STATES = {"T": "stopped by a signal", "t": "stopped by a tracer", "D": "waiting inside the kernel", "Z": "a zombie"}


def look_at_process(pid: int) -> dict[str, str]:
    """Returns what /proc shows of a process that cannot answer."""
    found = {}
    stat = read_stat(pid)
    if stat is not None:
        found["state"] = f"{stat.state} ({STATES.get(stat.state, 'running or sleeping')})"
    for name in ("wchan", "syscall", "stack"):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text(errors="replace").strip()
        except OSError:
            continue
        if text and text != "0":
            found[name] = text[:2_000]
    if memory := peak_memory(pid):
        found["peak_memory"] = memory
    return found


def cannot_answer(pid: int) -> bool:
    """Returns True when the process is gone or stopped, so that it will run no signal handler."""
    stat = read_stat(pid)
    return stat is None or stat.state in "TtZX"


def peak_memory(pid: int) -> str:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def read_dump(path: Path, after: int) -> str:
    """Returns the text that faulthandler wrote after offset `after`; only its end when it is long."""
    try:
        return read_own_file(path, MAX_EVIDENCE_CHARS, after=after).decode(errors="replace")
    except (OSError, ForeignFileError):
        return ""


def dump_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def cgroup_oom_kills() -> int | None:
    """Returns how often the kernel killed for memory in our control group; None where that cannot be read."""
    try:
        group = Path("/proc/self/cgroup").read_text().strip().splitlines()[-1].rpartition(":")[2].lstrip("/")
        events = Path("/sys/fs/cgroup", group, "memory.events").read_text()
    except (OSError, IndexError):
        return None
    for line in events.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return None


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
