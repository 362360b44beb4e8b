"""Statements on sessions of PostgreSQL: one round trip each, autocommitted, so that a session is free again after it.

How sessions are borrowed, lost and opened again is `engines.sessions`; what a session is, and what its errors mean, is said here.
"""

from __future__ import annotations

import select
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.types.numeric import FloatBinaryDumper, Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from tenure.clock import Clock
from tenure.engines.metrics import OperationMetrics
from tenure.engines.postgres import faults
from tenure.engines.postgres.url import PostgresSettings
from tenure.engines.sessions import Sessions
from tenure.errors import EngineUnavailableError, TenureError
from tenure.randomness import Random

Rows = list[tuple[Any, ...]]
T = TypeVar("T")
_DEADLOCK_RETRIES = 5


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose every wait for the server ends: one that is silent for `patience_s` is taken as lost."""

    clock: Clock
    patience_s = 30.0
    answers: psycopg.Cursor[tuple[Any, ...]]
    """The one cursor that every statement uses: making one costs as much as a small answer."""
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

    @property
    def fresh(self) -> bool:
        """Returns True when the session can be used: an idle one on which bytes wait has usually been closed by the server."""
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
    session.answers = session.cursor(binary=True)
    # One type per Python type: otherwise small and large integers would be different prepared statements.
    session.adapters.register_dumper(int, Int8BinaryDumper)
    session.adapters.register_dumper(float, FloatBinaryDumper)
    session.adapters.register_dumper(str, StrBinaryDumper)
    if not settings.notify:
        session.prepare_threshold = None
    return session


class Connections:
    """Runs statements, one round trip each."""

    def __init__(self, settings: PostgresSettings, clock: Clock, random: Random, metrics: OperationMetrics) -> None:
        self.settings, self.clock, self.metrics = settings, clock, metrics
        self.sessions = Sessions(
            settings,
            clock,
            random,
            connect=lambda: open_session(settings, clock),
            errors=psycopg.Error,
            told=self._told,
        )
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
                        raise self._told(error, operation, lost) from error
            raise AssertionError("unreachable")
        except TenureError as error:
            self.metrics.failed(operation, error)
            raise
        finally:
            self.metrics.took(operation, self.clock.monotonic() - begun)

    def _once(self, statement: str, values: Sequence[Any], operation: str, lost: type[EngineUnavailableError]) -> Rows:
        session = self.sessions.borrow(operation, lost)
        try:
            session.answers.execute(statement, values, prepare=self._prepare, binary=True)
            rows = session.answers.fetchall()
        except psycopg.Error as error:
            if session.closed or faults.is_lost(error):
                self.sessions.drop(session)
            else:
                self.sessions.give_back(session)
                if error.sqlstate in faults.TRANSIENT:
                    raise
            raise self._told(error, operation, lost) from error
        except BaseException:
            self.sessions.drop(session)  # interrupted in the middle: nobody knows what it would say next
            raise
        self.sessions.give_back(session)
        return rows

    def _told(self, error: psycopg.Error, operation: str, lost: type[EngineUnavailableError]) -> TenureError:
        return faults.translate(error, self.sessions.where(operation), self.settings.secret, lost)

    def check_open(self) -> None:
        self.sessions.check_open()

    def close(self) -> None:
        self.sessions.close()
