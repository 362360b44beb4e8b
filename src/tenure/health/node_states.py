"""The health of a worker as managers see it, of a manager as gates see it, and of a gate as its peers see it (document 001).

Each is a snapshot of the three signals of one node. `signals.py` has the matrix that judges them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tenure.clock import Clock
from tenure.errors import LimitError
from tenure.health.checks import finite, whole
from tenure.health.overload import OverloadState
from tenure.health.signals import HealthConfig, NodeHealthState, ProgressState

NOT_READY: Final = frozenset({OverloadState.STRESSED, OverloadState.OVERLOADED})


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


@dataclass(frozen=True, slots=True)
class GateHealthState(NodeHealthState):
    """Three-signal health state for gates (monitored by peer gates)."""

    gate_id: str

    # Signal 1: Liveness
    last_liveness_response: float  # monotonic seconds of the watcher
    consecutive_liveness_failures: int

    # Signal 2: Readiness
    has_dc_connectivity: bool  # Can reach at least one DC
    connected_dc_count: int
    overload_state: OverloadState | str  # From HybridOverloadDetector

    # Signal 3: Progress (where these come from: window.py)
    jobs_forwarded_last_interval: int
    stats_aggregated_last_interval: int
    expected_forward_rate: float

    # Jobs that could be forwarded and are not: without it a gate that forwards nothing always looks idle.
    jobs_waiting: int = 0

    config: HealthConfig = field(default=HealthConfig(), kw_only=True)
    clock: Clock | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_liveness()
        whole("connected_dc_count", self.connected_dc_count)
        whole("jobs_forwarded_last_interval", self.jobs_forwarded_last_interval)
        whole("stats_aggregated_last_interval", self.stats_aggregated_last_interval)
        whole("jobs_waiting", self.jobs_waiting)
        finite("expected_forward_rate", self.expected_forward_rate)
        try:
            object.__setattr__(self, "overload_state", OverloadState(self.overload_state))
        except ValueError:
            raise LimitError(
                "overload_state", repr(self.overload_state), "one of " + ", ".join(OverloadState)
            ) from None

    @property
    def readiness(self) -> bool:
        """Can the gate handle jobs?"""
        return self.has_dc_connectivity and self.connected_dc_count > 0 and self.overload_state not in NOT_READY

    @property
    def progress_state(self) -> ProgressState:
        """Is work flowing to the datacenters?"""
        if self.jobs_forwarded_last_interval == 0:
            return ProgressState.STUCK if self.jobs_waiting > 0 else ProgressState.IDLE
        return self.config.grade(self.jobs_forwarded_last_interval, self.expected_forward_rate)

    def should_participate_in_election(self) -> bool:
        """Gates with poor health shouldn't become leaders."""
        return self.should_participate_in_election_at(self._now())

    def should_participate_in_election_at(self, now: float) -> bool:
        """As above, told the time."""
        return (
            self.liveness_at(now)
            and self.readiness
            and self.progress_state in (ProgressState.IDLE, ProgressState.NORMAL)
        )

    def _why_not_ready(self) -> str:
        if not self.has_dc_connectivity or self.connected_dc_count == 0:
            return "reaches no datacenter"
        return f"is {self.overload_state}"

    def _progress_in_words(self) -> str:
        if self.progress_state is ProgressState.IDLE:
            return "idle"
        return (
            f"progress {self.progress_state}: {self.jobs_forwarded_last_interval} jobs forwarded in the interval "
            f"({self.expected_forward_rate:.3g} expected), {self.jobs_waiting} waiting"
        )
