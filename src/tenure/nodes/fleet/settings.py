"""How a leader judges its workers: one span, from which the documents' numbers follow in their proportions."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.errors import LimitError
from tenure.health.brake import BrakeConfig
from tenure.health.deadlines import ExtensionConfig
from tenure.health.signals import HealthConfig

HEALTHCHECK_S = 30.0


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The documents' values are those of 30 s."""

    healthcheck_s: float = HEALTHCHECK_S
    """Healthcheck deadline, liveness timeout and progress interval."""
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
        """Between two looks at who has to go."""
        return min(1.0, self.healthcheck_s / 10)

    @property
    def silent_s(self) -> float:
        """Without a report for this long, gossip is listened to."""
        return self.healthcheck_s / 3

    @property
    def restart_s(self) -> float:
        """A worker that was silent for this long gives way to another start under its name."""
        return self.healthcheck_s / 3

    @property
    def extensions(self) -> ExtensionConfig:
        return ExtensionConfig(base_deadline=self.healthcheck_s, min_grant=min(1.0, self.healthcheck_s / 30))

    @property
    def health(self) -> HealthConfig:
        return HealthConfig(liveness_timeout_s=self.healthcheck_s)
