"""Fixtures for the whole suite: one private server of each kind per test process, started when first asked for.

`postgres_url` and the like work on a private server or on the one that `TENURE_TEST_POSTGRES_URL` names; `postgres_server` and
the like give the handle with kill() and restart(), and skip when the server is not ours. What cannot start is a skip
with its reason.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from tests.soak import SOAK
from tools.servers import CannotStart, Nats, NatsCluster, PgBouncer, Postgres, Redis, Server, Valkey, chosen

# Whoever starts the tests in the background lets them ignore Ctrl-C, and every program that they start inherits it. The same holds for `nohup`:
# this process goes on to survive the end of its terminal, and the programs that it starts hear of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# A busy machine is no counterexample: how long an example takes says nothing about whether it holds. `make test` plays the same examples until the test
# changes, so that what passes today passes tomorrow; `make soak` draws them anew (decision 0511).
settings.register_profile("tenure", deadline=None, derandomize=not SOAK)
settings.load_profile("tenure")

ServerT = TypeVar("ServerT", bound=Server | NatsCluster)


def started(server: ServerT, *, instead: bool = True) -> Iterator[ServerT]:
    """The server, running. `instead`: another server may have been named to use in its place."""
    if instead and chosen.other(server.name):
        pytest.skip(chosen.why_not_private(server.name))
    try:
        server.start()
    except CannotStart as reason:
        pytest.skip(f"no private {server.name} here: {reason}")
    try:
        yield server
    finally:
        server.stop()


def url_of(kind: str, fixture: str, request: pytest.FixtureRequest) -> str:
    server: Any = chosen.other(kind) or request.getfixturevalue(fixture)
    return server if isinstance(server, str) else str(server.url)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A private PostgreSQL for the session. A test that kills it restarts it before it ends."""
    yield from started(Postgres())


@pytest.fixture(scope="session")
def pooler() -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode in front of PostgreSQL 13, the oldest version that we support."""
    for server in started(Postgres(version=13), instead=False):
        yield from started(PgBouncer(server), instead=False)


@pytest.fixture(scope="session")
def pooler_url(pooler: PgBouncer) -> str:
    return pooler.url


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    yield from started(Valkey())


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """Redis 6.2, the oldest version that we support."""
    yield from started(Redis())


@pytest.fixture(scope="session")
def nats_server() -> Iterator[Nats]:
    yield from started(Nats())


@pytest.fixture(scope="session")
def nats_cluster() -> Iterator[NatsCluster]:
    yield from started(NatsCluster())


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> str:
    """A PostgreSQL that the tests may make schemas in."""
    return url_of("postgres", "postgres_server", request)


@pytest.fixture(scope="session")
def valkey_url(request: pytest.FixtureRequest) -> str:
    return url_of("valkey", "valkey_server", request)


@pytest.fixture(scope="session")
def redis_url(request: pytest.FixtureRequest) -> str:
    return url_of("redis", "redis_server", request)


@pytest.fixture(scope="session")
def nats_url(request: pytest.FixtureRequest) -> str:
    return url_of("nats", "nats_server", request)


@pytest.fixture(scope="session")
def nats_cluster_url(request: pytest.FixtureRequest) -> str:
    return url_of("nats-cluster", "nats_cluster", request)


@pytest.fixture
def own_server() -> Iterator[Callable[[Any], Any]]:
    """Start a server with settings of its own for one test: `server = own_server(Postgres({"fsync": "on"}))`."""
    begun: list[Any] = []

    def start(server: Any) -> Any:
        begun.append(started(server, instead=False))
        return next(begun[-1])

    yield start
    for server in reversed(begun):
        next(server, None)
