"""Fixtures that pytest finds by itself once Tenure is installed. Imports nothing heavy: every pytest run loads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tenure.clock import ManualClock
    from tenure.testing.datacenter import TestDatacenter
    from tenure.testing.mailbox import FakeEngine, FakeMailbox


@pytest.fixture
def tenure_clock() -> ManualClock:
    """A clock that moves only when the test says so."""
    from tenure.clock import ManualClock

    return ManualClock()


@pytest.fixture
def tenure_engine(tenure_clock: ManualClock) -> Iterator[FakeEngine]:
    """An engine in memory, on `tenure_clock`, whose mailboxes can be made to fail."""
    from tenure.testing.mailbox import FakeEngine

    with FakeEngine(tenure_clock) as engine:
        yield engine


@pytest.fixture
def tenure_mailbox(tenure_engine: FakeEngine) -> FakeMailbox[Any, Any]:
    """A mailbox of `tenure_engine` that can expire receipts, lose its connection, and counts its calls."""
    return tenure_engine.mailbox("mailbox")


@pytest.fixture
def tenure_dc(tenure_clock: ManualClock) -> Iterator[TestDatacenter]:
    """A whole datacenter on `tenure_clock`: submit workflows, let hours pass, ask why. Nothing waits."""
    from tenure.testing.datacenter import TestDatacenter

    datacenter = TestDatacenter(clock=tenure_clock)
    try:
        yield datacenter
    finally:
        datacenter.close()


def _server(kind: str) -> Iterator[str]:
    from tenure.testing.servers import CannotBeHad, server

    found = server(kind)
    try:
        url = found.__enter__()
    except CannotBeHad as reason:
        pytest.skip(f"no {kind} for this test: {reason}")
    try:
        yield url
    finally:
        found.__exit__(None, None, None)


@pytest.fixture(scope="session")
def _tenure_redis() -> Iterator[str]:
    yield from _server("redis")


@pytest.fixture(scope="session")
def _tenure_nats() -> Iterator[str]:
    yield from _server("nats")


@pytest.fixture(scope="session")
def _tenure_postgres() -> Iterator[str]:
    yield from _server("postgres")


def _own_part(kind: str, url: str) -> str:
    from tenure.ids import new_id
    from tenure.testing.servers import namespaced

    return namespaced(kind, url, f"t{new_id()[:12]}")


@pytest.fixture
def tenure_redis_url(_tenure_redis: str) -> str:
    """A real Redis or Valkey, in a namespace of this test's own. TENURE_TEST_REDIS_URL names one; else one is started."""
    return _own_part("redis", _tenure_redis)


@pytest.fixture
def tenure_nats_url(_tenure_nats: str) -> str:
    """A real NATS JetStream, in a namespace of this test's own. TENURE_TEST_NATS_URL names one; else one is started."""
    return _own_part("nats", _tenure_nats)


@pytest.fixture
def tenure_postgres_url(_tenure_postgres: str) -> str:
    """A real PostgreSQL, in a schema of this test's own. TENURE_TEST_POSTGRES_URL names one; else one is started."""
    return _own_part("postgres", _tenure_postgres)


@pytest.fixture
def tenure_sqlite_url(tmp_path: Path) -> str:
    """A SQLite engine in a file of this test's own."""
    return f"sqlite:///{tmp_path / 'tenure.db'}"
