"""One worker as its leader knows it (its newest report, and the verdict on it), and counts over many of them. Pure: callers pass the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.health.node_states import WorkerHealthState
from tenure.health.piggyback import HealthPiggyback
from tenure.health.signals import HealthClass, HealthConfig, RoutingDecision
from tenure.health.window import CompletionRate, ProgressWindow
from tenure.jobs.alarms import Crew


class Told(NamedTuple):
    """The leader's answer to one worker about itself."""

    verdict: RoutingDecision
    reason: str
    left_s: float = 0.0
    peers: int = 0


class WorkerStanding(NamedTuple):
    """The state of one worker, for people and metrics."""

    name: str
    incarnation: str
    health_class: HealthClass | None
    verdict: RoutingDecision
    reason: str
    heard_s_ago: float
    left_s: float
    slots: int
    free: int
    running: int
    extensions_left: int
    by_gossip: str
    """`alive`, `dead`, or empty where gossip does not know the worker."""
    version: str
    lanes: tuple[str, ...]
    skew_s: float
    """The seconds that its wall clock is ahead of the engine's. It is shown to people; no deadline uses it."""
    accepting: bool
    """True when the worker itself says that it accepts work."""


class PoolView(Protocol):
    """The questions that a leader asks its gossip pool. The pool answers at once, by what it believes now, and decides nothing: losing it costs
    routing quality, never data."""

    def alive(self, name: str) -> bool | None:
        """Returns True when the pool believes that this worker is alive; None when the pool does not know it."""

    def health(self, name: str) -> HealthPiggyback | None:
        """Returns the health that this worker last sent by gossip; None when the pool has none."""


@dataclass(slots=True)
class Member:
    """One worker, in its present incarnation."""

    name: str
    incarnation: str
    heard_at: float
    window: ProgressWindow
    state: WorkerHealthState
    verdict: RoutingDecision = RoutingDecision.UNKNOWN
    """The last verdict that is durable in the journal, which the leader also tells the worker. `UNKNOWN` before the first one."""
    reason: str = ""
    judged: tuple[RoutingDecision, HealthClass, bool] | None = None
    """The signals at its last judgement. While they stay equal, `Fleet` does not judge again; None makes it judge at the next look."""
    number: int = -1
    completed: int = 0
    lanes: tuple[str, ...] = ()
    slots: int = 0
    version: str = ""
    skew_s: float = 0.0
    steps: dict[str, int] = field(default_factory=dict)

    @classmethod
    def fresh(cls, name: str, incarnation: str, now: float, health: HealthConfig, interval_s: float) -> Member:
        """Returns a member that is alive as of now, and of which nothing else is known."""
        state = WorkerHealthState(name, now, 0, True, 0, 0, 0, 0.0, config=health)
        return cls(name, incarnation, now, ProgressWindow(interval_s), state)

    def take(self, report: WorkerReport, rate: CompletionRate, now: float) -> int:
        """Takes over the numbers of a report. Returns how many attempts the worker completed since its last report."""
        last, self.heard_at = self.heard_at, now
        self.number, self.slots, self.version = report.number, report.slots, report.version
        self.skew_s = report.wall - now if report.wall else 0.0
        completions = max(0, report.completed - self.completed)
        self.completed = max(self.completed, report.completed)
        assigned_before = self.state.workflows_assigned
        self._follow(report.attempts, now)
        self.window.completed(now, completions)
        rate.observe(now, assigned=assigned_before, over_s=max(0.0, now - last), completions=completions)
        counts = self.window.counts(now)
        self.state = replace(
            self.state,
            last_liveness_response=now,
            consecutive_liveness_failures=0,
            accepting_work=report.accepting,
            available_capacity=report.free,
            workflows_assigned=counts.assigned,
            completions_last_interval=counts.completions_last_interval,
            expected_completion_rate=rate.expected(now),
            workflows_advancing=counts.advancing,
        )
        return completions

    def _follow(self, attempts: tuple[AttemptReport, ...], now: float) -> None:
        window, running = self.window, {"/".join(map(str, one.name)): one for one in attempts}
        known = dict.fromkeys(window)
        for gone in known:
            if gone not in running:
                window.end(gone, now, completed=False)  # the worker itself counts its completions
        for key, one in running.items():
            if key not in known:
                window.begin(key, now, quiet_s=one.stall_s)
            # No new step, and yet the worker reports no silence: the attempt declared a quiet time. Each report renews the excuse.
            if one.silent_s == 0 and one.steps == self.steps.get(key):
                window.excuse(key, now + window.interval_s)
            window.step(key, one.steps, now)
        self.steps = {key: one.steps for key, one in running.items()}

    def standing(
        self, now: float, *, health_class: HealthClass | None, left_s: float, extensions_left: int, by_gossip: str
    ) -> WorkerStanding:
        """Returns its standing. The fleet passes the facts that its health manager and the gossip pool know."""
        return WorkerStanding(
            self.name,
            self.incarnation,
            health_class,
            self.verdict,
            self.reason,
            now - self.heard_at,
            left_s,
            self.slots,
            self.state.available_capacity,
            self.state.workflows_assigned,
            extensions_left,
            by_gossip,
            self.version,
            self.lanes,
            self.skew_s,
            self.state.accepting_work,
        )

    def believe(self, said: HealthPiggyback, now: float) -> None:
        """Takes over health that came by gossip, in place of a report that did not come."""
        self.state = replace(
            self.state,
            last_liveness_response=now,
            consecutive_liveness_failures=0,
            accepting_work=said.accepting_work,
            available_capacity=said.capacity,
            workflows_assigned=said.waiting,
            completions_last_interval=said.throughput,
            workflows_advancing=min(said.advancing, said.waiting),
        )


HEARD_WITHIN_S = 30.0
"""A worker that was silent for longer does not count (document 001)."""
_TAKES_NONE = (RoutingDecision.DRAIN, RoutingDecision.EVICT)


class Room(NamedTuple):
    workers: int
    """Workers that take work (document 001: "workers available for dispatch"). A full one counts: it takes work as soon as a slot is free."""
    capacity: int
    drained: int = 0
    """Workers that operators drained: they do not count above."""


def room(workers: Iterable[WorkerStanding], drained: Collection[str] = ()) -> Room:
    """Counts the workers that reported lately and take work, and their free slots."""
    present = [one for one in workers if one.heard_s_ago <= HEARD_WITHIN_S]
    taking = [one for one in present if takes(one, drained)]
    return Room(len(taking), sum(one.free for one in taking), sum(one.name in drained for one in present))


def crew(workers: Iterable[WorkerStanding], mailbox: str, drained: Collection[str] = ()) -> Crew:
    """Counts the workers that serve one mailbox."""
    serving = [one for one in workers if one.heard_s_ago <= HEARD_WITHIN_S and mailbox in one.lanes]
    taking = [one for one in serving if takes(one, drained)]
    return Crew(len(serving), len(taking), sum(one.free for one in taking))


def verdicts(workers: Iterable[WorkerStanding], drained: Collection[str] = ()) -> dict[str, int]:
    """Returns the number of workers under each verdict. A worker that an operator drained counts as "drain"."""
    return dict(Counter("drain" if one.name in drained else one.verdict.value for one in workers))


def takes(worker: WorkerStanding, drained: Collection[str]) -> bool:
    return worker.accepting and worker.verdict not in _TAKES_NONE and worker.name not in drained
