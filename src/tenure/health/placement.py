"""The health of a datacenter (document 001, after its AD-16), and the choice of datacenters for a job.

The best n are chosen by class, then by room, then by latency, and with some loyalty to the last choice.

HEALTHY before BUSY before DEGRADED, never UNHEALTHY, never one that operators drained or whose manager accepts no jobs, and never one of which nothing is known. Pure: what is known of each place goes in, the
choice and the reason for each comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tenure.health.node_states import ManagerHealthState
from tenure.health.signals import ProgressState, finite, whole


class DatacenterHealth(StrEnum):
    """How a gate sees a datacenter. Work may go to any but an UNHEALTHY one; a full one is BUSY, not ill."""

    UNHEALTHY = "UNHEALTHY"
    DEGRADED = "DEGRADED"
    BUSY = "BUSY"
    HEALTHY = "HEALTHY"

    @property
    def preference(self) -> int:
        """For placement: HEALTHY > BUSY > DEGRADED > UNHEALTHY."""
        return _PREFERENCE[self]


_PREFERENCE: Final = {health: rank for rank, health in enumerate(DatacenterHealth)}


class DatacenterRule(StrEnum):
    """Which of the document's five rules gave a datacenter its class: for counters, where a sentence with numbers in it would not do."""

    NO_MANAGER_ANSWERS = "no_manager_answers"
    MANAGERS_NOT_READY = "managers_not_ready"
    MANAGER_STUCK = "manager_stuck"
    NO_CAPACITY = "no_capacity"
    READY = "ready"


class DatacenterAssessment(NamedTuple):
    """A datacenter's class, and why: in words, and as the rule that gave it."""

    health: DatacenterHealth
    reason: str
    rule: DatacenterRule = DatacenterRule.READY


def classify_datacenter(
    managers: Sequence[ManagerHealthState], available_capacity: int, *, now: float | None = None
) -> DatacenterAssessment:
    """Classifies a datacenter by the document's five rules, in its order. Without `now`, each manager's clock is asked.

    What a silent manager last said of its readiness is no longer known: it counts as not ready.
    """
    whole("available_capacity", available_capacity)
    total = len(managers)
    alive = [manager for manager in managers if (manager.liveness if now is None else manager.liveness_at(now))]
    if not alive:
        why = "no manager is known" if not total else f"none of {total} managers answers"
        return DatacenterAssessment(DatacenterHealth.UNHEALTHY, why, DatacenterRule.NO_MANAGER_ANSWERS)
    ready = sum(manager.readiness for manager in alive)
    if (total - ready) * 2 > total:
        why = f"{total - ready} of {total} managers are not ready"
        return DatacenterAssessment(DatacenterHealth.DEGRADED, why, DatacenterRule.MANAGERS_NOT_READY)
    stuck = [manager.manager_id for manager in managers if manager.progress_state is ProgressState.STUCK]
    if stuck:
        why = f"manager {stuck[0]} is stuck" if len(stuck) == 1 else f"{len(stuck)} managers are stuck"
        return DatacenterAssessment(DatacenterHealth.DEGRADED, why, DatacenterRule.MANAGER_STUCK)
    if available_capacity == 0:
        return DatacenterAssessment(DatacenterHealth.BUSY, "every slot is taken", DatacenterRule.NO_CAPACITY)
    return DatacenterAssessment(
        DatacenterHealth.HEALTHY, f"{ready} of {total} managers are ready, {available_capacity} slots are free"
    )


class CandidateDatacenter(NamedTuple):
    """A gate's knowledge of one datacenter."""

    name: str
    health: DatacenterHealth | None
    """None: nothing was heard of it yet."""
    capacity: int
    """Free slots, less what was sent there since it said so."""
    latency_s: float
    drained: bool = False
    """Operators drained every worker there: it is well, and nothing would run."""
    closed: str = ""
    """Why its leading manager accepts no new jobs; empty while it does."""


@dataclass(frozen=True, slots=True)
class PlacementConfig:
    """How much better another place must be to be preferred to the last choice."""

    capacity_share: float = 0.25
    latency_share: float = 0.25
    better_after: int = 3  # assessments in a row before a better class is believed; a worse one is at once

    def __post_init__(self) -> None:
        finite("capacity_share", self.capacity_share)
        finite("latency_share", self.latency_share)
        whole("better_after", self.better_after, least=1)


class Choice(NamedTuple):
    """Where to, best first, and why each place was taken or left."""

    chosen: tuple[str, ...]
    reasons: dict[str, str]


def choose(
    places: Iterable[CandidateDatacenter],
    count: int = 1,
    *,
    previous: Sequence[str] = (),
    config: PlacementConfig | None = None,
) -> Choice:
    """Returns the best `count` of them; fewer where there are fewer that may be used."""
    config, known = config or PlacementConfig(), list(places)
    whole("count", count, least=1)
    able = [
        place
        for place in known
        if place.health not in (None, DatacenterHealth.UNHEALTHY) and not place.drained and not place.closed
    ]
    ranked = sorted(able, key=lambda place: _key(place, place.name in previous, config))
    chosen = tuple(place.name for place in ranked[:count])
    return Choice(chosen, {place.name: _reason(place, place.name in chosen) for place in known})


def _key(place: CandidateDatacenter, loyal: bool, config: PlacementConfig) -> tuple[int, float, float, str]:
    """Loyalty is a bonus on room and latency, never on the class."""
    assert place.health is not None
    capacity = place.capacity * (1 + config.capacity_share) if loyal else place.capacity
    latency = place.latency_s * (1 - config.latency_share) if loyal else place.latency_s
    return -place.health.preference, -capacity, latency, place.name


def _reason(place: CandidateDatacenter, chosen: bool) -> str:
    if place.health is None:
        return "nothing is known of it yet"
    if place.health is DatacenterHealth.UNHEALTHY:
        return "it is UNHEALTHY"
    if place.drained:
        return "operators drained every worker there"
    if place.closed:
        return f"it accepts no new jobs: {place.closed}"
    verb = "taken" if chosen else "left"
    return f"{verb}: {place.health}, room for {place.capacity}, {place.latency_s * 1000:.0f} ms away"


class SteadyHealth:
    """A class that gets worse at once and better only when several assessments in a row say so: a place that flaps stays where it is."""

    def __init__(self, config: PlacementConfig | None = None) -> None:
        self._config = config or PlacementConfig()
        self.health: DatacenterHealth | None = None
        self._better = 0

    def observe(self, health: DatacenterHealth) -> DatacenterHealth:
        """Returns the class that counts after this assessment."""
        if self.health is None or health.preference <= self.health.preference:
            self.health, self._better = health, 0
            return health
        self._better += 1
        if self._better >= self._config.better_after:
            self.health, self._better = health, 0
        return self.health
