"""Answers requests about nodes: lists managers and workers with their state, and drains workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tenure.control.messages.nodes import DrainNode, ListNodes, NodeList, UndrainNode, WorkerNode
from tenure.control.messages.wire import Handlers, Reply
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.jobs.model import DrainRecord
from tenure.jobs.workers import DrainWorker
from tenure.nodes.fleet.member import WorkerStanding
from tenure.nodes.manager.presence import NODES, managers

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
