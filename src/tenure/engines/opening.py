"""From a URL to an engine. Knows the schemes, and imports an engine only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tenure.clock import Clock
from tenure.errors import ConfigurationError

if TYPE_CHECKING:
    from tenure.engines.contracts import Engine

# scheme: (module, function, extra that brings its client)
ENGINES = {
    "memory": ("tenure.engines.memory", "open_memory", None),
    "sqlite": ("tenure.engines.sqlite", "open_sqlite", None),
    "postgresql": ("tenure.engines.postgres", "open_postgres", "postgres"),
    "postgres": ("tenure.engines.postgres", "open_postgres", "postgres"),
    "redis": ("tenure.engines.redis", "open_redis", "redis"),
    "rediss": ("tenure.engines.redis", "open_redis", "redis"),
    "nats": ("tenure.engines.nats", "open_nats", "nats"),
    "tls": ("tenure.engines.nats", "open_nats", "nats"),
}


def open_engine(url: str, clock: Clock) -> Engine:
    scheme = urlsplit(url).scheme
    if scheme not in ENGINES:
        raise ConfigurationError(
            f"no engine for {scheme + '://' if scheme else 'a URL without a scheme'}",
            remedy="Use memory://, sqlite:///path/to/file.db, postgresql://, redis:// or nats://",
        )
    module, function, extra = ENGINES[scheme]
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").startswith("tenure"):
            raise
        raise ConfigurationError(
            f"the {scheme} engine needs the package {error.name!r}", remedy=f"pip install 'tenure[{extra}]'"
        ) from error
    engine: Engine = getattr(found, function)(url, clock)
    return engine
