from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from tests.engines.opening import opener

from tenure.engines.redis import RedisEngine
from tools.servers import FaultProxy, Valkey


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody has."""
    return f"test-{os.urandom(6).hex()}"


@pytest.fixture
def opened(namespace: str, valkey_url: str) -> Iterator[Callable[..., RedisEngine]]:
    """Open an engine on the test's namespace, with options for its URL; closed after the test."""
    yield from opener(RedisEngine, valkey_url, f"namespace={namespace}")


@pytest.fixture
def proxy(valkey_server: Valkey) -> Iterator[FaultProxy]:
    with FaultProxy(valkey_server.host, valkey_server.port) as started:
        yield started


@pytest.fixture
def through(opened: Callable[..., RedisEngine], valkey_server: Valkey, proxy: FaultProxy) -> RedisEngine:
    """An engine behind the fault proxy, with one connection and little patience."""
    return opened("&pool=1&timeout=1", url=valkey_server.url_of(0, port=proxy.port))
