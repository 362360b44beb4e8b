"""Managers make themselves known in the engine's store, so that each can name the others. For people: nothing is decided by it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Store
from tenure.errors import EngineError
from tenure.nodes.messages.node import ManagerNode

NODES = "nodes"
SAY_EVERY_S = 10.0
FORGET_AFTER_S = 35.0
_PREFIX = "manager/"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager wrote of itself, and when by the engine's time."""

    node: ManagerNode
    at: float


class Presence:
    """One manager's word, said again and again while it runs."""

    def __init__(
        self, engine: Engine, calls: Calls, clock: Clock, *, node: Callable[[], ManagerNode], now: Callable[[], float]
    ) -> None:
        self._store, self._calls, self._clock, self._node, self._now = engine.store(NODES), calls, clock, node, now

    async def run(self) -> None:
        """Until cancelled; then it takes its word back. Raises while the engine is out of reach, or its time is not known yet."""
        key = ""
        try:
            while True:
                node = self._node()
                key = f"{_PREFIX}{node.name}"[:500]
                said = msgspec.json.encode(Said(node=node, at=self._now()))
                await self._calls.run(self._store.put, key, said, ttl=FORGET_AFTER_S)
                await self._clock.async_sleep(SAY_EVERY_S)
        finally:
            if key:
                with contextlib.suppress(EngineError):
                    await self._calls.run(self._store.delete, key)


async def managers(store: Store, calls: Calls, now: float) -> tuple[ManagerNode, ...]:
    """Those that said something of late."""
    found = []
    for key in await calls.run(store.list, _PREFIX):
        data = await calls.run(store.get, key)
        if data is None:
            continue
        said = msgspec.json.decode(data, type=Said)
        found.append(msgspec.structs.replace(said.node, heard_s_ago=max(0.0, now - said.at)))
    return tuple(found)
