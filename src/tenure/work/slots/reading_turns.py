"""Decides which of a slot's two threads reads its channel.

The thread that runs work reads while it has none: an item then reaches it without the wake-up of another thread, which takes as long as to begin
the item. From when it has work, the listening thread reads. Each waits while the other one has its turn.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator


class ReadingTurns:
    """The turn is the listening thread's at first, and for ever where the other thread never asks for it."""

    def __init__(self, source: socket.socket, read: Callable[[], None]) -> None:
        """`read` is called by the thread that has the turn, when `source` can be read, or to wait until it can be."""
        self._source, self._read = source, read
        self._ringing, self._bell = socket.socketpair()
        self._runners, self._listeners = threading.Lock(), threading.Lock()
        """Each is released by the thread that gives the turn away, and acquired by the one that gets it."""
        self._runners.acquire()
        self._listeners.acquire()

    def read_while(self, wanted: Callable[[], bool]) -> None:
        """Takes the turn, reads while something is wanted, and gives the turn back. Called by the thread that runs work."""
        self._ringing.send(b"x")
        self._runners.acquire()
        while wanted():  # the other thread may have read it before it gave its turn away
            self._read()
        self._listeners.release()

    def listen(self, patience_s: Callable[[], float | None]) -> Iterator[None]:
        """Reads whenever this thread has the turn. Yields after each reading, and after `patience_s` without one; None waits for ever."""
        with selectors.DefaultSelector() as selector, self._bell, self._ringing:
            selector.register(self._source, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(patience_s())]
                if self._bell in ready:
                    self._bell.recv(1)
                    self._runners.release()
                    self._listeners.acquire()
                elif ready:
                    self._read()
                yield
