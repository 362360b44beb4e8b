"""Documents 000 and 001 as they are written, for the bench and for tests that lay ours beside them.

Transcribed, not improved: the clock is a parameter of the module (`clock`), nothing else was changed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from tenure.clock import Clock, SystemClock

clock: Clock = SystemClock()


@dataclass
class ExtensionTracker:
    worker_id: str
    base_deadline: float = 30.0
    min_grant: float = 1.0
    max_extensions: int = 5

    extension_count: int = 0
    last_progress: float = 0.0
    total_extended: float = 0.0

    def request_extension(self, reason: str, current_progress: float) -> tuple[bool, float]:
        if self.extension_count >= self.max_extensions:
            return False, 0.0
        if current_progress <= self.last_progress and self.extension_count > 0:
            return False, 0.0
        grant = max(self.min_grant, self.base_deadline / (2**self.extension_count))
        self.extension_count += 1
        self.last_progress = current_progress
        self.total_extended += grant
        return True, grant

    def reset(self) -> None:
        self.extension_count = 0
        self.last_progress = 0.0
        self.total_extended = 0.0


def _grade(actual_rate: float, expected: float) -> str:
    """The chain of comparisons that the document repeats in each of its three states."""
    if actual_rate >= expected * 0.8:
        return "normal"
    if actual_rate >= expected * 0.3:
        return "slow"
    if actual_rate > 0:
        return "degraded"
    return "stuck"


def _alive(state: WorkerHealthState | ManagerHealthState | GateHealthState) -> bool:
    time_since_response = clock.monotonic() - state.last_liveness_response
    return time_since_response < 30.0 and state.consecutive_liveness_failures < 3


@dataclass
class WorkerHealthState:
    worker_id: str
    last_liveness_response: float
    consecutive_liveness_failures: int
    accepting_work: bool
    available_capacity: int
    workflows_assigned: int
    completions_last_interval: int
    expected_completion_rate: float

    @property
    def liveness(self) -> bool:
        return _alive(self)

    @property
    def readiness(self) -> bool:
        return self.accepting_work and self.available_capacity > 0

    @property
    def progress_state(self) -> str:
        if self.workflows_assigned == 0:
            return "idle"
        actual_rate = self.completions_last_interval / max(self.workflows_assigned, 1)
        return _grade(actual_rate, self.expected_completion_rate)

    def get_routing_decision(self) -> str:
        if not self.liveness:
            return "evict"
        progress = self.progress_state
        if progress == "stuck" and self.workflows_assigned > 0:
            return "evict"
        if progress in ("slow", "degraded"):
            return "investigate"
        if not self.readiness:
            return "drain"
        return "route"


@dataclass
class ManagerHealthState:
    manager_id: str
    datacenter_id: str
    last_liveness_response: float
    consecutive_liveness_failures: int
    has_quorum: bool
    accepting_jobs: bool
    active_worker_count: int
    jobs_accepted_last_interval: int
    workflows_dispatched_last_interval: int
    expected_throughput: float

    @property
    def liveness(self) -> bool:
        return _alive(self)

    @property
    def readiness(self) -> bool:
        return self.has_quorum and self.accepting_jobs and self.active_worker_count > 0

    @property
    def progress_state(self) -> str:
        if self.jobs_accepted_last_interval == 0:
            return "idle"
        return _grade(self.workflows_dispatched_last_interval, self.expected_throughput)

    def get_routing_decision(self) -> str:
        if not self.liveness:
            return "evict"
        progress = self.progress_state
        if progress == "stuck" and self.jobs_accepted_last_interval > 0:
            return "evict"
        if progress in ("slow", "degraded"):
            return "investigate"
        if not self.readiness:
            return "drain"
        return "route"


@dataclass
class GateHealthState:
    gate_id: str
    last_liveness_response: float
    consecutive_liveness_failures: int
    has_dc_connectivity: bool
    connected_dc_count: int
    overload_state: str
    jobs_forwarded_last_interval: int
    stats_aggregated_last_interval: int
    expected_forward_rate: float

    @property
    def liveness(self) -> bool:
        return _alive(self)

    @property
    def readiness(self) -> bool:
        return (
            self.has_dc_connectivity
            and self.connected_dc_count > 0
            and self.overload_state not in ("stressed", "overloaded")
        )

    @property
    def progress_state(self) -> str:
        if self.jobs_forwarded_last_interval == 0:
            return "idle"
        return _grade(self.jobs_forwarded_last_interval, self.expected_forward_rate)

    def get_routing_decision(self) -> str:
        if not self.liveness:
            return "evict"
        progress = self.progress_state
        if progress == "stuck" and self.jobs_forwarded_last_interval > 0:
            return "evict"
        if progress in ("slow", "degraded"):
            return "investigate"
        if not self.readiness:
            return "drain"
        return "route"

    def should_participate_in_election(self) -> bool:
        return self.liveness and self.readiness and self.progress_state in ("idle", "normal")


T = TypeVar("T", WorkerHealthState, ManagerHealthState, GateHealthState)


class NodeHealthTracker(Generic[T]):
    def __init__(self, node_type: str) -> None:
        self._node_type = node_type
        self._states: dict[str, T] = {}
        self._history: dict[str, deque[str]] = {}

    def update_state(self, node_id: str, state: T) -> None:
        self._states[node_id] = state

    def get_routing_decision(self, node_id: str) -> str:
        if node_id not in self._states:
            return "unknown"
        return self._states[node_id].get_routing_decision()

    def get_healthy_nodes(self) -> list[str]:
        return [node_id for node_id, state in self._states.items() if state.liveness and state.readiness]

    def should_evict(self, node_id: str) -> tuple[bool, str]:
        if node_id not in self._states:
            return False, "unknown node"
        decision = self._states[node_id].get_routing_decision()
        if decision != "evict":
            return False, "healthy"
        total = len(self._states)
        failing = sum(1 for s in self._states.values() if s.get_routing_decision() == "evict")
        if failing > total * 0.5:
            return False, "systemic failure detected, holding eviction"
        return True, "eviction criteria met"
