"""The health of a whole datacenter, from that of its managers (document 001, after its AD-16)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tenure.health.checks import whole
from tenure.health.manager import ManagerHealthState
from tenure.health.signals import ProgressState


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
    """The document's five rules, in its order. Without `now`, each manager's clock is asked.

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
