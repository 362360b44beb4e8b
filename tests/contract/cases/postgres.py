from __future__ import annotations

import os
from typing import ClassVar

import psycopg
from psycopg import sql
from tests.contract.case import ServerCase

from tenure.clock import SystemClock
from tenure.engines import Engine
from tools.servers import chosen

SCHEMA = f"tenure_test_{os.getpid()}"
TABLES = "message, key, dead_letter, journal_head, journal_entry, journal_snapshot, election, store"


def drop(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA)))


class PostgresCase(ServerCase):
    """One server and one schema for the whole run (making one takes a tenth of a second), emptied before each test."""

    name = "postgres"
    fixture: ClassVar[str] = "postgres_url"
    options: ClassVar[str] = ""
    _emptied = False

    @property
    def live_url(self) -> str:
        url: str = self.request.getfixturevalue(self.fixture)
        return f"{url}{'&' if '?' in url else '?'}schema={SCHEMA}{self.options}"

    def open(self) -> Engine:
        engine = Engine.open(self.live_url, clock=SystemClock())
        if not self._emptied:
            self._emptied = True
            empty = "".join(f'DELETE FROM "{SCHEMA}".{table};' for table in TABLES.split(", "))
            url = self.request.getfixturevalue(self.fixture)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(sql.SQL(empty))
            if chosen.other("postgres"):  # a server that is not ours keeps nothing of the tests
                self.request.session.addfinalizer(lambda: drop(url))
        return engine


class PooledPostgresCase(PostgresCase):
    """PostgreSQL 13 behind PgBouncer in transaction mode: no LISTEN, no prepared statements, polling."""

    name = "postgres-13-pooled"
    fixture = "pooler_url"
    options = "&notify=off&poll=0.02"


CASES = [PostgresCase, PooledPostgresCase]
