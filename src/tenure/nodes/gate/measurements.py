"""Measures a gate: its load, the jobs that it passes on, and the workflows that its datacenters report.

The load is the duration of its answers, the lateness of its event loop, and the memory of its machine. It is not the share of a core that the gate uses: a busy
core is no fault, and latency shows when it is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from tenure.clock import Clock
from tenure.health.overload import (
    HybridOverloadDetector,
    OverloadAssessment,
    OverloadConfig,
    OverloadState,
    RequestKind,
    retry_after_s,
    what_passes,
    why_shed,
)
from tenure.health.window import EventWindow, FlowWindow
from tenure.jobs.messages import JobProgressReport
from tenure.jobs.model import GateJobTrackingInfo
from tenure.nodes.job_views import WorkflowCounts

ASSESS_EVERY_S = 1.0


def memory_percent() -> float:
    """Returns the share of the machine's memory that is in use, from `/proc/meminfo`; 0 where that cannot be read."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = {line.partition(":")[0]: float(line.split()[1]) for line in lines if len(line.split()) > 1}
        return 100.0 * (1.0 - fields["MemAvailable"] / fields["MemTotal"])
    except (OSError, KeyError, ValueError, ZeroDivisionError):
        return 0.0


class Shed(NamedTuple):
    """The refusal of a request by an overloaded gate: its reason, a remedy, and the seconds that the caller should stay away."""

    fact: str
    remedy: str
    retry_after_s: float


class GateLoad:
    """Feeds a `HybridOverloadDetector`, and sheds requests by its state."""

    def __init__(
        self,
        clock: Clock,
        *,
        config: OverloadConfig | None = None,
        memory: Callable[[], float] = memory_percent,
        on_shed: Callable[[RequestKind, int], None] = lambda asked, priority: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`on_shed` is called with the kind and the priority of each request that is refused."""
        self._clock, self._memory, self._on_shed, self._say = clock, memory, on_shed, say
        self._detector = HybridOverloadDetector(config)
        self.assessment = OverloadAssessment(OverloadState.HEALTHY, "not assessed yet")
        self.turned_away = 0

    @property
    def state(self) -> OverloadState:
        return self.assessment.state

    def took(self, seconds: float) -> None:
        """Records the duration of an answer."""
        self._detector.record_latency(max(0.0, seconds) * 1000)

    def why_not(self, asked: RequestKind, priority: int = 0) -> Shed | None:
        """Returns the refusal of a request; None when the request may pass."""
        why = why_shed(self.state, asked, priority)
        if not why:
            return None
        self.turned_away += 1
        self._on_shed(asked, priority)
        rest, other = retry_after_s(self.state), what_passes(self.state, asked)
        remedy = f"Ask again after {rest:g} s" + (f", {other}" if other else "")
        return Shed(f"{why} ({self.assessment.reason})", remedy, rest)

    def assess(self) -> None:
        before = self.state
        self.assessment = self._detector.assess(memory_percent=self._memory())
        if self.state is not before:
            self._say(f"is {self.state} (before: {before}): {self.assessment.reason}")

    async def run(self) -> None:
        """Assesses the load once a second. A wake-up that comes late counts as a latency, too."""
        while True:
            due = self._clock.monotonic() + ASSESS_EVERY_S
            await self._clock.async_sleep(ASSESS_EVERY_S)
            late = self._clock.monotonic() - due
            if late > 0.05:
                self.took(late)
            self.assess()


class Forwarded(NamedTuple):
    """The counts of the last interval that a `GateHealthState` holds."""

    forwarded: int
    aggregated: int
    expected: float
    waiting: int


class Forwarding:
    """Measures each datacenter by itself, and counts only those that answer: one that is out of reach is no fault of the gate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._flows: dict[str, FlowWindow] = {}
        self._aggregated = EventWindow(history=0)

    def accepted(self, datacenters: Iterable[str]) -> None:
        for name in datacenters:
            self._flows.setdefault(name, FlowWindow()).arrive(self._clock.monotonic())

    def passed_on(self, datacenter: str, count: int) -> None:
        if count:
            self._flows.setdefault(datacenter, FlowWindow()).leave(self._clock.monotonic(), count)

    def aggregated(self, count: int) -> None:
        self._aggregated.record(self._clock.monotonic(), count)

    def measure(self, connected: Collection[str]) -> Forwarded:
        now = self._clock.monotonic()
        flows = [flow.measure(now) for name, flow in self._flows.items() if name in connected]
        return Forwarded(
            sum(flow.left_last_interval for flow in flows),
            int(self._aggregated.last_interval(now)),
            sum(flow.expected for flow in flows),
            sum(flow.overdue for flow in flows),
        )


class ReportedCounts:
    """The counts of workflows, by job and datacenter."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], WorkflowCounts] = {}

    def heard(self, report: JobProgressReport) -> None:
        self._newest[report.job_id, report.datacenter] = WorkflowCounts(
            report.workflows_total,
            report.workflows_completed,
            report.workflows_failed,
            report.workflows_running,
            report.attempts,
        )

    def of(self, info: GateJobTrackingInfo) -> WorkflowCounts:
        """Returns the sum of a job's counts over its datacenters."""
        places = [(info.job_id, name) for name in info.target_datacenters]
        known = [self._newest[place] for place in places if place in self._newest]
        return WorkflowCounts(*(sum(column) for column in zip(*known, strict=True))) if known else WorkflowCounts()

    def forget(self, job_id: str, datacenters: Iterable[str]) -> None:
        for name in datacenters:
            self._newest.pop((job_id, name), None)
