"""An engine on a server, and its sessions: borrowed for one call each, opened when needed, thrown away when they broke.

Why not the libraries' pools: docs/decisions/0050 and 0054. A caller that needs a session opens it itself, so that it gets the server's
own words when that fails, and no thread of ours runs while nothing happens.

When one is lost, all idle ones that the server closed are dropped with it. A server out of reach is tried again at jittered, growing
intervals by one thread at a time, however many ask; in between they wait, and those that waited share the answer. What a
session is, each engine says by the abstract methods; this file knows no server.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.checked_handles import OperationMetrics, PolledEngine
from tenure.engines.contracts import Finding, Level
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
AnswerT = TypeVar("AnswerT")
Lost = type[EngineUnavailableError]


class Sessions(ABC, Generic[SessionT]):
    """At most `settings.pool` sessions."""

    errors: ClassVar[type[Exception]]
    """The root of the client library's errors."""

    def __init__(self, settings: Settings, clock: Clock, random: Random, metrics: OperationMetrics) -> None:
        self.settings, self.clock, self.metrics = settings, clock, metrics
        self._backoff = Backoff(random, first_s=0.05, most_s=2.0)
        self._free = threading.Condition()
        self._gate = threading.Lock()  # held by the one thread that connects
        self._idle: list[SessionT] = []
        self.opened = 0
        """The sessions that are open, idle or borrowed."""
        self._pid = os.getpid()
        self._failures = 0
        self._not_before = 0.0
        self._last_error: TenureError | None = None
        self.closed = False

    # What an engine brings

    @abstractmethod
    def open_session(self) -> SessionT:
        """Connects. Raises the library's errors."""

    @abstractmethod
    def is_broken(self, session: SessionT, error: Any) -> bool:
        """Returns True when a session that met this error can be used no more."""

    @abstractmethod
    def translated(self, error: Any, where: str, lost: Lost) -> TenureError:
        """Returns the error that a caller gets for one of the library's. `lost` is what a lost connection is called."""

    def renew_after_fork(self) -> None:
        """Called in a forked child, before its first session."""

    # What the engine's own calls use

    def run(self, operation: str, lost: Lost, act: Callable[[SessionT], AnswerT]) -> AnswerT:
        """Runs `act` on a session. After `lost` its outcome is unknown; after any other error nothing has happened."""
        begun = self.clock.monotonic()
        try:
            session = self.borrow(operation, lost)
            try:
                answer = act(session)
            except self.errors as error:
                (self.drop if self.is_broken(session, error) else self.give_back)(session)
                raise self.translated(error, self.where(operation), lost) from error
            except TenureError:
                self.give_back(session)
                raise
            except BaseException:
                self.drop(session)  # interrupted in the middle: nobody knows what it would say next
                raise
            self.give_back(session)
            return answer
        except TenureError as error:
            self.metrics.failed(operation, error)
            raise
        finally:
            self.metrics.took(operation, self.clock.monotonic() - begun)

    @contextlib.contextmanager
    def session_of_its_own(self, doing: str) -> Iterator[SessionT]:
        """Yields a session beside the others, for opening and examining the server. Raises our errors."""
        try:
            with contextlib.closing(self.open_session()) as session:
                yield session
        except self.errors as error:
            raise self.translated(error, f"{doing} {self.settings.shown}", EngineUnavailableError) from error

    def listening(self, act: Callable[[], AnswerT]) -> AnswerT:
        """Runs `act` on the connection that listens for wake-ups. Whatever fails there, that connection is lost.

        A server that no longer lets us listen, say, is met by the waiters too: they look by themselves, and get its own words.
        """
        try:
            return act()
        except self.errors as error:
            told = self.translated(error, f"listening on {self.settings.shown}", EngineUnavailableError)
            raise EngineUnavailableError(told.fact, remedy=told.remedy) from error

    def borrow(self, operation: str, lost: Lost) -> SessionT:
        """Returns a session that is this thread's until it is given back or dropped."""
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
                self.opened -= 1
                self._free.notify()
            raise

    def take_idle(self) -> SessionT | None:
        """Returns a session that is open and idle, or None. It waits for nothing."""
        if self._pid != os.getpid():
            return None
        with self._free:
            self.check_open()
            found = self._idle.pop() if self._idle else None
        if found is not None and not found.fresh:
            self.drop(found)
            return None
        return found

    def give_back(self, session: SessionT) -> None:
        with self._free:
            if not self.closed:
                self._idle.append(session)
                self._free.notify()
                return
            self.opened -= 1
        self._close(session)

    def drop(self, session: SessionT) -> None:
        """Lost. The idle ones most likely are too: a call on each would find out one by one."""
        with self._free:
            dropped = [session, *(one for one in self._idle if not one.fresh)]
            self._idle = [one for one in self._idle if one not in dropped]
            self.opened -= len(dropped)
            self._free.notify_all()
        for one in dropped:
            self._close(one)

    def close(self, farewell: Callable[[SessionT], object] | None = None) -> None:
        """Close the idle ones, and the others as they come back; one of them says farewell, if any is idle."""
        with self._free:
            self.closed = True
            idle, self._idle = self._idle, []
            self.opened -= len(idle)
            self._free.notify_all()
        if self._pid != os.getpid():
            return
        if idle and farewell is not None:
            with contextlib.suppress(self.errors, OSError):
                farewell(idle[0])
        for session in idle:
            self._close(session)

    def check_open(self) -> None:
        if self.closed:
            raise EngineClosedError(f"the engine {self.settings.shown} was closed", remedy="Open it again")

    def where(self, operation: str) -> str:
        return f"{operation} on {self.settings.shown}"

    def _take(self, operation: str) -> SessionT | None:
        """Returns an idle session, or None for the right to open one."""
        most, patience_s = self.settings.pool, self.settings.timeout_s
        with self._free:
            deadline = None
            while True:
                self.check_open()
                if self._idle:
                    return self._idle.pop()
                if self.opened < most:
                    self.opened += 1
                    return None
                now = self.clock.monotonic()
                deadline = deadline or now + patience_s
                if now >= deadline:
                    raise EngineBusyError(
                        f"{self.where(operation)}: all {most} connections were busy for {patience_s:g} s",
                        remedy="Raise ?pool= in the URL, or use fewer threads",
                    )
                self.clock.wait(self._free, deadline - now)

    def _connect(self, operation: str, lost: Lost) -> SessionT:
        failures = self._failures
        with self._gate:
            if self._failures != failures and self._last_error is not None:
                raise self._as_ours(self._last_error, operation, lost)  # somebody tried while we waited to
            self._await_turn()
            try:
                session = self.open_session()
            except self.errors as error:
                self._failures += 1
                self._not_before = self.clock.monotonic() + self._backoff.next()
                self._last_error = self.translated(error, self.where(operation), lost)
                raise self._last_error from error
            self._backoff.reset()
            self._not_before, self._last_error = 0.0, None
        return session

    def _await_turn(self) -> None:
        with self._free:
            while not self.closed and (left := self._not_before - self.clock.monotonic()) > 0:
                self.clock.wait(self._free, left)
            self.check_open()

    def _as_ours(self, error: TenureError, operation: str, lost: Lost) -> TenureError:
        """Returns another thread's error as one of ours: an exception object belongs to one raise."""
        fact = error.fact.partition(": ")[2] or error.fact
        kind = lost if isinstance(error, EngineUnavailableError) else type(error)
        return kind(f"{self.where(operation)}: {fact}", remedy=error.remedy)

    def _forget_parent(self) -> None:
        """Forgets the sessions in a forked child: they are the parent's, and closing them here would end them there."""
        _inherited.extend(self._idle)
        self._free = threading.Condition()
        self._gate = threading.Lock()
        self._idle, self.opened, self._pid = [], 0, os.getpid()
        self.renew_after_fork()

    def _close(self, session: SessionT) -> None:
        with contextlib.suppress(self.errors, OSError):
            session.close()


# Kept for ever, so that no destructor says goodbye on the parent's socket.
_inherited: list[PooledSession] = []


class ServerEngine(PolledEngine):
    """An engine on a server: it examines the server in a session of its own, and never tells a time before one that it told."""

    connections: Sessions[Any]
    has_own_clock = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest = 0.0

    @abstractmethod
    def server_time(self) -> float:
        """Asks the server for its Unix time."""

    @abstractmethod
    def examine(self, session: Any) -> list[Finding]:
        """Returns everything that `tenure doctor` shows."""

    def check_open(self) -> None:
        self.connections.check_open()

    def now(self) -> float:
        answer = self.server_time()
        with self._lock:
            self._latest = max(self._latest, answer)  # the server's clock may be set back, engine time may not
            return self._latest

    def clock_shows(self) -> float:
        return self.server_time()

    def check(self) -> list[Finding]:
        self.check_open()
        try:
            with self.connections.session_of_its_own("checking") as session:
                return self.examine(session)
        except TenureError as error:
            return [Finding(Level.ERROR, error.fact, error.remedy)]

    def warn_of(self, findings: list[Finding], log: logging.Logger) -> None:
        """Logs what works with a reservation."""
        for level, what, remedy in findings:
            if level is not Level.OK:
                log.warning("%s: %s. %s", self.url, what, remedy)


def clock_finding(skew: float) -> Finding:
    """Compares the server's clock with this machine's. Skew is harmless to leases and deadlines; people who compare log files want to know of it."""
    text = f"the server's clock is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    if abs(skew) > 5:
        return Finding(Level.WARNING, text, "Nothing breaks; set both by NTP, so that times in logs agree")
    return Finding(Level.OK, text)
