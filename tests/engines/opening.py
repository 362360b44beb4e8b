"""What the folders of the servers' engines share: opening engines on a space of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from tenure.engines import Engine

EngineT = TypeVar("EngineT", bound=Engine)


def opener(kind: type[EngineT], default_url: str, space: str) -> Iterator[Callable[..., EngineT]]:
    """The body of a fixture: open engines on `space` ("schema=x"), with options for the URL; closed after the test."""
    engines: list[EngineT] = []

    def open_engine(options: str = "", *, url: str = default_url) -> EngineT:
        engine = Engine.open(f"{url}{'&' if '?' in url else '?'}{space}{options}")
        assert isinstance(engine, kind)
        engines.append(engine)
        return engine

    yield open_engine
    for engine in engines:
        engine.close()
