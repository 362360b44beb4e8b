"""Starts the processes of a worker: fresh interpreters that get nothing of the supervisor's but one end of a socket.

A worker starts its fork server first of all, and imports the rest of itself meanwhile. So this imports next to nothing: `socket`, `subprocess`,
`typing` and `pathlib` take 15 ms, and the first job would wait for each of them (decision 1010).
"""

from __future__ import annotations

import _socket
import os
import sys

from tenure.machine_kind import is_linux
from tenure.randomness import new_id

TYPE_CHECKING = False  # not typing's own
if TYPE_CHECKING:
    from tenure.work.slots.fork_messages import PrepareModules

MARK = "TENURE_INCARNATION"
"""Environment variable that every descendant of a slot inherits: strays of a dead worker are found by it."""
PACKAGE = "tenure.work.slots."
SECRETS = ("TENURE_ENGINE", "TENURE_GATE_ENGINE", "TENURE_TOKEN", "TENURE_RESULT_KEYS")


def start_interpreter(module: str, end: int, incarnation: str) -> int:
    """Starts a fresh interpreter in a session of its own, so that the terminal's Ctrl-C reaches only the supervisor. Returns its process id.

    It has the descriptor `end`, the standard output and error, and nothing else. Slots have no engine, so they get no URL and no token.
    """
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    # Not `-m`: what Python imports to find a module by its name takes 4 ms.
    program = f"from {PACKAGE}{module} import main; main()"
    os.set_inheritable(end, True)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", program, str(end)],
            {**environment, MARK: incarnation},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                *((os.POSIX_SPAWN_CLOSE, one) for one in _inherited() if one != end),
            ],
            setsid=True,
        )
    finally:
        os.set_inheritable(end, False)


def _inherited() -> list[int]:
    """Returns the descriptors that a process would get from us: those that we got so ourselves, because Python's own are closed by the kernel."""
    found = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  pathlib takes 3 ms to import
        number = int(name)
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:  # of the look itself
            continue
    return found


class BegunServer:
    """A fork server that was started. It ends when this end of its socket is closed without an order."""

    __slots__ = ("_ordered", "descriptor", "incarnation", "pid")

    def __init__(self, incarnation: str, descriptor: int, pid: int) -> None:
        self.incarnation = incarnation
        """The incarnation of the supervisor that it belongs to."""
        self.descriptor, self.pid = descriptor, pid
        self._ordered = False

    def order(self, order: PrepareModules) -> None:
        """Tells it which modules to import. Only the first order counts: a command sends it as soon as it has read its options."""
        if self._ordered:
            return
        import msgspec

        self._ordered = True
        try:
            os.write(self.descriptor, msgspec.msgpack.encode(order))
        except OSError:
            return  # it is gone, which who reads its answers sees

    def drop(self) -> None:
        """Ends a server that nobody needs."""
        os.close(self.descriptor)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


def begin_early() -> BegunServer | None:
    """Starts a fork server, where slots may be forked. None also where there is no process to be had: the supervisor tries again, and says so."""
    try:
        return begin_fork_server(new_id()) if is_linux() else None
    except OSError:
        return None


def begin_fork_server(incarnation: str) -> BegunServer:
    """Starts a fork server. Raises `OSError` where the machine gives us no process."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        pid = start_interpreter("fork_server", theirs.fileno(), incarnation)
        return BegunServer(incarnation, ours.detach(), pid)
    finally:
        ours.close()  # nothing, where it was detached
        theirs.close()
