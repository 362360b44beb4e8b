"""Submits a job inside the caller's own database transaction: the job exists if and only if that transaction commits.

The submission is a message in the mailbox `tenure.submissions` of an engine in the same database. The leader takes it in after the commit, as it
would take a request, so nothing is lost while no manager is up. A program that has the engine's URL may pass the open `Engine` instead of a
connection: then the job is durable when the call returns, and no HTTP is involved.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from tenure.client.transaction_types import SubmitIn
from tenure.clock import SystemClock
from tenure.codec import Codec
from tenure.engines.checks import BodyCodec
from tenure.engines.contracts import Engine, Mailbox
from tenure.errors import ConfigurationError, EngineError
from tenure.jobs.model import JobSubmission
from tenure.jobs.settings import LIMITS
from tenure.jobs.submission import validate
from tenure.randomness import new_id
from tenure.work.job_submission import Target, positional, split, submission_for, with_codec

SUBMISSIONS = "tenure.submissions"
"""The mailbox from which a leader takes submissions that came through the engine."""
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_BODY = BodyCodec(JobSubmission)
AnswerT = TypeVar("AnswerT")


class Statement(NamedTuple):
    """One SQL statement in the words of PostgreSQL, with the places of its values as each driver writes them."""

    text: str
    mailbox: str
    body: bytes

    def placed(self, *places: str) -> str:
        return self.text.format(*places)


def _typed(function: Callable[..., AnswerT]) -> SubmitIn[AnswerT]:
    """Gives a function the types of `SubmitIn`."""
    return function


@_typed
def submit_in(
    connection: Any, target: Any, /, *arguments: Any, schema: str = "tenure", codec: Codec | None = None, **given: Any
) -> str:
    """Submits a job in the transaction that is open on `connection`. Returns the id of the job.

    `connection` is one of psycopg, SQLAlchemy (a Session too), Django or sqlite3, on the database that has the engine, or an open `Engine`.
    Workflow, arguments and options are those of `Client.submit`. `schema` is the one of the engine's URL, on PostgreSQL.
    `codec` is the client's.

    Raises before anything is written when the submission cannot be accepted.
    """
    submission = _checked(target, positional(target, arguments), given, codec)
    if isinstance(connection, Engine):
        mailbox: Mailbox[JobSubmission, None] = connection.mailbox(SUBMISSIONS, JobSubmission)
        mailbox.send(submission)
        return submission.job_id
    send = _WAYS.get(_kind(connection))
    if send is None:
        raise _unknown(connection, _WAYS, "submit_in_async" if _kind(connection) in _ASYNC_WAYS else "")
    with _explained(schema):
        send(connection, submission, schema)
    return submission.job_id


@_typed
async def submit_in_async(
    connection: Any, target: Any, /, *arguments: Any, schema: str = "tenure", codec: Codec | None = None, **given: Any
) -> str:
    """As `submit_in`, on an async connection of psycopg, asyncpg or SQLAlchemy (an AsyncSession too)."""
    submission = _checked(target, positional(target, arguments), given, codec)
    send = _ASYNC_WAYS.get(_kind(connection))
    if send is None:
        raise _unknown(connection, _ASYNC_WAYS, "submit_in" if _kind(connection) in _WAYS else "")
    with _explained(schema):
        await send(connection, _statement(submission, schema))
    return submission.job_id


def _checked(
    target: Target, arguments: Mapping[str, Any] | None, given: Mapping[str, Any], codec: Codec | None
) -> JobSubmission:
    options, found = split(target, given, arguments)
    submission = with_codec(codec, submission_for(target, found, options, new_id))
    validate(submission, LIMITS)
    return submission


def _kind(connection: Any) -> str:
    """Returns `package.Class` of the first class that a driver has given to the connection, so that subclasses count too."""
    known = {*_WAYS, *_ASYNC_WAYS}
    names = [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(connection).__mro__]
    # Django hands out a proxy for the connection of the calling thread.
    names += ["django.BaseDatabaseWrapper"] if hasattr(connection, "vendor") and hasattr(connection, "cursor") else []
    return next((name for name in names if name in known), names[0])


def _unknown(connection: Any, ways: Mapping[str, Any], other: str) -> ConfigurationError:
    remedy = f"Use tenure.{other} for it" if other else f"Give one of these: {', '.join(sorted(ways))}"
    return ConfigurationError(
        f"connection is a {_kind(connection)}, and no job can be submitted in that", remedy=remedy
    )


def _statement(submission: JobSubmission, schema: str) -> Statement:
    if not _SCHEMA.fullmatch(schema):
        raise ConfigurationError(f"schema {schema!r} is no name of a schema", remedy="Write it as in the engine's URL")
    channel = f"tenure_{hashlib.sha256(schema.encode()).hexdigest()[:8]}_"
    # Not the engine's own function `send`: it holds a lock to the end of the transaction, which a leader that begins to listen waits for, and
    # this transaction may be long. NOTIFY reaches the leader at the commit.
    text = (
        f'WITH sent AS (INSERT INTO "{schema}".message (mailbox, visible_at, enqueued_at, generation, body)'  # noqa: S608  a checked name
        " VALUES ({0}, clock_timestamp(), clock_timestamp(), 0, {1}) RETURNING mailbox)"
        f" SELECT pg_notify('{channel}' || md5('m/' || mailbox), '') FROM sent"
    )
    return Statement(text, SUBMISSIONS, _BODY.encode(submission, "submission"))


def _by_psycopg(connection: Any, submission: JobSubmission, schema: str) -> None:
    statement = _statement(submission, schema)
    connection.execute(statement.placed("%s", "%s"), (statement.mailbox, statement.body))


def _by_sqlite(connection: Any, submission: JobSubmission, schema: str) -> None:
    """Writes the message as the engine's own `send` does. A leader that waits looks at the file once a second."""
    from tenure.engines.sqlite import statements as sql
    from tenure.engines.sqlite.database import anchored

    if not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    now = anchored(connection, SystemClock()).now()
    connection.execute(sql.INSERT_PLAIN, (SUBMISSIONS, new_id(), _BODY.encode(submission, "submission"), now, now))


def _by_sqlalchemy(connection: Any, submission: JobSubmission, schema: str) -> None:
    from sqlalchemy import text

    connected = connection.connection() if hasattr(connection, "get_bind") else connection
    if connected.dialect.name == "sqlite":
        _by_sqlite(connected.connection.driver_connection, submission, schema)
    else:
        statement = _statement(submission, schema)
        values = {"mailbox": statement.mailbox, "body": statement.body}
        connected.execute(text(statement.placed(":mailbox", ":body")), values)


def _by_django(connection: Any, submission: JobSubmission, schema: str) -> None:
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        _by_sqlite(connection.connection, submission, schema)
        return
    statement = _statement(submission, schema)
    with connection.cursor() as cursor:
        cursor.execute(statement.placed("%s", "%s"), (statement.mailbox, statement.body))


async def _by_async_psycopg(connection: Any, statement: Statement) -> None:
    await connection.execute(statement.placed("%s", "%s"), (statement.mailbox, statement.body))


async def _by_asyncpg(connection: Any, statement: Statement) -> None:
    await connection.execute(statement.placed("$1", "$2"), statement.mailbox, statement.body)


async def _by_async_sqlalchemy(connection: Any, statement: Statement) -> None:
    from sqlalchemy import text

    values = {"mailbox": statement.mailbox, "body": statement.body}
    await connection.execute(text(statement.placed(":mailbox", ":body")), values)


_WAYS = {
    "psycopg.Connection": _by_psycopg,
    "psycopg.Cursor": _by_psycopg,
    "sqlite3.Connection": _by_sqlite,
    "sqlalchemy.Connection": _by_sqlalchemy,
    "sqlalchemy.Session": _by_sqlalchemy,
    "django.BaseDatabaseWrapper": _by_django,
}
_ASYNC_WAYS = {
    "psycopg.AsyncConnection": _by_async_psycopg,
    "asyncpg.Connection": _by_asyncpg,
    "asyncpg.PoolConnectionProxy": _by_asyncpg,
    "sqlalchemy.AsyncConnection": _by_async_sqlalchemy,
    "sqlalchemy.AsyncSession": _by_async_sqlalchemy,
}


@contextmanager
def _explained(schema: str) -> Iterator[None]:
    """Explains the one mistake that every driver words differently: the engine is not in this database."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if "does not exist" in text and schema in text:
            raise EngineError(
                f"this database has no engine of Tenure in the schema {schema!r}",
                remedy="Start a manager on it once, or name the schema of its URL: submit_in(..., schema='other')",
            ) from error
        if "no such table" in text:
            raise EngineError(
                "this SQLite file has no engine of Tenure",
                remedy="Start a manager on the same file once: tenure manager --engine sqlite:///FILE",
            ) from error
        raise
