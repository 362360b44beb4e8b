"""Managers describe themselves in the engine's store, so that each can list the others. The list is for people: no code decides by it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from tenure.clock import Clock
from tenure.control.messages.nodes import ManagerNode
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Store
from tenure.errors import EngineError, EngineUnavailableError

NODES = "nodes"
SAY_EVERY_S = 10.0
FORGET_AFTER_S = 35.0
"""The time to live of an entry: three writes in a row may fail before the manager drops out of the list."""
FIRST_LOOK_S = 0.2
_PREFIX = "manager/"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's description of itself, and the engine's time at which it wrote it."""

    node: ManagerNode
    at: float


class Presence:
    """Writes the entry of one manager again and again while it runs."""

    def __init__(
        self, engine: Engine, calls: Calls, clock: Clock, *, node: Callable[[], ManagerNode], now: Callable[[], float]
    ) -> None:
        self._store, self._calls, self._clock, self._node, self._now = engine.store(NODES), calls, clock, node, now

    async def run(self) -> None:
        """Writes the entry until cancelled, then deletes it. Raises while the engine is out of reach."""
        key = ""
        try:
            while True:
                try:
                    node = self._node()
                except EngineUnavailableError:
                    # The leadership has not read the engine's time yet: it does so within its first campaign.
                    await self._clock.async_sleep(FIRST_LOOK_S)
                    continue
                key = f"{_PREFIX}{node.name}"[:500]
                said = msgspec.json.encode(Said(node=node, at=self._now()))
                await self._calls.run(self._store.put, key, said, ttl=FORGET_AFTER_S)
                await self._clock.async_sleep(SAY_EVERY_S)
        finally:
            if key:
                with contextlib.suppress(EngineError):
                    await self._calls.run(self._store.delete, key)


async def managers(store: Store, calls: Calls, now: float) -> tuple[ManagerNode, ...]:
    """Returns the managers whose entries have not expired."""
    found = []
    for key in await calls.run(store.list, _PREFIX):
        data = await calls.run(store.get, key)
        if data is None:
            continue
        try:
            said = msgspec.json.decode(data, type=Said)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # another program's value, or a damaged one: the other managers are listed all the same
        found.append(msgspec.structs.replace(said.node, heard_s_ago=max(0.0, now - said.at)))
    return tuple(found)
