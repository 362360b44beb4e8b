"""The health of a manager, as gates see it (document 001)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenure.clock import Clock
from tenure.health.checks import finite, whole
from tenure.health.signals import HealthConfig, NodeHealthState, ProgressState


def has_quorum(*, engine_answers: bool, term_is_current: bool) -> bool:
    """Can a manager's datacenter make authoritative decisions?

    The engine replicates, not the managers: what the document calls a quorum is an engine that answers and a leader whose
    term is current (the manager's own, or the one that this standby follows).
    """
    return engine_answers and term_is_current


@dataclass(frozen=True, slots=True)
class ManagerHealthState(NodeHealthState):
    """Three-signal health state for managers (monitored by gates)."""

    manager_id: str
    datacenter_id: str

    # Signal 1: Liveness
    last_liveness_response: float  # monotonic seconds of the watcher
    consecutive_liveness_failures: int

    # Signal 2: Readiness
    has_quorum: bool  # Can make authoritative decisions
    accepting_jobs: bool  # Self-reported
    active_worker_count: int  # Workers that are alive, busy ones too: a full datacenter is ready, and BUSY

    # Signal 3: Progress (where these come from: window.py)
    jobs_accepted_last_interval: int
    workflows_dispatched_last_interval: int
    expected_throughput: float  # what could be dispatched: work that was there, bounded by room at the workers

    # Work that waits for dispatch. A manager that takes nothing new and leaves a backlog lying is not idle.
    workflows_waiting: int = 0

    config: HealthConfig = field(default=HealthConfig(), kw_only=True)
    clock: Clock | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_liveness()
        whole("active_worker_count", self.active_worker_count)
        whole("jobs_accepted_last_interval", self.jobs_accepted_last_interval)
        whole("workflows_dispatched_last_interval", self.workflows_dispatched_last_interval)
        whole("workflows_waiting", self.workflows_waiting)
        finite("expected_throughput", self.expected_throughput)

    @property
    def readiness(self) -> bool:
        """Can the manager accept jobs?"""
        return self.has_quorum and self.accepting_jobs and self.active_worker_count > 0

    @property
    def progress_state(self) -> ProgressState:
        """Is work flowing to the workers?"""
        if self.jobs_accepted_last_interval == 0 and self.workflows_waiting == 0:
            return ProgressState.IDLE
        return self.config.grade(self.workflows_dispatched_last_interval, self.expected_throughput)

    def _why_not_ready(self) -> str:
        if not self.has_quorum:
            return "has no quorum (its engine does not answer, or no term is current)"
        return "does not accept jobs" if not self.accepting_jobs else "has no workers"

    def _progress_in_words(self) -> str:
        if self.progress_state is ProgressState.IDLE:
            return "idle"
        return (
            f"progress {self.progress_state}: {self.jobs_accepted_last_interval} jobs accepted, "
            f"{self.workflows_dispatched_last_interval} workflows dispatched in the interval "
            f"({self.expected_throughput:.3g} expected), {self.workflows_waiting} waiting"
        )
