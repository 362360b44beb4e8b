"""The health of a gate, as its peers see it (document 001)."""

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
