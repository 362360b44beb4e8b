from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenure.clock import Clock, ManualClock, SystemClock
from tenure.engines.sqlite import SqliteEngine, open_sqlite

Opener = Callable[..., SqliteEngine]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tenure.db"


@pytest.fixture
def opened(path: Path, clock: ManualClock) -> Iterator[Opener]:
    """Open the file; on the manual clock unless told otherwise."""
    engines: list[SqliteEngine] = []

    def open_it(options: str = "", *, clock: Clock = clock, live: bool = False) -> SqliteEngine:
        engine = open_sqlite(f"sqlite:///{path}{options}", SystemClock() if live else clock)
        engines.append(engine)
        return engine

    yield open_it
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(opened: Opener) -> SqliteEngine:
    return opened()
