from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from tests.engines.opening import opener

from tenure.engines.postgres import PostgresEngine
from tools.servers import FaultProxy, Postgres


@pytest.fixture
def schema(postgres_url: str) -> Iterator[str]:
    """The name of a schema that nobody has; dropped after the test."""
    name = f"tenure_test_{os.urandom(6).hex()}"
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))


@pytest.fixture
def opened(schema: str, postgres_url: str) -> Iterator[Callable[..., PostgresEngine]]:
    """Open an engine on the test's schema, with options for its URL; closed after the test."""
    yield from opener(PostgresEngine, postgres_url, f"schema={schema}")


@pytest.fixture
def proxy(postgres_server: Postgres) -> Iterator[FaultProxy]:
    with FaultProxy(postgres_server.host, postgres_server.port) as started:
        yield started


@pytest.fixture
def through(opened: Callable[..., PostgresEngine], postgres_server: Postgres, proxy: FaultProxy) -> PostgresEngine:
    """An engine behind the fault proxy, with one connection and little patience."""
    return opened("&pool=1&timeout=1", url=postgres_server.url_of("postgres", port=proxy.port))
