"""Answers requests about nodes: lists managers and workers with their state, and drains workers.

Managers describe themselves in the engine's store, so that each can list the others. The list is for people: no code decides by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tenure.clock import Clock
from tenure.control.messages.nodes import DrainNode, ListNodes, ManagerNode, NodeList, UndrainNode, WorkerNode
from tenure.control.messages.wire import Handlers, Reply
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine, Store
from tenure.errors import EngineError, EngineUnavailableError
from tenure.jobs.model import DrainRecord
from tenure.jobs.workers import DrainWorker
from tenure.nodes.fleet.member import WorkerStanding

if TYPE_CHECKING:
    from tenure.nodes.manager.manager import Manager


class NodeHandlers:
    """Part of a manager. Only the leader answers: workers report to no other."""

    def __init__(self, manager: Manager, engine: Engine, calls: Calls) -> None:
        self._manager, self._store, self._calls = manager, engine.store(NODES), calls
        self.handlers: Handlers = {
            ListNodes: self._list,
            DrainNode: self._drain,
            UndrainNode: self._undrain,
        }

    async def _drain(self, request: DrainNode) -> Reply:
        return await self._manager.write(DrainWorker(worker=request.node, reason=request.reason, by=request.by))

    async def _undrain(self, request: UndrainNode) -> Reply:
        return await self._manager.write(DrainWorker(worker=request.node, drained=False, by=request.by))

    async def _list(self, request: ListNodes) -> Reply:
        reports, now = self._manager.worker_reports, self._manager.now()
        drained = await self._manager.ledger.read(lambda book: dict(book.state.drained))
        records = await self._manager.ledger.read(
            lambda book: {name: one.since for name, one in book.state.workers.items()}
        )
        running = reports.reported.running() if request.attempts else {}
        here = [
            replace(
                one,
                since=records.get(one.name, 0.0),
                attempts=tuple(running.get(one.name, ())),
                grants=(reports.health_of(one.name),),
            )
            for one in self._manager.workers()
        ]
        workers = with_drained(here, drained)
        return NodeList(managers=await managers(self._store, self._calls, now), workers=workers, now=now)


def worker_node(standing: WorkerStanding) -> WorkerNode:
    return WorkerNode(
        name=standing.name,
        incarnation=standing.incarnation,
        verdict=standing.verdict.value,
        reason=standing.reason,
        health=standing.health_class.value if standing.health_class is not None else "",
        heard_s_ago=standing.heard_s_ago,
        left_s=standing.left_s,
        extensions_left=standing.extensions_left,
        slots=standing.slots,
        free=standing.free,
        running=standing.running,
        lanes=standing.lanes,
        version=standing.version,
        skew_s=standing.skew_s,
        gossip=standing.by_gossip,
    )


def with_drained(workers: list[WorkerNode], drained: dict[str, DrainRecord]) -> tuple[WorkerNode, ...]:
    """Returns the workers, with those that an operator drained shown so. Adds the drained workers that do not report now."""
    shown = [
        replace(one, drained=True, verdict="drain", reason=drained[one.name].reason, since=drained[one.name].at)
        if one.name in drained
        else one
        for one in workers
    ]
    here = {one.name for one in workers}
    for name, record in drained.items():
        if name not in here:
            shown.append(WorkerNode(name=name, verdict="drain", reason=record.reason, drained=True, since=record.at))
    return tuple(shown)


NODES = "nodes"
SAY_EVERY_S = 10.0
FORGET_AFTER_S = 35.0
"""The time to live of an entry: three writes in a row may fail before the manager drops out of the list."""
FIRST_LOOK_S = 0.2
_PREFIX = "manager/"


class ManagerEntry(msgspec.Struct, frozen=True, kw_only=True):
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
                said = msgspec.json.encode(ManagerEntry(node=node, at=self._now()))
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
            said = msgspec.json.decode(data, type=ManagerEntry)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # another program's value, or a damaged one: the other managers are listed all the same
        found.append(msgspec.structs.replace(said.node, heard_s_ago=max(0.0, now - said.at)))
    return tuple(found)
