"""Starts the processes of a worker: fresh interpreters that get nothing of the supervisor's but one end of a socket.

It imports next to nothing, so that a worker can start its fork server first, and import the rest of itself meanwhile.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import NamedTuple

from tenure import machine
from tenure.randomness import new_id

MARK = "TENURE_INCARNATION"
"""Environment variable that every descendant of a slot inherits: strays of a dead worker are found by it."""
SECRETS = ("TENURE_ENGINE", "TENURE_GATE_ENGINE", "TENURE_TOKEN", "TENURE_RESULT_KEYS")


def start_interpreter(module: str, end: socket.socket, incarnation: str) -> subprocess.Popen[bytes]:
    """Starts a fresh interpreter in a session of its own, so that the terminal's Ctrl-C reaches only the supervisor.

    Slots have no engine, so they get no URL and no token.
    """
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return subprocess.Popen(  # noqa: S603  our own interpreter and module
        [sys.executable, "-m", f"tenure.work.slots.{module}", str(end.fileno())],
        pass_fds=[end.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**environment, MARK: incarnation},
    )


class BegunServer(NamedTuple):
    """A fork server that was started and has no order yet. It ends when this end of its socket is closed without one."""

    incarnation: str
    """The incarnation of the supervisor that it belongs to."""
    socket: socket.socket
    process: subprocess.Popen[bytes]

    def drop(self) -> None:
        """Ends a server that nobody needs."""
        self.socket.close()
        self.process.kill()
        self.process.wait()


def begin_early() -> BegunServer | None:
    """Starts a fork server, where slots may be forked. None also where there is no process to be had: the supervisor tries again, and says so."""
    try:
        return begin_fork_server(new_id()) if machine.here.forks_slots else None
    except OSError:
        return None


def begin_fork_server(incarnation: str) -> BegunServer:
    """Starts a fork server. Raises `OSError` where the machine gives us no process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with theirs:
            return BegunServer(incarnation, ours, start_interpreter("fork_server", theirs, incarnation))
    except OSError:
        ours.close()
        raise
