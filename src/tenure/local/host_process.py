"""A host process as the program that started it sees it: begin, hear of it, end it for sure; and the lines between the two.

The socket is also the lifeline: a host whose other end is gone hands over its work and ends, however the program died.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tenure.errors import WorkError
from tenure.work.line_channel import LineChannel, decoder_of
from tenure.work.slots.processes import kill_tree

PRIORITIES = (1, 0, -1)
"""The priorities that the built-in worker serves, the highest first. Other priorities need a `tenure worker --priority`."""


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """The first line: what to run. Secrets travel here, not on a command line."""

    engine_url: str
    name: str
    manager: bool = True
    modules: list[str] = []
    """Empty: no worker."""
    queue: str = "default"
    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    term_s: float = 5.0
    datacenter: str = "local"
    """The name that gates use for this manager's datacenter."""
    datacenters: dict[str, list[str]] = {}
    """Managers by datacenter. Not empty: a gate before them, in the place of a manager."""
    settings: dict[str, Any] = {}
    """The settings of the slots."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Hand over what runs, and end."""


class Listening(msgspec.Struct, frozen=True, tag="listening"):
    """The manager answers here."""

    address: str


class Serving(msgspec.Struct, frozen=True, tag="serving"):
    """Every slot of the worker has imported its modules."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The host cannot do what it was told, and ends."""

    reason: str
    trace: str = ""


class HostSaid(msgspec.Struct, frozen=True, tag="said"):
    """A line for a log."""

    text: str


FromHost = Listening | Serving | Failed | HostSaid
ToHost = Begin | Stop
_from_host: msgspec.json.Decoder[FromHost] = decoder_of(FromHost)
_to_host: msgspec.json.Decoder[ToHost] = decoder_of(ToHost)


def channel_to_host(end: socket.socket) -> LineChannel[FromHost]:
    """Returns the program's end of the line. It hears what the host sends."""
    return LineChannel(end, _from_host, unreadable=HostSaid)


def channel_of_host(end: socket.socket) -> LineChannel[ToHost]:
    """Returns the host's end of the line. It hears what the program sends."""
    return LineChannel(end, _to_host)


START_S = 60.0
END_S = 30.0


class HostProcess:
    """A host that runs from its construction until `close`, which also whoever is interrupted in between has to call."""

    def __init__(self, begin: Begin, on_line: Callable[[str], None] = lambda text: None) -> None:
        """Starts the process in a session of its own, so that the terminal's Ctrl-C reaches only the program.

        `on_line` gets each line that the host logs.
        """
        self._begin, self._on_line = begin, on_line
        self._changed = threading.Condition()
        self._ended = False
        self.address = ""
        self.serving = False
        self.failed: Failed | None = None
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
        """Waits until the manager listens and the slots serve, as far as there are any. Raises `WorkError` with the reason."""
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
        """Waits for its end, for so many seconds at most. Returns True when it has ended."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._ended, seconds))

    def close(self) -> None:
        """Have it hand over and end; kill it where it does not."""
        self._line.send(Stop())
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._on_line(f"the host process did not end within {END_S:g} s, and is killed")
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
                self._on_line(line.text)
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
