"""What the suite needs to know of an engine: how to open it, open it again, and let time pass on it.

A new engine adds a file to `cases/` with a subclass of `EngineCase` named `CASE`, or several in `CASES`, and nothing else.

Tests speak of time in units: `case.s(10)` is what to ask the engine for, `case.pass_time(10)` lets that long pass. On a
manual clock a unit is a second and costs nothing; on a server it is really waited for, so it is short there.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from tests.patience import PATIENCE_S

from tenure.clock import Clock, ManualClock, SystemClock
from tenure.engines import Engine

ResultT = TypeVar("ResultT")


class EngineCase(ABC):
    """One engine, with fresh data for one test."""

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    """Time is passed by a manual clock: moments can be hit exactly."""
    processes: ClassVar[bool] = False
    """Other processes that open `live_url` share its data."""
    real_time: ClassVar[bool] = True
    """It can be used by several threads that wait in real time: tests that take `live` need that."""
    unit_s: ClassVar[float] = 1.0
    """How many seconds a unit of time is."""
    slack_s: ClassVar[float] = 0.0
    """Waited for on top, where time is real."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self.request, self.folder = request, folder
        self.clock: Clock = ManualClock() if self.exact else SystemClock()
        self._opened: list[Engine] = []
        self._engine: Engine | None = None

    @abstractmethod
    def open(self) -> Engine:
        """The same data each time, on `self.clock`."""

    @abstractmethod
    def open_live(self) -> Engine:
        """The same data each time, on the system's clock; apart from what `open` gives where that uses a manual one."""

    @property
    def live_url(self) -> str:
        """What another process opens to share the data of `open_live`."""
        raise NotImplementedError(f"{self.name} is not shared between processes")

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = self.again()
        return self._engine

    def again(self) -> Engine:
        """Another engine object on the same data, as a second process would have it."""
        return self._keep(self.open())

    def live(self) -> Engine:
        return self._keep(self.open_live())

    def _keep(self, engine: Engine) -> Engine:
        self._opened.append(engine)
        return engine

    def close(self) -> None:
        for engine in self._opened:
            engine.close()

    def s(self, units: float) -> float:
        return units * self.unit_s

    def pass_time(self, units: float) -> None:
        if isinstance(self.clock, ManualClock):
            self.clock.advance(units)
        else:
            time.sleep(units * self.unit_s + self.slack_s)


class ServerCase(EngineCase):
    """An engine on a real server: time is waited for, and any process may open it."""

    exact = False
    processes = True
    unit_s = 0.15
    """A tenth was too short on a busy machine for what must still be held after half of its lease."""
    slack_s = 0.1

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        super().__init__(request, folder)
        # A test holds leases of two or three units while it makes a few calls. Where each call takes long, so does a unit.
        self.unit_s = max(self.unit_s, min(1.5, 6 * self._round_trip_s()))  # type: ignore[misc]

    def _round_trip_s(self) -> float:
        """Returns how long the slowest of a few calls takes now: milliseconds on a quiet machine."""
        slowest = 0.0
        for _ in range(4):
            begun = time.monotonic()
            self.engine.store("round-trip").get("nothing")
            slowest = max(slowest, time.monotonic() - begun)
        return slowest

    def open_live(self) -> Engine:
        return self.open()


class Background(Generic[ResultT]):
    """A call in another thread, whose result or error can be asked for."""

    def __init__(self, call: Callable[[], ResultT]) -> None:
        self._call = call
        self._result: ResultT | None = None
        self._error: BaseException | None = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        self.ended_at = time.monotonic()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self, within: float = PATIENCE_S) -> Any:
        self._thread.join(within)
        assert not self._thread.is_alive(), f"still running after {within} s"
        if self._error is not None:
            raise self._error
        return self._result
