"""The sessions of one engine with a server: borrowed for one call each, opened when needed, thrown away when they broke.

Why not the libraries' pools: docs/decisions/0050 and 0054. A caller that needs a session opens it itself, so that it gets the server's
own words when that fails, and no thread of ours runs while nothing happens.

When one is lost, all idle ones that the server closed are dropped with it. A server out of reach is tried again at jittered, growing
intervals by one thread at a time, however many ask; in between they wait, and those that waited share the answer. What a
session is, each engine says; this file knows no server.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.errors import EngineBusyError, EngineClosedError, EngineUnavailableError, TenureError
from tenure.randomness import Random


class PooledSession(Protocol):
    """One connection."""

    @property
    def fresh(self) -> bool:
        """Returns True when the session can be used: an idle one on which bytes wait has usually been closed by the server."""

    def close(self) -> None: ...


class Settings(Protocol):
    """The settings of sessions in a URL."""

    @property
    def shown(self) -> str: ...
    @property
    def pool(self) -> int: ...
    @property
    def timeout_s(self) -> float: ...


SessionT = TypeVar("SessionT", bound=PooledSession)
Lost = type[EngineUnavailableError]
Translate = Callable[[Any, str, Lost], TenureError]
"""From a library's error, the operation, and what a lost connection is called: the error that the caller gets."""


class Sessions(Generic[SessionT]):
    """At most `settings.pool` sessions."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        random: Random,
        *,
        connect: Callable[[], SessionT],
        errors: type[Exception],
        translate: Translate,
        forked: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._open_one, self._errors, self._translate, self._forked = connect, errors, translate, forked
        self._backoff = Backoff(random, first_s=0.05, most_s=2.0)
        self._free = threading.Condition()
        self._gate = threading.Lock()  # held by the one thread that connects
        self._idle: list[SessionT] = []
        self._open = 0
        self._pid = os.getpid()
        self._failures = 0
        self._not_before = 0.0
        self._last_error: TenureError | None = None
        self.closed = False

    def borrow(self, operation: str, lost: Lost) -> SessionT:
        """A session that is this thread's until it is given back or dropped."""
        if self._pid != os.getpid():
            self._forget_parent()
        while (found := self._take(operation)) is not None:
            if found.fresh:
                return found
            self.drop(found)
        try:
            return self._connect(operation, lost)
        except BaseException:
            with self._free:
                self._open -= 1
                self._free.notify()
            raise

    def give_back(self, session: SessionT) -> None:
        with self._free:
            if not self.closed:
                self._idle.append(session)
                self._free.notify()
                return
            self._open -= 1
        self._close(session)

    def drop(self, session: SessionT) -> None:
        """Lost. The idle ones most likely are too: a call on each would find out one by one."""
        with self._free:
            dropped = [session, *(one for one in self._idle if not one.fresh)]
            self._idle = [one for one in self._idle if one not in dropped]
            self._open -= len(dropped)
            self._free.notify_all()
        for one in dropped:
            self._close(one)

    def close(self, farewell: Callable[[SessionT], object] | None = None) -> None:
        """Close the idle ones, and the others as they come back; one of them says farewell, if any is idle."""
        with self._free:
            self.closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._free.notify_all()
        if self._pid != os.getpid():
            return
        if idle and farewell is not None:
            with contextlib.suppress(self._errors, OSError):
                farewell(idle[0])
        for session in idle:
            self._close(session)

    def check_open(self) -> None:
        if self.closed:
            raise EngineClosedError(f"the engine {self._settings.shown} was closed", remedy="Open it again")

    def where(self, operation: str) -> str:
        return f"{operation} on {self._settings.shown}"

    def _take(self, operation: str) -> SessionT | None:
        """An idle session, or None for the right to open one."""
        most, patience_s = self._settings.pool, self._settings.timeout_s
        with self._free:
            deadline = None
            while True:
                self.check_open()
                if self._idle:
                    return self._idle.pop()
                if self._open < most:
                    self._open += 1
                    return None
                now = self._clock.monotonic()
                deadline = deadline or now + patience_s
                if now >= deadline:
                    raise EngineBusyError(
                        f"{self.where(operation)}: all {most} connections were busy for {patience_s:g} s",
                        remedy="Raise ?pool= in the URL, or use fewer threads",
                    )
                self._clock.wait(self._free, deadline - now)

    def _connect(self, operation: str, lost: Lost) -> SessionT:
        failures = self._failures
        with self._gate:
            if self._failures != failures and self._last_error is not None:
                raise self._as_ours(self._last_error, operation, lost)  # somebody tried while we waited to
            self._await_turn()
            try:
                session = self._open_one()
            except self._errors as error:
                self._failures += 1
                self._not_before = self._clock.monotonic() + self._backoff.next()
                self._last_error = self._translate(error, operation, lost)
                raise self._last_error from error
            self._backoff.reset()
            self._not_before, self._last_error = 0.0, None
        return session

    def _await_turn(self) -> None:
        with self._free:
            while not self.closed and (left := self._not_before - self._clock.monotonic()) > 0:
                self._clock.wait(self._free, left)
            self.check_open()

    def _as_ours(self, error: TenureError, operation: str, lost: Lost) -> TenureError:
        """Another thread's error, as ours: an exception object belongs to one raise."""
        fact = error.fact.partition(": ")[2] or error.fact
        kind = lost if isinstance(error, EngineUnavailableError) else type(error)
        return kind(f"{self.where(operation)}: {fact}", remedy=error.remedy)

    def _forget_parent(self) -> None:
        """In a forked child: the sessions are the parent's, and closing them here would end them there."""
        _inherited.extend(self._idle)
        self._free = threading.Condition()
        self._gate = threading.Lock()
        self._idle, self._open, self._pid = [], 0, os.getpid()
        self._forked()

    def _close(self, session: SessionT) -> None:
        with contextlib.suppress(self._errors, OSError):
            session.close()


# Kept for ever, so that no destructor says goodbye on the parent's socket.
_inherited: list[PooledSession] = []
