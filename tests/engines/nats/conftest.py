from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from tests.engines.nats.removing import remove_streams
from tests.engines.opening import opener
from tools.servers.nats import Nats

from tenure.engines.nats import NatsEngine
from tools.servers import FaultProxy


@pytest.fixture
def namespace(nats_url: str) -> Iterator[str]:
    """A namespace that nobody has; its streams are removed after the test."""
    name = f"t{os.urandom(6).hex()}"
    yield name
    remove_streams(nats_url, name)


@pytest.fixture
def opened(namespace: str, nats_url: str) -> Iterator[Callable[..., NatsEngine]]:
    """Open an engine on the test's namespace, with options for its URL; closed after the test."""
    yield from opener(NatsEngine, nats_url, f"namespace={namespace}")


@pytest.fixture
def proxy(nats_server: Nats) -> Iterator[FaultProxy]:
    with FaultProxy(nats_server.host, nats_server.port) as started:
        yield started


@pytest.fixture
def through(opened: Callable[..., NatsEngine], nats_server: Nats, proxy: FaultProxy) -> NatsEngine:
    """An engine behind the fault proxy."""
    return opened("&timeout=3", url=nats_server.url_of(port=proxy.port))
