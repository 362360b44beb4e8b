"""A new file becomes ours, whoever else makes it at the same moment."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tenure.engines.sqlite import schema


def make(path: Path) -> None:
    """What another process does when it opens the file first."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        schema.prepare_file(other, path)
        other.execute("BEGIN IMMEDIATE")
        schema.create_tables(other, path)
        other.execute("COMMIT")


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_file_that_another_process_makes_while_we_look_at_it_is_not_another_programs(
    tmp_path: Path, moment: int
) -> None:
    """It was: version and tables were read one after the other, and the worker that did so never reported again."""
    path, begun = tmp_path / "tenure.db", 0

    def another(statement: str) -> None:
        nonlocal begun
        begun += 1
        if begun == moment:
            with suppress(sqlite3.OperationalError):  # it is locked for as long as we look: that is as good
                make(path)

    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        connection.set_trace_callback(another)
        with suppress(sqlite3.OperationalError):  # locked by the other one: tried again by whoever opens
            schema.prepare_file(connection, path)
        connection.set_trace_callback(None)
    make(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
