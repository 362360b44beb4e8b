from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tenure.engines import Engine
from tenure.engines.redis import RedisEngine
from tools.servers import FaultProxy, Valkey


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody has."""
    return f"test-{os.urandom(6).hex()}"


@pytest.fixture
def opened(namespace: str, valkey_url: str) -> Iterator[Callable[..., RedisEngine]]:
    """Open an engine on the test's namespace, with options for its URL; closed after the test."""
    engines: list[Engine] = []

    def open_engine(options: str = "", *, url: str = valkey_url) -> RedisEngine:
        engine = Engine.open(f"{url}{'&' if '?' in url else '?'}namespace={namespace}{options}")
        assert isinstance(engine, RedisEngine)
        engines.append(engine)
        return engine

    yield open_engine
    for engine in engines:
        engine.close()


@pytest.fixture
def proxy(valkey_server: Valkey) -> Iterator[FaultProxy]:
    with FaultProxy(valkey_server.host, valkey_server.port) as started:
        yield started


@pytest.fixture
def through(opened: Callable[..., RedisEngine], valkey_server: Valkey, proxy: FaultProxy) -> RedisEngine:
    """An engine behind the fault proxy, with one connection and little patience."""
    return opened("&pool=1&timeout=1", url=valkey_server.url_of(0, port=proxy.port))
