"""Brings calls of other threads, and of signal handlers, to a thread that waits in a selector."""

from __future__ import annotations

import socket
from collections.abc import Callable
from queue import SimpleQueue

from tenure.work.isolated_errors import IsolatedErrors


class CallInbox:
    """The selector has `bell`, which can be read after `ring`."""

    def __init__(self, errors: IsolatedErrors) -> None:
        self._errors = errors
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._ringing, self.bell = socket.socketpair()

    def put(self, call: Callable[[], None]) -> None:
        self._calls.put(call)
        self.ring()

    def ring(self) -> None:
        """Wakes the thread. A signal handler may call it."""
        try:
            self._ringing.send(b"x", socket.MSG_DONTWAIT)
        except OSError:
            return  # the buffer is full: it is awake already; or it has ended

    def heard(self) -> None:
        """Reads the bell."""
        self.bell.recv(4_096)

    def make_calls(self) -> None:
        while not self._calls.empty():
            with self._errors.isolate("what was to be done next"):
                self._calls.get()()

    def close(self) -> None:
        self._ringing.close()
        self.bell.close()
