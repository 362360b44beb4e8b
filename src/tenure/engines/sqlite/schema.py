"""Makes the tables of a new file, and refuses a file that is not ours or from a newer Tenure."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from tenure.errors import ConfigurationError, EngineRefusedError, EngineVersionError

SCHEMA_VERSION = 1
APPLICATION_ID = 0x544E5231
"""`TNR1`, in the file's header: `file tenure.db` shows it, and no other program's database is mistaken for ours."""
OLDEST_SQLITE = (3, 40, 0)
_STANDING = """
SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version, pragma_application_id"""
"""One statement, so that all three are of one moment: another process may be turning the same new file into ours right now."""


def check_library() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise EngineVersionError(
            f"this Python has SQLite {sqlite3.sqlite_version}",
            remedy=f"Use a Python with SQLite {'.'.join(map(str, OLDEST_SQLITE))} or newer",
        )


def prepare_file(connection: sqlite3.Connection, path: Path) -> None:
    """Turn a new file into ours, outside of any transaction: neither pragma works inside one."""
    if _version(connection, path) == 0:
        # Must come before the first table. Free pages are then given back in steps: see upkeep.py.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise EngineRefusedError(
            f"{path} cannot use a write-ahead log: SQLite stays in mode {mode!r}",
            remedy="Put the file on a local disk: network file systems lack the shared memory that it needs",
        )


def create_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Make what is missing, inside the caller's transaction; another process may have been first."""
    if _version(connection, path) == SCHEMA_VERSION:
        return
    for statement in _statements():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The file's schema version; 0 for a new one."""
    version, application, tables = connection.execute(_STANDING).fetchone()
    if tables and application != APPLICATION_ID:
        raise ConfigurationError(f"{path} is a database of another program", remedy="Give Tenure a file of its own")
    if version > SCHEMA_VERSION:
        raise EngineVersionError(
            f"{path} was written by a newer Tenure: its schema is {version}, this one knows {SCHEMA_VERSION}",
            remedy="Upgrade Tenure here, or open another file; nothing was changed",
        )
    return int(version)


def _statements() -> Iterator[str]:
    text = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
    pending = ""
    for line in text.splitlines():
        pending += line.split("--")[0] + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
