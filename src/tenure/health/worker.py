"""The health of a worker, as managers see it (document 001)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.clock import Clock
from tenure.health.checks import finite, whole
from tenure.health.signals import HealthConfig, NodeHealthState, ProgressState


@dataclass(frozen=True, slots=True)
class WorkerHealthState(NodeHealthState):
    """Unified health state combining all three signals."""

    worker_id: str

    # Signal 1: Liveness
    last_liveness_response: float  # monotonic seconds of the watcher
    consecutive_liveness_failures: int

    # Signal 2: Readiness
    accepting_work: bool  # reported by worker
    available_capacity: int

    # Signal 3: Progress (where these come from: window.py)
    workflows_assigned: int
    completions_last_interval: int
    expected_completion_rate: float  # completions per assigned workflow and interval

    # Workflows that showed progress in the interval. Counting completions alone, one long workflow looks stuck.
    workflows_advancing: int = 0

    config: HealthConfig = field(default=HealthConfig(), kw_only=True)
    clock: Clock | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_liveness()
        whole("available_capacity", self.available_capacity)
        whole("workflows_assigned", self.workflows_assigned)
        whole("completions_last_interval", self.completions_last_interval)
        whole("workflows_advancing", self.workflows_advancing)
        finite("expected_completion_rate", self.expected_completion_rate)

    @property
    def readiness(self) -> bool:
        """Can the worker accept new work?"""
        return self.accepting_work and self.available_capacity > 0

    @property
    def progress_state(self) -> ProgressState:
        """Is work completing at expected rate, or advancing?"""
        if self.workflows_assigned == 0:
            return ProgressState.IDLE
        # The expected rate says how fast work should end, not whether it may stand still.
        if self.completions_last_interval == 0 and self.workflows_advancing == 0:
            return ProgressState.STUCK
        expected = self.expected_completion_rate
        # A workflow that advances does what is expected of it, however long it takes to complete.
        actual = (self.completions_last_interval + self.workflows_advancing * expected) / self.workflows_assigned
        return self.config.grade(actual, expected)

    def _why_not_ready(self) -> str:
        return "does not accept work" if not self.accepting_work else "has no free slot"

    def _progress_in_words(self) -> str:
        if self.workflows_assigned == 0:
            return "idle"
        expected = self.workflows_assigned * self.expected_completion_rate
        return (
            f"progress {self.progress_state}: of {self.workflows_assigned} workflows {self.workflows_advancing} advance, "
            f"{self.completions_last_interval} completed in the interval ({expected:.3g} expected)"
        )
