"""Statements on sessions of PostgreSQL: one round trip each, autocommitted, so that a session is free again after it.

`engines.sessions` borrows, loses and opens sessions again; this file says what a session is, and translates the server's errors into ours,
each with its remedy.

`unknown outcome` errors (the connection was lost) are EngineUnavailableError, or MailboxConnectionError from a mailbox. All
others were answered by the server: the transaction was rolled back and nothing happened.
"""

from __future__ import annotations

import re
import select
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.types.numeric import FloatBinaryDumper, Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper

from tenure.clock import Clock
from tenure.engines.postgres.address import PostgresSettings
from tenure.engines.sessions import Sessions
from tenure.engines.urls import certificate_refused, certificate_remedy
from tenure.errors import (
    ConfigurationError,
    EngineBusyError,
    EngineCorruptError,
    EngineError,
    EngineFullError,
    EngineReadOnlyError,
    EngineUnavailableError,
    TenureError,
)

# Errors after which trying the same transaction again is right: it was rolled back for a reason that passes.
TRANSIENT = {"40001", "40P01"}

_STATES: dict[str, tuple[type[TenureError], str | None]] = {
    "53100": (EngineFullError, None),
    "53200": (EngineFullError, "The server is out of memory: give it more, or lower its settings; nothing was changed"),
    "53300": (
        EngineBusyError,
        "The server has no connection left: lower ?pool=, raise max_connections, or use a pooler",
    ),
    "53400": (EngineBusyError, None),
    "25006": (EngineReadOnlyError, "This is a standby or a read-only database: connect to the primary"),
    "42501": (
        EngineReadOnlyError,
        "Grant this user its rights; `tenure doctor --engine URL` names those that it lacks",
    ),
    "55P03": (EngineBusyError, None),
    "57014": (EngineBusyError, "A statement_timeout or somebody cancelled it: raise the limit for this user"),
    "28P01": (ConfigurationError, "Check the password in the URL, in PGPASSWORD or in ~/.pgpass"),
    "28000": (ConfigurationError, "The server does not let this user in: check the user, the database and pg_hba.conf"),
    "3D000": (ConfigurationError, "Create the database, or name another one in the URL"),
    "XX001": (EngineCorruptError, "The server found damaged data: restore it"),
    "XX002": (EngineCorruptError, "The server found a damaged index: REINDEX it"),
    "3F000": (EngineCorruptError, "Tenure's schema is gone: open the engine again to make it anew, or restore it"),
    "42P01": (EngineCorruptError, "A table of Tenure's schema is gone: restore it"),
    "42883": (EngineCorruptError, "A function of Tenure's schema is gone: restore it"),
}
# libpq reports why a connection was refused as text only, without a state.
_REFUSED = (
    (re.compile(r"password"), "28P01"),
    (re.compile(r'database ".*" does not exist'), "3D000"),
    (re.compile(r'role ".*" does not exist|no pg_hba\.conf entry|authentication failed'), "28000"),
    (re.compile(r"too many clients|connection slots are reserved|too many connections"), "53300"),
)
_LOST = {"57P01", "57P02", "57P03", "57P05"}  # the server ends, restarts or is not up yet


def is_lost(error: psycopg.Error) -> bool:
    """Returns True when the connection went away, so that the outcome of the call is unknown."""
    state = error.sqlstate
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        state is None or state.startswith("08") or state in _LOST
    )


def translate(error: psycopg.Error, where: str, secret: str, lost: type[EngineUnavailableError]) -> TenureError:
    """The error that a caller gets. `secret` never appears in it."""
    text = (error.diag.message_primary or str(error)).strip().rstrip(".")
    text = " ".join(text.split())
    if secret:
        text = text.replace(secret, "***")
    fact = f"{where}: {text}"
    if certificate_refused(text):
        return ConfigurationError(fact, remedy=certificate_remedy("?sslrootcert="))
    state = error.sqlstate or next((state for pattern, state in _REFUSED if pattern.search(text)), None)
    if state in _STATES:
        kind, remedy = _STATES[state]
        return kind(fact, remedy=remedy)
    if is_lost(error):
        return lost(fact)
    return EngineError(fact)


Rows = list[tuple[Any, ...]]
T = TypeVar("T")
_DEADLOCK_RETRIES = 5


class PostgresSession(psycopg.Connection[tuple[Any, ...]]):
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


class PostgresConnections(Sessions[PostgresSession]):
    """Runs statements, one round trip each."""

    errors = psycopg.Error
    settings: PostgresSettings

    def open_session(self) -> PostgresSession:
        session = PostgresSession.connect(**self.settings.conninfo, autocommit=True)
        session.clock, session.patience_s = self.clock, self.settings.timeout_s
        session.answers = session.cursor(binary=True)
        # One type per Python type: otherwise small and large integers would be different prepared statements.
        session.adapters.register_dumper(int, Int8BinaryDumper)
        session.adapters.register_dumper(float, FloatBinaryDumper)
        session.adapters.register_dumper(str, StrBinaryDumper)
        if not self.settings.notify:
            session.prepare_threshold = None
        return session

    def is_broken(self, session: PostgresSession, error: psycopg.Error) -> bool:
        return session.closed or is_lost(error)

    def translated(self, error: psycopg.Error, where: str, lost: type[EngineUnavailableError]) -> TenureError:
        return translate(error, where, self.settings.secret, lost)

    def query(
        self,
        operation: str,
        statement: str,
        values: Sequence[Any] = (),
        lost: type[EngineUnavailableError] = EngineUnavailableError,
    ) -> Rows:
        """Runs one statement."""
        prepare = True if self.settings.notify else None

        def execute(session: PostgresSession) -> Rows:
            for attempt in range(1, _DEADLOCK_RETRIES + 1):
                try:
                    session.answers.execute(statement, values, prepare=prepare, binary=True)
                    break
                except psycopg.OperationalError as error:
                    if error.sqlstate not in TRANSIENT or attempt == _DEADLOCK_RETRIES:
                        raise
            return session.answers.fetchall()

        return self.run(operation, lost, execute)
