"""Who could take work, counted from what the leader knows of its workers."""

from __future__ import annotations

from typing import Any

from tenure.health.signals import HealthClass, RoutingDecision
from tenure.jobs.alarms import Crew
from tenure.nodes.fleet.member import HEARD_WITHIN_S, Room, WorkerStanding, crew, room, verdicts


def worker(name: str, **known: Any) -> WorkerStanding:
    fields: dict[str, Any] = {
        "incarnation": name,
        "health_class": HealthClass.HEALTHY,
        "verdict": RoutingDecision.ROUTE,
        "reason": "",
        "heard_s_ago": 1.0,
        "left_s": 30.0,
        "slots": 4,
        "free": 3,
        "running": 1,
        "extensions_left": 5,
        "by_gossip": "",
        "version": "",
        "lanes": ("default.p0",),
        "skew_s": 0.0,
        "accepting": True,
        **known,
    }
    return WorkerStanding(name=name, **fields)


FLEET = [
    worker("able"),
    worker("drains", accepting=False, free=0),
    worker("judged", verdict=RoutingDecision.DRAIN),
    worker("by-hand"),
    worker("elsewhere", lanes=("video.p0",)),
    worker("silent", heard_s_ago=HEARD_WITHIN_S + 1),
]


def test_only_workers_that_take_work_count_and_their_slots() -> None:
    assert room(FLEET, drained={"by-hand"}) == Room(workers=2, capacity=6, drained=1)
    # Every worker drained: nobody is there to do anything, and it is known why.
    assert room(FLEET[:1], drained={"able"}) == Room(workers=0, capacity=0, drained=1)
    # One that has all its slots full takes work as soon as it can.
    assert room([worker("full", free=0)]) == Room(workers=1, capacity=0)


def test_a_mailbox_has_the_crew_that_serves_it() -> None:
    assert crew(FLEET, "default.p0", drained={"by-hand"}) == Crew(workers=4, accepting=1, free=3)
    assert crew(FLEET, "nobody.p0") == Crew()


def test_an_operators_drain_counts_as_a_verdict() -> None:
    assert verdicts(FLEET, drained={"by-hand"}) == {"route": 4, "drain": 2}
