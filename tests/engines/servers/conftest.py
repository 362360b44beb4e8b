"""What holds for every engine with a server and a pool of sessions: each test here runs on PostgreSQL and on Valkey."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.engines.opening import opener

from tenure.engines import Engine
from tools.servers import FaultProxy


@dataclass(frozen=True)
class Kind:
    """One of them, and what of it goes over the wire."""

    name: str
    space: str
    """The option of the URL that names a space of one's own."""
    database: str | int
    in_claims: bytes
    """What a claim from the mailbox `work` for 300 seconds contains."""
    token: Callable[[Any], bytes]
    """A receipt's token: only calls with that receipt have it."""

    def url(self, server: Any, port: int) -> str:
        return str(server.url_of(self.database, port=port))


KINDS = [
    Kind("postgres", "schema", "postgres", b"work", lambda message: int(message.receipt[1]).to_bytes(8, "big")),
    Kind("valkey", "namespace", 0, b"300000000", lambda message: str(message.receipt[1]).encode()),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def server(kind: Kind, request: pytest.FixtureRequest) -> Any:
    """The private server: tests here reset its connections and pause it."""
    return request.getfixturevalue(f"{kind.name}_server")


@pytest.fixture
def opened(kind: Kind, server: Any) -> Iterator[Callable[..., Engine]]:
    """Open an engine on the test's own space, with options for its URL; closed after the test."""
    yield from opener(Engine, server.url, f"{kind.space}=test{os.urandom(6).hex()}")


@pytest.fixture
def proxy(server: Any) -> Iterator[FaultProxy]:
    with FaultProxy(server.host, server.port) as started:
        yield started


@pytest.fixture
def through(kind: Kind, opened: Callable[..., Engine], server: Any, proxy: FaultProxy) -> Engine:
    """An engine behind the fault proxy, on one connection, that soon loses patience."""
    return opened("&pool=1&timeout=1", url=kind.url(server, proxy.port))
