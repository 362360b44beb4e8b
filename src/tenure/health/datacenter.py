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


class DatacenterAssessment(NamedTuple):
    """A datacenter's class, and why."""

    health: DatacenterHealth
    reason: str


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
        return DatacenterAssessment(DatacenterHealth.UNHEALTHY, why)
    ready = sum(manager.readiness for manager in alive)
    if (total - ready) * 2 > total:
        return DatacenterAssessment(DatacenterHealth.DEGRADED, f"{total - ready} of {total} managers are not ready")
    stuck = [manager.manager_id for manager in managers if manager.progress_state is ProgressState.STUCK]
    if stuck:
        why = f"manager {stuck[0]} is stuck" if len(stuck) == 1 else f"{len(stuck)} managers are stuck"
        return DatacenterAssessment(DatacenterHealth.DEGRADED, why)
    if available_capacity == 0:
        return DatacenterAssessment(DatacenterHealth.BUSY, "every slot is taken")
    return DatacenterAssessment(
        DatacenterHealth.HEALTHY, f"{ready} of {total} managers are ready, {available_capacity} slots are free"
    )
