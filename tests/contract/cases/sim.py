from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.contract.case import EngineCase

from tenure.engines import Engine
from tenure.sim import World


class SimCase(EngineCase):
    """The memory engine as the nodes of a simulation reach it: each `again` is another node."""

    name = "sim"
    real_time = False  # one thread, virtual time: what waits in real time is tested in tests/sim

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        super().__init__(request, folder)
        self.world = World()
        self._nodes = 0

    def open(self) -> Engine:
        self._nodes += 1
        node = self.world.node(f"n{self._nodes}", _idle)
        self.clock = node.clock
        return node.start().engine

    def open_live(self) -> Engine:
        raise NotImplementedError("a simulation does not wait in real time")

    def pass_time(self, units: float) -> None:
        self.world.run_for(units)

    def close(self) -> None:
        super().close()
        self.world.close()


async def _idle(host: object) -> None:
    await asyncio.Event().wait()


CASE = SimCase
