from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenure import submit_in, submit_in_async, workflow
from tenure.client.transactions import SUBMISSIONS
from tenure.engines import Engine
from tenure.errors import ArgumentsError, ConfigurationError, EngineError, LimitError
from tenure.jobs.model import JobSubmission


@workflow
def encode(ctx: Any, path: str) -> int:
    return len(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.db"
    Engine.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def connection(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("CREATE TABLE film (path TEXT)")
        yield opened


def waiting(file: Path) -> list[str]:
    with Engine.open(f"sqlite:///{file}") as engine:
        return [one.body.job_id for one in engine.mailbox(SUBMISSIONS, JobSubmission).receive(10, 0.01)]


def test_a_job_exists_when_the_transaction_commits(connection: sqlite3.Connection, file: Path) -> None:
    connection.execute("INSERT INTO film VALUES ('a.mov')")
    job_id = submit_in(connection, encode, path="a.mov")
    with closing(sqlite3.connect(file)) as reader:
        [(seen,)] = reader.execute("SELECT count(*) FROM message").fetchall()
    assert seen == 0, "nobody sees it before the commit"
    connection.commit()
    assert waiting(file) == [job_id]


def test_no_job_exists_when_the_transaction_is_rolled_back(connection: sqlite3.Connection, file: Path) -> None:
    connection.execute("INSERT INTO film VALUES ('a.mov')")
    submit_in(connection, encode, path="a.mov")
    connection.rollback()
    assert waiting(file) == []


def test_a_connection_without_a_transaction_begins_one(connection: sqlite3.Connection, file: Path) -> None:
    submit_in(connection, encode, path="a.mov", job_id="chosen")
    assert connection.in_transaction
    connection.commit()
    assert waiting(file) == ["chosen"]


def test_a_program_with_an_engine_submits_through_it(file: Path) -> None:
    with Engine.open(f"sqlite:///{file}") as engine:
        job_id = submit_in(engine, "encode", {"path": "a.mov"}, queue="films")
        [message] = engine.mailbox(SUBMISSIONS, JobSubmission).receive(1, 5)
    assert (message.body.job_id, message.body.queue) == (job_id, "films")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"pth": "a.mov"}, ArgumentsError),
        ({"path": "a.mov", "queue": "my queue"}, LimitError),
        ({"path": "a.mov", "timeout": -1}, LimitError),
    ],
)
def test_a_submission_that_cannot_be_accepted_raises_and_leaves_the_transaction_as_it_was(
    connection: sqlite3.Connection, file: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        submit_in(connection, encode, **arguments)
    assert not connection.in_transaction


def test_a_file_without_an_engine_is_named_with_the_remedy(tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "other.db")) as connection,
        pytest.raises(EngineError, match="no engine of Tenure") as caught,
    ):
        submit_in(connection, encode, path="a.mov")
    assert "tenure manager" in caught.value.remedy


def test_an_unknown_connection_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match="SimpleNamespace") as caught:
        submit_in(SimpleNamespace(), encode, path="a.mov")
    assert "psycopg.Connection" in caught.value.remedy


def test_an_async_call_with_a_blocking_connection_names_the_other_function(
    connection: sqlite3.Connection,
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(submit_in_async(connection, encode, path="a.mov"))
    assert "tenure.submit_in " in caught.value.remedy


def test_a_schema_that_could_be_sql_is_refused() -> None:
    import psycopg

    class Fake(psycopg.Connection[Any]):
        def __init__(self) -> None:
            pass

        def __del__(self, *args: Any) -> None:
            pass

    with pytest.raises(ConfigurationError, match="no name of a schema"):
        submit_in(Fake(), encode, path="a.mov", schema='x".y; DROP TABLE film; --')
