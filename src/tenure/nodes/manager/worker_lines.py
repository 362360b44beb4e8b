"""The lines of workers in the list of nodes."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.control.messages.nodes import WorkerNode
from tenure.jobs.state_records import DrainRecord
from tenure.nodes.fleet.member import WorkerStanding


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
