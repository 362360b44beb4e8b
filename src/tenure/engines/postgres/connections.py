"""The sessions of one engine: borrowed for one statement each, opened when needed, thrown away when they broke.

Why not psycopg_pool: docs/decisions/0050. A caller that needs a session opens it itself, so that it gets the server's own words
when that fails, and no thread of ours runs while nothing happens.

Statements are autocommitted functions, so a session is free again after one round trip. When one is lost, all idle ones are
dropped with it. A server out of reach is tried again at jittered, growing intervals by one thread at a time, however many ask;
in between, they wait, and those that waited share the answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.types.numeric import FloatBinaryDumper, Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from tenure.clock import Clock
from tenure.engines.backoff import Backoff
from tenure.engines.metrics import OperationMetrics
from tenure.engines.postgres import faults
from tenure.engines.postgres.url import PostgresSettings
from tenure.errors import EngineBusyError, EngineClosedError, EngineUnavailableError, TenureError
from tenure.randomness import Random

log = logging.getLogger("tenure.engines.postgres")

Rows = list[tuple[Any, ...]]
T = TypeVar("T")
_DEADLOCK_RETRIES = 5


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose every wait for the server ends: one that is silent for `patience_s` is taken as lost."""

    clock: Clock
    patience_s = 30.0
    _poll: select.poll | None = None

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, timeout: float | None = None) -> T:
        if timeout is not None:  # the library limits this wait itself
            return super().wait(gen, interval, timeout)
        return super().wait(self._bounded(gen), interval)

    def _bounded(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        end = self.clock.monotonic() + self.patience_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and self.clock.monotonic() > end:
                    raise psycopg.OperationalError(f"the server did not answer within {self.patience_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            result: T = done.value
            return result

    def is_fresh(self) -> bool:
        """Whether it can be used: an idle session on which bytes wait has usually been closed by the server."""
        poll = self._poll
        if poll is None:
            poll = self._poll = select.poll()
            poll.register(self.pgconn.socket, select.POLLIN)
        if not poll.poll(0):
            return True
        try:
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            return False
        return self.pgconn.status == pq.ConnStatus.OK and not poll.poll(0)


def open_session(settings: PostgresSettings, clock: Clock) -> Session:
    """Connect. Raises psycopg's errors."""
    session = Session.connect(**settings.conninfo, autocommit=True)
    session.clock, session.patience_s = clock, settings.timeout_s
    # One type per Python type: otherwise small and large integers would be different prepared statements.
    session.adapters.register_dumper(int, Int8BinaryDumper)
    session.adapters.register_dumper(float, FloatBinaryDumper)
    session.adapters.register_dumper(str, StrBinaryDumper)
    if not settings.notify:
        session.prepare_threshold = None
    return session


class Connections:
    """Runs statements, one round trip each, on at most `settings.pool` sessions."""

    def __init__(self, settings: PostgresSettings, clock: Clock, random: Random, metrics: OperationMetrics) -> None:
        self.settings, self.clock, self.metrics = settings, clock, metrics
        self._free = threading.Condition()
        self._idle: list[tuple[Session, psycopg.Cursor[tuple[Any, ...]]]] = []
        self._open = 0
        self._closed = False
        self._pid = os.getpid()
        self._gate = threading.Lock()  # held by the one thread that connects
        self._backoff = Backoff(random, first_s=0.05, most_s=2.0)
        self._failures = 0
        self._not_before = 0.0
        self._last_error: TenureError | None = None
        self._prepare = True if settings.notify else None

    def query(
        self,
        operation: str,
        statement: str,
        values: Sequence[Any] = (),
        lost: type[EngineUnavailableError] = EngineUnavailableError,
    ) -> Rows:
        """Run one statement. After `lost` the outcome is unknown; after any other error nothing has happened."""
        begun = self.clock.monotonic()
        try:
            for attempt in range(_DEADLOCK_RETRIES):
                try:
                    return self._once(statement, values, operation, lost)
                except psycopg.OperationalError as error:  # rolled back: see faults.TRANSIENT
                    if attempt == _DEADLOCK_RETRIES - 1:
                        raise faults.translate(error, self._where(operation), self.settings.secret, lost) from error
            raise AssertionError("unreachable")
        except TenureError as error:
            self.metrics.failed(operation, error)
            raise
        finally:
            self.metrics.took(operation, self.clock.monotonic() - begun)

    def _once(self, statement: str, values: Sequence[Any], operation: str, lost: type[EngineUnavailableError]) -> Rows:
        session, cursor = self._borrow(operation, lost)
        try:
            cursor.execute(statement, values, prepare=self._prepare, binary=True)
            rows = cursor.fetchall()
        except psycopg.Error as error:
            if session.closed or faults.is_lost(error):
                self._drop(session)
            else:
                self._give_back(session, cursor)
                if error.sqlstate in faults.TRANSIENT:
                    raise
            raise faults.translate(error, self._where(operation), self.settings.secret, lost) from error
        except BaseException:
            self._drop(session)  # interrupted in the middle: nobody knows what it would say next
            raise
        self._give_back(session, cursor)
        return rows

    def _where(self, operation: str) -> str:
        return f"{operation} on {self.settings.shown}"

    # Borrowing

    def _borrow(
        self, operation: str, lost: type[EngineUnavailableError]
    ) -> tuple[Session, psycopg.Cursor[tuple[Any, ...]]]:
        if self._pid != os.getpid():
            self._forget_parent()
        while (found := self._take(operation)) is not None:
            if found[0].is_fresh():
                return found
            self._drop(found[0])
        try:
            return self._connect(operation, lost)
        except BaseException:
            with self._free:
                self._open -= 1
                self._free.notify()
            raise

    def _take(self, operation: str) -> tuple[Session, psycopg.Cursor[tuple[Any, ...]]] | None:
        """An idle session, or None for the right to open one."""
        with self._free:
            deadline = None
            while True:
                if self._closed:
                    raise EngineClosedError(f"the engine {self.settings.shown} was closed", remedy="Open it again")
                if self._idle:
                    return self._idle.pop()
                if self._open < self.settings.pool:
                    self._open += 1
                    return None
                now = self.clock.monotonic()
                deadline = deadline or now + self.settings.timeout_s
                if now >= deadline:
                    raise EngineBusyError(
                        f"{self._where(operation)}: all {self.settings.pool} connections were busy for {self.settings.timeout_s:g} s",
                        remedy="Raise ?pool= in the URL, or use fewer threads",
                    )
                self.clock.wait(self._free, deadline - now)

    def _connect(
        self, operation: str, lost: type[EngineUnavailableError]
    ) -> tuple[Session, psycopg.Cursor[tuple[Any, ...]]]:
        failures = self._failures
        with self._gate:
            if self._failures != failures and self._last_error is not None:
                raise self._retold(self._last_error, operation, lost)  # somebody tried while we waited to
            self._await_turn()
            try:
                session = open_session(self.settings, self.clock)
            except psycopg.Error as error:
                self._failures += 1
                self._not_before = self.clock.monotonic() + self._backoff.next()
                self._last_error = faults.translate(error, self._where(operation), self.settings.secret, lost)
                raise self._last_error from error
            self._backoff.reset()
            self._not_before, self._last_error = 0.0, None
        return session, session.cursor(binary=True)

    def _await_turn(self) -> None:
        with self._free:
            while not self._closed and (left := self._not_before - self.clock.monotonic()) > 0:
                self.clock.wait(self._free, left)
            if self._closed:
                raise EngineClosedError(f"the engine {self.settings.shown} was closed", remedy="Open it again")

    def _retold(self, error: TenureError, operation: str, lost: type[EngineUnavailableError]) -> TenureError:
        """Another thread's error, as ours: an exception object belongs to one raise."""
        fact = error.fact.partition(": ")[2] or error.fact
        kind = lost if isinstance(error, EngineUnavailableError) else type(error)
        return kind(f"{self._where(operation)}: {fact}", remedy=error.remedy)

    def _give_back(self, session: Session, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        with self._free:
            if not self._closed:
                self._idle.append((session, cursor))
                self._free.notify()
                return
            self._open -= 1
        session.close()

    def _drop(self, session: Session) -> None:
        """Lost. The idle ones most likely are too: a call on each would find out one by one."""
        with self._free:
            dropped = [session, *(one for one, _ in self._idle if not one.is_fresh())]
            self._idle = [pair for pair in self._idle if pair[0] not in dropped]
            self._open -= len(dropped)
            self._free.notify_all()
        for one in dropped:
            _close(one)

    def _forget_parent(self) -> None:
        """In a forked child: the sessions are the parent's, and closing them here would end them there."""
        _inherited.extend(session for session, _ in self._idle)
        self._free = threading.Condition()
        self._gate = threading.Lock()
        self._idle, self._open, self._pid = [], 0, os.getpid()

    def close(self) -> None:
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._free.notify_all()
        if self._pid == os.getpid():
            for session, _ in idle:
                _close(session)

    @property
    def closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        if self._closed:
            raise EngineClosedError(f"the engine {self.settings.shown} was closed", remedy="Open it again")


# Kept for ever, so that no destructor says goodbye on the parent's socket.
_inherited: list[Session] = []


def _close(session: Session) -> None:
    with contextlib.suppress(psycopg.Error, OSError):
        session.close()
