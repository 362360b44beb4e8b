"""Long polls: how a thread waits until there may be something for it, and how it is told.

A *bell* is one topic (a mailbox, a journal) in one engine. Threads of this engine are told through a condition. One
listener thread per engine, started by the first long poll, turns what other processes ring (`page`) into the same. The
engine's clock decides how long to wait, so a manual clock can end a wait, and so can a real commit in another process.
"""

from __future__ import annotations

import logging
import math
import select
import socket
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tenure.clock import Clock
from tenure.engines.sqlite.page import Page, row_of
from tenure.errors import EngineClosedError, EngineError

T = TypeVar("T")

_LOOK_EVERY_S = 1.0
"""How often the listener asks the file itself, in case a bell was lost: a sender died between commit and ring."""
_POLL_EVERY_S = 0.05
"""Seconds between looks where sockets are impossible."""

log = logging.getLogger("tenure.engines.sqlite")


class Bell:
    """One topic: its waiters wait on `condition`; `rings` tells them that something happened since they looked."""

    __slots__ = ("__weakref__", "condition", "rings", "row", "waiting")

    def __init__(self, topic: str) -> None:
        self.row = row_of(topic)
        self.renew()

    def renew(self) -> None:
        self.condition = threading.Condition()
        self.rings = 0
        self.waiting = 0


class Polls:
    """The long polls of one handle, and how `wake` and `close` end them."""

    __slots__ = ("__weakref__", "_under_way", "_wake_next", "_wakes", "bell", "closed")

    def __init__(self, bell: Bell) -> None:
        self.bell = bell
        self.closed = False
        self._under_way = self._wakes = 0
        self._wake_next = False

    def begin(self) -> int:
        """A ticket for one poll: it has ended when `ended(ticket)`."""
        with self.bell.condition:
            ticket = self._wakes
            if self._wake_next:
                self._wake_next = False
                ticket -= 1
            self._under_way += 1
            return ticket

    def end(self) -> None:
        with self.bell.condition:
            self._under_way -= 1

    def ended(self, ticket: int) -> bool:
        return self.closed or self._wakes != ticket

    def wake(self) -> None:
        with self.bell.condition:
            if self._under_way:
                self._wakes += 1
                self.bell.condition.notify_all()
            else:
                self._wake_next = True

    def close(self) -> None:
        with self.bell.condition:
            self.closed = True
            self.bell.condition.notify_all()

    def forget_threads(self) -> None:
        """In a forked child, no other thread polls."""
        self._under_way = 0


class Bells:
    """All bells of one engine."""

    def __init__(self, database: Path, clock: Clock, data_version: Callable[[], int]) -> None:
        self._path, self._clock, self._data_version = database, clock, data_version
        self._bells: dict[str, Bell] = {}
        self._polls: weakref.WeakSet[Polls] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.notice = ""
        """Empty, or why this process polls."""
        self._page = self._open_page()

    def _open_page(self) -> Page | None:
        try:
            return Page(self._path)
        except OSError as error:
            self._fall_back(error)
            return None

    def _fall_back(self, error: OSError) -> None:
        if not self.notice:
            self.notice = f"consumers of {self._path} poll every {_POLL_EVERY_S * 1000:.0f} ms, for want of sockets beside it: {error}"
            log.warning(self.notice)

    def polls(self, topic: str) -> Polls:
        """The long polls of a new handle on this topic."""
        with self._lock:
            bell = self._bells.get(topic)
            if bell is None:
                bell = self._bells[topic] = Bell(topic)
            polls = Polls(bell)
            self._polls.add(polls)
            return polls

    def ring(self, topic: str) -> None:
        """Something was committed that waiters on this topic may want."""
        bell = self._bells.get(topic)
        if bell is not None and bell.waiting:
            self._tell(bell)
        page = self._page
        if page is not None:
            page.ring(bell.row if bell is not None else row_of(topic))

    @staticmethod
    def _tell(bell: Bell) -> None:
        with bell.condition:
            bell.rings += 1
            bell.condition.notify_all()

    def wait_for(self, polls: Polls, seconds: float, look: Callable[[], tuple[list[T], float]]) -> list[T]:
        """Look, and wait until there is something, the time is over, or the handle was woken or closed.

        `look` gives what it found, or else the seconds after which time alone may bring something.
        """
        clock, bell = self._clock, polls.bell
        deadline = clock.monotonic() + seconds
        ticket = polls.begin()
        self._enter(bell)
        try:
            while True:
                rings, page = bell.rings, self._page
                if page is not None:
                    page.arm(bell.row)
                try:
                    found, due_in = look()
                except EngineClosedError:
                    if polls.closed:  # while we looked: then this poll ends as the others do
                        return []
                    raise
                remaining = deadline - clock.monotonic()
                if found or remaining <= 0 or polls.ended(ticket):
                    return found
                with bell.condition:
                    if bell.rings == rings and not polls.ended(ticket):
                        clock.wait(bell.condition, min(remaining, due_in))
        finally:
            self._leave(bell)
            polls.end()

    def _enter(self, bell: Bell) -> None:
        with self._lock:
            bell.waiting += 1
            self._waiting += 1
            if self._thread is None and not self._closing.is_set():
                self._start_listening()

    def _leave(self, bell: Bell) -> None:
        with self._lock:
            bell.waiting -= 1
            self._waiting -= 1
            page = self._page
            if page is not None and not any(b.waiting for b in self._bells.values() if b.row == bell.row):
                page.disarm(bell.row)

    def _start_listening(self) -> None:
        listener: socket.socket | None = None
        if self._page is not None:
            try:
                listener = self._page.join()
            except OSError as error:
                self._fall_back(error)
        listen = self._listen if listener is not None else self._poll
        self._thread = threading.Thread(target=listen, args=(listener,), name="tenure-sqlite-bells", daemon=True)
        self._thread.start()

    def _listen(self, listener: socket.socket) -> None:
        """Turn rows that arrive into rings; once a second, ask the file itself."""
        page, closing = self._page, self._closing
        ready = select.poll()
        ready.register(listener, select.POLLIN)
        seen = math.nan
        while not closing.is_set():
            if ready.poll(_LOOK_EVERY_S * 1000):
                rows = _drain(listener)
                everything = page is not None and page.take_overflow()
                self._tell_rows(None if everything else rows)
            elif self._waiting:
                seen = self._tell_if_changed(seen)

    def _poll(self, _: None) -> None:
        seen = math.nan
        while not self._closing.wait(_POLL_EVERY_S):
            if self._waiting:
                seen = self._tell_if_changed(seen)

    def _tell_if_changed(self, seen: float) -> float:
        try:
            version = float(self._data_version())
        except EngineError:
            version = math.nan  # whoever waits meets the error itself
        if version != seen:
            self._tell_rows(None)
        return version

    def _tell_rows(self, rows: set[int] | None) -> None:
        """Ring these rows here; None means all of them."""
        with self._lock:
            bells = [bell for bell in self._bells.values() if bell.waiting and (rows is None or bell.row in rows)]
        for bell in bells:
            self._tell(bell)

    def close(self) -> None:
        """End the listener and give back the column. Handles are closed by their engine."""
        self._closing.set()
        thread, page = self._thread, self._page
        if page is not None and page.column is not None:
            page.ring_self()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)
        self._page = None
        if page is not None:
            page.close()

    def renew_after_fork(self) -> None:
        """In the child: own conditions, own page, no listener yet; the parent's column is left alone."""
        if self._page is not None:
            self._page.forget()
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._thread, self._waiting = None, 0
        for bell in self._bells.values():
            bell.renew()
        for polls in self._polls:
            polls.forget_threads()
        self._page = self._open_page()


def _drain(listener: socket.socket) -> set[int]:
    rows: set[int] = set()
    while True:
        try:
            rows.update(listener.recv(1))
        except BlockingIOError:
            return rows
        except OSError:
            return rows  # closed under us: the engine is closing
