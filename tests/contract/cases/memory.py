from __future__ import annotations

from tests.contract.case import EngineCase

from tenure.engines import Engine, MemoryEngine


class MemoryCase(EngineCase):
    """The data is in the engine object, so `again` is the same one."""

    name = "memory"
    _manual: Engine | None = None
    _live: Engine | None = None

    def open(self) -> Engine:
        self._manual = self._manual or MemoryEngine(self.clock)
        return self._manual

    def open_live(self) -> Engine:
        self._live = self._live or MemoryEngine()
        return self._live


CASE = MemoryCase
