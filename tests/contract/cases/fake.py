from __future__ import annotations

from tests.contract.cases.memory import MemoryCase

from tenure.engines import Engine
from tenure.testing import FakeEngine


class FakeCase(MemoryCase):
    """A fake is an implementation that passes the suite, not a mock."""

    name = "fake"

    def open(self) -> Engine:
        self._manual = self._manual or FakeEngine(self.clock)
        return self._manual

    def open_live(self) -> Engine:
        self._live = self._live or FakeEngine()
        return self._live


CASE = FakeCase
