"""A host process as the program that started it sees it: begin, hear of it, end it for sure."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tenure.errors import WorkError
from tenure.local.lines import Begin, Failed, HostSaid, Listening, Serving, Stop, channel_to_host
from tenure.work.slots.processes import kill_tree

START_S = 60.0
END_S = 30.0


class HostProcess:
    """`start`, then `close`: also by whoever is interrupted in between."""

    def __init__(self, begin: Begin, say: Callable[[str], None] = lambda text: None) -> None:
        self._begin, self._say = begin, say
        self._changed = threading.Condition()
        self._ended = False
        self.address = ""
        self.serving = False
        self.failed: Failed | None = None

    def start(self) -> None:
        """In a session of its own, so that the terminal's Ctrl-C reaches only the program."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-m", "tenure.local.host", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                # What the program can import, its slots can.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            )
        self._line = channel_to_host(ours)
        self._listener = threading.Thread(target=self._listen, name="tenure-host", daemon=True)
        self._listener.start()
        self._line.send(self._begin)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._ended

    def until_up(self) -> None:
        """Until the manager listens and the slots serve, as far as there are any. Raises `WorkError` with the reason."""
        needs_worker = bool(self._begin.modules)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._ended
                    or self.failed
                    or ((self.address or not self._begin.manager) and (self.serving or not needs_worker))
                ),
                START_S,
            )
        if self.failed is not None:
            raise WorkError(f"the datacenter cannot start: {self.failed.reason}\n{self.failed.trace}".rstrip())
        if self._ended:
            raise WorkError("the datacenter's process ended while it started")
        if needs_worker and not self.serving:
            raise WorkError(f"the datacenter did not start within {START_S:g} s", remedy="See its log")

    def wait(self, seconds: float) -> bool:
        """True once it has ended."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._ended, seconds))

    def close(self) -> None:
        """Have it hand over and end; kill it where it does not."""
        self._line.send(Stop())
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._say(f"the host process did not end within {END_S:g} s, and is killed")
        finally:  # also when a second Ctrl-C comes
            if self._process.returncode is None:
                self.kill()
            self._listener.join(5)  # before the close: it may still have lines to read
            self._line.close()

    def kill(self) -> None:
        kill_tree(self._process.pid)
        self._process.wait()

    def _listen(self) -> None:
        for line in self._line:
            if isinstance(line, HostSaid):
                self._say(line.text)
                continue
            with self._changed:
                if isinstance(line, Listening):
                    self.address = line.address
                elif isinstance(line, Serving):
                    self.serving = True
                else:
                    self.failed = line
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
