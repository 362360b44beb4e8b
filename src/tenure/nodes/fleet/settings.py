"""The times by which a leader judges its workers: one setting, from which all others follow in the proportions of the documents."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.errors import LimitError
from tenure.health.brake import BrakeConfig
from tenure.health.deadlines import ExtensionConfig
from tenure.health.signals import HealthConfig

HEALTHCHECK_S = 30.0


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The settings of a fleet. With `healthcheck_s` of 30 s, all times are those of the documents."""

    healthcheck_s: float = HEALTHCHECK_S
    """The healthcheck deadline, the liveness timeout and the progress interval, in seconds."""
    forget_s: float = 600.0
    """An evicted worker that has not come back after this long is forgotten."""
    brake: BrakeConfig = field(default_factory=BrakeConfig)

    def __post_init__(self) -> None:
        if not 0.5 <= self.healthcheck_s <= 3_600:
            raise LimitError("healthcheck_s", self.healthcheck_s, "between 0.5 and 3,600 seconds")
        if not 0 < self.forget_s < float("inf"):
            raise LimitError("forget_s", self.forget_s, "above 0 seconds")

    @property
    def interval_s(self) -> float:
        return self.healthcheck_s

    @property
    def sweep_s(self) -> float:
        """The seconds between two sweeps, which evict and judge workers."""
        return min(1.0, self.healthcheck_s / 10)

    @property
    def silent_s(self) -> float:
        """After this many seconds without a report, the leader also uses what gossip says of the worker."""
        return self.healthcheck_s / 3

    @property
    def restart_s(self) -> float:
        """After this many seconds of silence, a worker gives way to another start under its name. Before, the two may be rivals."""
        return self.healthcheck_s / 3

    @property
    def extensions(self) -> ExtensionConfig:
        return ExtensionConfig(base_deadline=self.healthcheck_s, min_grant=min(1.0, self.healthcheck_s / 30))

    @property
    def health(self) -> HealthConfig:
        return HealthConfig(liveness_timeout_s=self.healthcheck_s)
