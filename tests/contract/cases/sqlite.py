from __future__ import annotations

from importlib.util import find_spec

from tests.contract.case import EngineCase

from tenure.clock import SystemClock
from tenure.engines import Engine


class SqliteCase(EngineCase):
    """One file on the manual clock, and another on the system's, which other processes may open."""

    name = "sqlite"
    processes = True

    def open(self) -> Engine:
        return Engine.open(f"sqlite:///{self.folder / 'manual.db'}", clock=self.clock)

    def open_live(self) -> Engine:
        return Engine.open(self.live_url, clock=SystemClock())

    @property
    def live_url(self) -> str:
        return f"sqlite:///{self.folder / 'live.db'}"


CASES = [SqliteCase] if find_spec("tenure.engines.sqlite") else []
