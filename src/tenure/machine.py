"""Asks the operating system for what Python has no portable words for. No other file of Tenure does.

`here` is the machine that this process runs on. On Linux it reads /proc and calls prctl. Elsewhere (macOS), or with TENURE_MACHINE=portable,
each question has a fallback, and each method says what is lost by it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tenure.machine_kind import is_linux

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
"""The unit in which `ProcessStat.started` counts."""
_BLOCK = bytes(1 << 16)


class ProcessStat(NamedTuple):
    pid: int
    parent: int
    state: str
    session: int
    started: (
        int  # in ticks: after the boot on Linux, after 1970 elsewhere. Only `started_now` gives values to compare with
    )


class OpenDescriptor(NamedTuple):
    number: int
    target: str  # a path, or a word such as `socket:[4711]`
    appends: bool  # every write goes to the end of the file


class PortableMachine:
    """Knows only what POSIX has: `ps`, and files."""

    name = "portable"
    forks_slots = False
    """True where a process can adopt what another one forked, and can see what a fork would share. Without it, slots are spawned."""

    @property
    def shared_memory(self) -> Path:
        """A folder whose files are not written to a disk. The temporary folder's may be: beats then cost the disk a page now and then."""
        from tempfile import gettempdir  # here and below: every process imports this file, and most need none of it

        return Path(gettempdir())

    def boot_id(self) -> str:
        """Names this boot of the machine; empty where the system has no name for it."""
        return ""

    def allocate(self, descriptor: int, size: int) -> None:
        """Gives a file its blocks. Raises `OSError` when there is no room: a store into a hole would be a SIGBUS later."""
        length = os.fstat(descriptor).st_size
        while length < size:  # a hole that is there already stays one; our files are made by this call
            length += os.pwrite(descriptor, _BLOCK[: size - length], length)

    def die_with_parent(self) -> None:
        """Has the kernel kill this process when its parent dies. Without it, a slot sees its channel close, within a quarter of a second."""

    def adopt_orphans(self) -> None:
        """Makes orphans below this process its children. Without it, a process that detaches itself from its slot outlives it."""

    def hide_memory(self) -> None:
        """Keeps other processes of this user from reading the memory and the environment of this one. Without it, they can.

        It also means that this process leaves no core file, and that a debugger or profiler needs root. Its children are as they would be without it.
        """

    def hide_argument(self, secret: str) -> None:
        """Writes over a secret of this process's command line, which every user of the machine can read. Without it, it stays there."""

    def started_now(self, boottime: float, wall: float) -> int:
        """Returns the value of `ProcessStat.started` for a process that starts now, at the latest."""
        return int(wall) * TICKS_A_SECOND  # `ps` knows whole seconds

    def read_stat(self, pid: int) -> ProcessStat | None:
        """Returns the state of a process; None when it is gone."""
        return next(iter(self._ps("-p", str(pid))), None)

    def all_processes(self) -> Iterator[ProcessStat]:
        yield from self._ps("-A")

    def children_of(self, pid: int) -> list[int]:
        return [process.pid for process in self.all_processes() if process.parent == pid]

    def own_children(self) -> list[int]:
        """Returns the children of all threads of this process."""
        return self.children_of(os.getpid())

    def exists(self, pid: int) -> bool:
        """Returns True for a process that lives or waits to be buried."""
        return self.read_stat(pid) is not None

    def environment_of(self, pid: int) -> list[bytes]:
        """Returns the environment that a process was started with. Without it, strays of a dead worker are not found by their mark."""
        return []

    def facts_of(self, pid: int) -> dict[str, str]:
        """Returns what the kernel shows of a process that cannot answer."""
        return {}

    def peak_memory(self, pid: int) -> str:
        return ""

    def oom_kills(self) -> int | None:
        """Returns how often the kernel killed for memory in our control group; None where that cannot be read."""
        return None

    def mounts(self) -> list[str]:
        """Returns the lines of the mount table. Without it, a database on a network file system is not warned about."""
        return []

    def memory_percent(self) -> float:
        """Returns the share of the machine's memory that is in use; 0 where that cannot be read."""
        return 0.0

    def alias_of(self, folder_descriptor: int) -> str | None:
        """Returns a short path of an open folder, for sockets; None where there is none."""
        return None

    def name_process(self, name: str) -> None:
        """Sets the name of this process that `ps` and `top` show; at most 15 bytes. Without it, they show the interpreter's."""

    def own_threads(self) -> list[str]:
        """Returns the names of this process's threads, those of native code too."""
        return []

    def own_descriptors(self) -> list[OpenDescriptor]:
        """Returns what this process has open."""
        return []

    def _ps(self, *chosen: str) -> Iterator[ProcessStat]:
        from datetime import datetime
        from subprocess import DEVNULL, PIPE, Popen

        command = ["ps", *chosen, "-o", "pid=", "-o", "ppid=", "-o", "sess=", "-o", "stat=", "-o", "lstart="]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        with Popen(command, stdout=PIPE, stderr=DEVNULL, text=True, env=environment) as asked:  # noqa: S603
            told = asked.communicate()[0]
        for line in told.splitlines():
            pid, parent, session, state, started = line.split(None, 4)
            if int(pid) == asked.pid:
                continue  # `ps` is a child of whoever asks
            moment = datetime.strptime(started, "%a %b %d %H:%M:%S %Y").timestamp()
            number = int(session, 16) if sys.platform == "darwin" else int(session)  # macOS shows an address
            yield ProcessStat(int(pid), int(parent), state[0], number, int(moment) * TICKS_A_SECOND)


class LinuxMachine(PortableMachine):
    """Reads /proc and calls prctl."""

    name = "linux"
    forks_slots = True

    @property
    def shared_memory(self) -> Path:
        return Path("/dev/shm")  # noqa: S108

    def boot_id(self) -> str:
        return _text("/proc/sys/kernel/random/boot_id").strip()

    def allocate(self, descriptor: int, size: int) -> None:
        os.posix_fallocate(descriptor, 0, size)

    def die_with_parent(self) -> None:
        _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def adopt_orphans(self) -> None:
        _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER

    def hide_memory(self) -> None:
        _prctl(4, 0)  # PR_SET_DUMPABLE; a program that is executed is dumpable again

    def hide_argument(self, secret: str) -> None:
        import ctypes

        # Where the kernel reads /proc/PID/cmdline from: the bytes that this process was started with, on its own stack.
        fields = _text("/proc/self/stat").rpartition(")")[2].split()
        begin, end = (int(fields[45]), int(fields[46])) if len(fields) > 46 else (0, 0)
        wanted = os.fsencode(secret)
        if not wanted or not 0 < begin < end:
            return
        at = (line := ctypes.string_at(begin, end - begin)).find(wanted)
        while at >= 0:
            ctypes.memset(begin + at, ord("*"), len(wanted))
            at = line.find(wanted, at + len(wanted))

    def started_now(self, boottime: float, wall: float) -> int:
        return int(boottime * TICKS_A_SECOND)

    def read_stat(self, pid: int) -> ProcessStat | None:
        text = _text(f"/proc/{pid}/stat")
        if not text:
            return None
        # The command's name is in parentheses and may hold anything, closing parentheses too.
        rest = text[text.rindex(")") + 2 :].split()
        return ProcessStat(pid, int(rest[1]), rest[0], int(rest[3]), int(rest[19]))

    def all_processes(self) -> Iterator[ProcessStat]:
        for name in os.listdir("/proc"):  # noqa: PTH208  names are all we need
            if name.isdigit() and (found := self.read_stat(int(name))) is not None:
                yield found

    def own_children(self) -> list[int]:
        try:
            lists = [
                Path(f"/proc/self/task/{thread}/children").read_text()
                for thread in os.listdir("/proc/self/task")  # noqa: PTH208  names are all we need
            ]
        except FileNotFoundError:
            # A kernel without CONFIG_PROC_CHILDREN, or a thread that ended at this moment: every process is looked at.
            return self.children_of(os.getpid())
        return [int(pid) for text in lists for pid in text.split()]

    def exists(self, pid: int) -> bool:
        return Path(f"/proc/{pid}").exists()

    def environment_of(self, pid: int) -> list[bytes]:
        try:
            return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return []  # gone, or another user's

    def facts_of(self, pid: int) -> dict[str, str]:
        found = {name: _text(f"/proc/{pid}/{name}").strip() for name in ("wchan", "syscall", "stack")}
        return {name: text[:2_000] for name, text in found.items() if text and text != "0"}

    def peak_memory(self, pid: int) -> str:
        for line in _text(f"/proc/{pid}/status").splitlines():
            if line.startswith("VmHWM:"):
                return line.split(":", 1)[1].strip()
        return ""

    def oom_kills(self) -> int | None:
        lines = _text("/proc/self/cgroup").strip().splitlines()
        group = lines[-1].rpartition(":")[2].lstrip("/") if lines else ""
        for line in _text(str(Path("/sys/fs/cgroup", group, "memory.events"))).splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
        return None

    def mounts(self) -> list[str]:
        return _text("/proc/self/mounts").splitlines()

    def memory_percent(self) -> float:
        lines = [line.split() for line in _text("/proc/meminfo").splitlines()]
        fields = {line[0].rstrip(":"): float(line[1]) for line in lines if len(line) > 1}
        total = fields.get("MemTotal", 0.0)
        return 100.0 * (1.0 - fields["MemAvailable"] / total) if total and "MemAvailable" in fields else 0.0

    def alias_of(self, folder_descriptor: int) -> str | None:
        path = f"/proc/self/fd/{folder_descriptor}/"
        return path if Path(path).is_dir() else None

    def name_process(self, name: str) -> None:
        Path("/proc/self/comm").write_bytes(name.encode()[:15])

    def own_threads(self) -> list[str]:
        return [_text(f"/proc/self/task/{one}/comm").strip() for one in os.listdir("/proc/self/task")]  # noqa: PTH208

    def own_descriptors(self) -> list[OpenDescriptor]:
        found = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  names are all we need
            try:
                target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115  most are no paths
            except FileNotFoundError:
                continue  # the one by which we read the folder
            flags = next((line for line in _text(f"/proc/self/fdinfo/{name}").splitlines() if line[:6] == "flags:"), "")
            found.append(OpenDescriptor(int(name), target, bool(int(flags[6:] or "0", 8) & os.O_APPEND)))
        return found


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def posix_module(name: str, what: str) -> ModuleType:
    """Imports a module of Tenure. Raises `ConfigurationError` where the machine lacks what it needs: on Windows, workers, managers and SQLite."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("fcntl", "resource", "pwd", "grp", "termios"):
            raise
        from tenure.errors import ConfigurationError

        raise ConfigurationError(
            f"{what} needs Linux or macOS: this Python has no module {error.name!r}",
            remedy="Run it there, or in WSL. Clients and the engines for PostgreSQL, Redis and NATS work here",
        ) from error


def _found() -> PortableMachine:
    return LinuxMachine() if is_linux() else PortableMachine()


here = _found()
