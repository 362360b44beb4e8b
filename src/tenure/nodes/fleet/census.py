"""Counts the workers of a datacenter and their free slots, from the leader's fleet: for gates, alarms and metrics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tenure.health.signals import RoutingDecision
from tenure.jobs.alarms import Crew
from tenure.nodes.fleet.member import WorkerStanding

HEARD_WITHIN_S = 30.0
"""A worker that was silent for longer does not count (document 001)."""
_TAKES_NONE = (RoutingDecision.DRAIN, RoutingDecision.EVICT)


class Room(NamedTuple):
    workers: int
    """Workers that take work (document 001: "workers available for dispatch"). A full one counts: it takes work as soon as a slot is free."""
    capacity: int
    drained: int = 0
    """Workers that operators drained: they do not count above."""


def room(workers: Iterable[WorkerStanding], drained: Collection[str] = ()) -> Room:
    """Counts the workers that reported lately and take work, and their free slots."""
    present = [one for one in workers if one.heard_s_ago <= HEARD_WITHIN_S]
    taking = [one for one in present if takes(one, drained)]
    return Room(len(taking), sum(one.free for one in taking), sum(one.name in drained for one in present))


def crew(workers: Iterable[WorkerStanding], mailbox: str, drained: Collection[str] = ()) -> Crew:
    """Counts the workers that serve one mailbox."""
    serving = [one for one in workers if one.heard_s_ago <= HEARD_WITHIN_S and mailbox in one.lanes]
    taking = [one for one in serving if takes(one, drained)]
    return Crew(len(serving), len(taking), sum(one.free for one in taking))


def verdicts(workers: Iterable[WorkerStanding], drained: Collection[str] = ()) -> dict[str, int]:
    """Returns the number of workers under each verdict. A worker that an operator drained counts as "drain"."""
    return dict(Counter("drain" if one.name in drained else one.verdict.value for one in workers))


def takes(worker: WorkerStanding, drained: Collection[str]) -> bool:
    return worker.accepting and worker.verdict not in _TAKES_NONE and worker.name not in drained
