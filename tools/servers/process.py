"""One server process with its folder: started, killed, restarted with the same data and port, and stopped for good."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.servers.guard import Guard

START_S = 90.0
STOP_S = 15.0
LOOPBACK = "127.0.0.1"
# Below the range from which the kernel takes ports for outgoing connections, so that a port is still free at a restart.
PORTS = range(15_000, 32_000)


class CannotStart(Exception):
    """A server could not be started here, and why. Tests skip with this reason."""


def free_port() -> int:
    """A port that nobody listens on now. Somebody may still take it first: whoever starts a server tries again."""
    for _ in range(200):
        port = random.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise CannotStart(f"no free port between {PORTS.start} and {PORTS.stop}")


def unprivileged() -> tuple[int, int] | None:
    """Whom to run a server as that refuses root, or None when we are not root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def reachable_by_others(path: Path) -> bool:
    """Whether another user can read the file: every folder above it lets everybody through."""
    path = path.resolve()
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents) and bool(
        path.stat().st_mode & stat.S_IROTH
    )


class Server(ABC):
    """A private server. The folder is made by `start()` and removed by `stop()`; `kill()` and `restart()` keep it."""

    name: str
    refuses_root = False
    end_signal = signal.SIGTERM
    """Ends it in order."""
    crash_signal = signal.SIGKILL
    """What the guard sends when our own process was killed."""

    def __init__(self) -> None:
        self.host = LOOPBACK
        self.port = 0
        self.folder = Path()
        self._guard: Guard | None = None
        self._process: subprocess.Popen[bytes] | None = None

    # What each kind of server says of itself.

    @property
    @abstractmethod
    def url(self) -> str:
        """What an engine is opened with."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make what the server needs in its folder, once."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _ready(self) -> bool:
        """Whether it serves requests now. Raises OSError, or answers False, while it does not."""

    def _environment(self) -> dict[str, str] | None:
        """Its environment variables; None for ours."""
        return None

    def _as_its_user(self, command: Sequence[str]) -> tuple[list[str], Mapping[str, Any]]:
        """The command, and the options of `Popen` with which it runs as the user that the server wants."""
        user = unprivileged() if self.refuses_root else None
        return list(command), {"user": user[0], "group": user[1], "extra_groups": []} if user else {}

    # The life of the process.

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def alive(self) -> bool:
        return self.pid is not None

    def start(self) -> Self:
        """Start it for the first time, on a port of its own."""
        if self._guard is not None:
            raise RuntimeError(f"{self.name} was started already; restart() starts it again")
        # /tmp and not TMPDIR: every user must be able to pass through, and socket paths must stay short.
        self.folder = Path(tempfile.mkdtemp(prefix=f"tenure-{self.name}-", dir="/tmp"))
        self._guard = Guard(self.folder, os.getpid())
        try:
            if self.refuses_root and (user := unprivileged()):
                os.chown(self.folder, *user)
            self._prepare()
            for attempt in range(5):
                self._choose_ports()
                try:
                    self._launch()
                    break
                except CannotStart:
                    if attempt == 4 or not self._port_was_taken():
                        raise
        except BaseException:
            self.stop()
            raise
        return self

    def restart(self) -> None:
        """Start it again after `kill()` (or end it in order first): same data, same port."""
        if self._guard is None:
            raise RuntimeError(f"{self.name} was never started, or stopped for good")
        self._end(self.end_signal)
        deadline = time.monotonic() + START_S
        while True:  # the port, or a lock of the crashed process, may take a moment to become free
            try:
                self._launch()
            except CannotStart:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def kill(self) -> None:
        """As a crash: SIGKILL, to its child processes too. The data stay as they were on disk."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it with SIGSTOP: connections stay open and nothing is answered, as in a stalled machine.

        Returns when all of its threads have stopped: each does so by itself, and goes on to answer until then.
        """
        self._signal_all(signal.SIGSTOP)
        end = time.monotonic() + STOP_S
        while self.pid is not None and any(map(has_running_thread, [self.pid, *children(self.pid)])):
            assert time.monotonic() < end, f"{self.name} did not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def stop(self) -> None:
        """End it and remove everything it had. Safe to call twice."""
        if self._guard is None:
            return
        guard, self._guard = self._guard, None
        self._end(self.end_signal, guard)
        self._clean()
        guard.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        return self.start() if self._guard is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _clean(self) -> None:
        """Remove what a crash left outside of the folder."""
        return

    def _choose_ports(self) -> None:
        self.port = free_port()

    def _port_was_taken(self) -> bool:
        return "in use" in self.log()

    def _launch(self) -> None:
        assert self._guard is not None
        command, identity = self._as_its_user(self._command())
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,
                **identity,
            )
        self._guard.watch(self._process.pid, self.crash_signal)
        self._await_ready()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_S
        assert self._process is not None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                code = self._process.returncode
                self._forget()
                raise CannotStart(f"{self.name} ended at its start with code {code}: {self.log()[-800:].strip()}")
            try:
                if self._ready():
                    return
            except OSError:
                pass
            time.sleep(0.01)
        self.kill()
        raise CannotStart(f"{self.name} did not answer within {START_S:g} s: {self.log()[-800:].strip()}")

    def _end(self, number: signal.Signals, guard: Guard | None = None) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            if number == signal.SIGKILL:
                self._signal_all(number)
            else:
                self._process.send_signal(number)
            try:
                self._process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                self._signal_all(signal.SIGKILL)
                self._process.wait(timeout=STOP_S)
        self._forget(guard)

    def _forget(self, guard: Guard | None = None) -> None:
        guard = guard or self._guard
        if self._process is not None and guard is not None:
            guard.forget(self._process.pid)
        self._process = None

    def _signal_all(self, number: signal.Signals) -> None:
        """The process and its children: PostgreSQL's are sessions of their own, so a process group would not do."""
        if self.pid is None:
            return
        for pid in [self.pid, *children(self.pid)]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


def has_running_thread(pid: int) -> bool:
    """Returns True while a thread of the process is neither stopped nor a zombie."""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = thread.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "TtZX":
            return True
    return False


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
