"""The workers of a datacenter as their leader knows them: settings, newest reports, verdicts, and counts over many of them. Pure: callers pass the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from tenure.control.messages.nodes import RunningAttempt, WorkerNode
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.errors import LimitError
from tenure.health.brake import BrakeConfig
from tenure.health.deadlines import ExtensionConfig
from tenure.health.node_states import HealthPiggyback, PoolWord, WorkerHealthState
from tenure.health.outage import OutageSettings
from tenure.health.signals import HealthClass, HealthConfig, RoutingDecision
from tenure.health.window import CompletionRate, ProgressWindow
from tenure.jobs.alarms import Crew
from tenure.nodes.grant_views import report_grants

HEALTHCHECK_S = 30.0


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The settings of a fleet. With `healthcheck_s` of 30 s, all times are those of the documents."""

    healthcheck_s: float = HEALTHCHECK_S
    """The healthcheck deadline, the liveness timeout and the progress interval, in seconds."""
    forget_s: float = 600.0
    """An evicted worker that has not come back after this long is forgotten."""
    brake: BrakeConfig = field(default_factory=BrakeConfig)
    outages: OutageSettings = field(default_factory=OutageSettings)

    def __post_init__(self) -> None:
        if not 0.5 <= self.healthcheck_s <= 3_600:
            raise LimitError("healthcheck_s", self.healthcheck_s, "between 0.5 and 3,600 seconds")
        if not 0 < self.forget_s < float("inf"):
            raise LimitError("forget_s", self.forget_s, "above 0 seconds")

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


class Told(NamedTuple):
    """The leader's answer to one worker about itself."""

    verdict: RoutingDecision
    reason: str
    left_s: float = 0.0
    peers: int = 0


class WorkerStanding(NamedTuple):
    """The state of one worker."""

    node: WorkerNode
    """As people are shown it."""
    accepting: bool
    """True when the worker itself says that it accepts work."""


class PoolView(Protocol):
    """The question that a leader asks its gossip pool. The pool answers at once, by what it believes now, and decides nothing: losing it costs
    routing quality, never data."""

    def word(self, name: str) -> PoolWord | None:
        """Returns what the pool believes of this worker; None when it does not know, or the worker may still refute it."""


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
    granted: int = 0
    """The grants of its last extension series that are in the journal, until the reset of that series is."""
    number: int = -1
    completed: int = 0
    lanes: tuple[str, ...] = ()
    slots: int = 0
    version: str = ""
    skew_s: float = 0.0
    allowed_until: float = 0.0
    """When the last allowed silence of what runs there ends, by its newest report."""

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
            workflows_silent=counts.silent,
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
                window.begin(key, now)
            window.allow_silence(key, now + one.allowed_silence_s)
            window.step(key, one.steps, now)
        silence_s = max((one.allowed_silence_s for one in attempts), default=0.0)
        # Where no silence is left, it ended by now: this time must not move with each report, or nothing would ever be overdue.
        self.allowed_until = now + silence_s if silence_s > 0 else min(self.allowed_until, now)

    def standing(
        self, now: float, *, health_class: HealthClass | None, left_s: float, extensions_left: int, by_gossip: str
    ) -> WorkerStanding:
        """Returns its standing. The fleet passes the facts that its health manager and the gossip pool know."""
        node = WorkerNode(
            name=self.name,
            incarnation=self.incarnation,
            verdict=self.verdict.value,
            reason=self.reason,
            health=health_class.value if health_class is not None else "",
            heard_s_ago=now - self.heard_at,
            left_s=left_s,
            extensions_left=extensions_left,
            slots=self.slots,
            free=self.state.available_capacity,
            running=self.state.workflows_assigned,
            lanes=self.lanes,
            version=self.version,
            skew_s=self.skew_s,
            gossip=by_gossip,
        )
        return WorkerStanding(node, self.state.accepting_work)

    def believe(self, said: HealthPiggyback) -> None:
        """Takes over health that came by gossip while no report arrives. It may only take work away from the worker: life and progress are
        proven by reports, because anybody in the pool can say that a dead worker is well."""
        self.state = replace(
            self.state,
            accepting_work=self.state.accepting_work and said.accepting_work,
            available_capacity=min(self.state.available_capacity, said.capacity),
        )


_TAKES_WORK = (RoutingDecision.ROUTE, RoutingDecision.INVESTIGATE)


class AbleWorkers:
    """Knows which workers take work from each lane. A worker that an operator drained takes none, whatever its verdict."""

    def __init__(self) -> None:
        self._by_lane: dict[str, set[str]] = {}
        self.drained: frozenset[str] = frozenset()
        """The workers that operators have drained. Whoever changes it counts those workers again."""

    def count(self, member: Member) -> None:
        """Counts a worker anew: its verdict, its lanes or its drain may have changed."""
        self.discount(member)
        if member.verdict in _TAKES_WORK and member.name not in self.drained:
            for lane in member.lanes:
                self._by_lane.setdefault(lane, set()).add(member.name)

    def discount(self, member: Member) -> None:
        for lane in member.lanes:
            self._by_lane.get(lane, set()).discard(member.name)

    def on(self, lane: str) -> frozenset[str]:
        return frozenset(self._by_lane.get(lane, ()))

    def peers(self, member: Member) -> int:
        """Returns the number of other workers on its least served lane. It looks at each lane of the worker once."""
        able = (self._by_lane.get(lane, set()) for lane in member.lanes)
        return min((len(others) - (member.name in others) for others in able), default=0)


HEARD_WITHIN_S = 30.0
"""A worker that was silent for longer does not count (document 001)."""
_TAKES_NONE = (RoutingDecision.DRAIN, RoutingDecision.EVICT)


class Room(NamedTuple):
    workers: int
    """Workers that take work (document 001: "workers available for dispatch"). A full one counts: it takes work as soon as a slot is free."""
    capacity: int
    drained: int = 0
    """Workers that operators drained: they do not count above."""


def slots_in(members: Mapping[str, Member], queue: str) -> int:
    """Returns the slots of the workers that take work from any priority of a queue."""
    mark = f"{queue}.p"
    return sum(one.slots for one in members.values() if any(lane.startswith(mark) for lane in one.lanes))


def room(workers: Iterable[WorkerStanding], drained: Collection[str] = ()) -> Room:
    """Counts the workers that reported lately and take work, and their free slots."""
    present = [one for one in workers if one.node.heard_s_ago <= HEARD_WITHIN_S]
    taking = [one for one in present if takes(one, drained)]
    return Room(len(taking), sum(one.node.free for one in taking), sum(one.node.name in drained for one in present))


def crew(workers: Iterable[WorkerStanding], mailbox: str, drained: Collection[str] = ()) -> Crew:
    """Counts the workers that serve one mailbox."""
    serving = [one for one in workers if one.node.heard_s_ago <= HEARD_WITHIN_S and mailbox in one.node.lanes]
    taking = [one for one in serving if takes(one, drained)]
    return Crew(len(serving), len(taking), sum(one.node.free for one in taking))


def verdicts(workers: Iterable[WorkerNode], drained: Collection[str] = ()) -> dict[str, int]:
    """Returns the number of workers under each verdict. A worker that an operator drained counts as "drain"."""
    return dict(Counter("drain" if one.name in drained else one.verdict for one in workers))


def takes(worker: WorkerStanding, drained: Collection[str]) -> bool:
    return worker.accepting and worker.node.verdict not in _TAKES_NONE and worker.node.name not in drained


class HeardReport(NamedTuple):
    """A report, and the engine's time at which it came. The seconds in the report count from then."""

    report: WorkerReport
    at: float


class ReportedAttempt(NamedTuple):
    """The newest report of an attempt, and the start of a worker that sent it."""

    attempt: AttemptReport
    start: str


class ReportedAttempts:
    """The newest report of each start of a worker, with two indexes over the attempts in it.

    Reports are kept by start (incarnation), not by worker: two starts under one name must not hide each other's attempts.
    """

    def __init__(self) -> None:
        self._reports: dict[str, HeardReport] = {}
        """Maps each start to its newest report. The indexes below hold the attempts of these reports, and no others."""
        self._attempts: dict[tuple[str, str], ReportedAttempt] = {}
        """Maps (job, workflow) to the newest report of its attempt."""
        self._starts: dict[str, dict[str, None]] = {}
        """Maps each job to the starts that run something of it, in the order in which they reported it."""

    def remember(self, report: WorkerReport, now: float) -> None:
        """Replaces the report of this start. A report that a newer one overtook on its way changes nothing."""
        before = self._reports.get(report.start)
        if before is not None and report.number < before.report.number:
            return
        self._drop(report.start)
        self._reports[report.start] = HeardReport(report, now)
        for one in report.attempts:
            self._attempts[(one.job_id, one.workflow)] = ReportedAttempt(one, report.start)
            self._starts.setdefault(one.job_id, {})[report.start] = None

    def forget(self, start: str) -> None:
        self._drop(start)
        self._reports.pop(start, None)

    def _drop(self, start: str) -> None:
        """Takes the attempts of a start out of the indexes."""
        heard = self._reports.get(start)
        for one in heard.report.attempts if heard is not None else ():
            key = one.job_id, one.workflow
            newest = self._attempts.get(key)
            if newest is not None and newest.start == start:  # else another start has reported this attempt since
                del self._attempts[key]
            starts = self._starts.get(one.job_id, {})
            starts.pop(start, None)
            if not starts:
                self._starts.pop(one.job_id, None)

    def attempt(self, job_id: str, workflow: str) -> ReportedAttempt | None:
        return self._attempts.get((job_id, workflow))

    def saved_by(self, start: str) -> dict[str, int]:
        """Returns the saved work of an incarnation's attempts by `job/workflow`, as it last reported it."""
        heard = self._reports.get(start)
        return {
            f"{one.job_id}/{one.workflow}": one.mark for one in (heard.report.attempts if heard else ()) if one.mark
        }

    def report(self, start: str) -> HeardReport | None:
        return self._reports.get(start)

    def reports(self) -> Iterator[WorkerReport]:
        """Yields the newest report of each start. The caller may forget starts meanwhile."""
        return iter([heard.report for heard in self._reports.values()])

    def running_of(self, job_ids: list[str] | None) -> Iterator[tuple[HeardReport, AttemptReport]]:
        """Yields each attempt that runs, of some jobs or of all, with the report that named it."""
        for heard in list(self._reports.values()):
            for one in heard.report.attempts:
                if job_ids is None or one.job_id in job_ids:
                    yield heard, one

    def starts_of_job(self, job_id: str) -> list[str]:
        """Returns the starts that run something of this job."""
        return list(self._starts.get(job_id, ()))

    def starts_of_worker(self, worker: str) -> list[str]:
        return [start for start, heard in self._reports.items() if heard.report.worker == worker]

    def running(self) -> dict[str, list[RunningAttempt]]:
        """Maps each worker to the attempts that it runs, by its newest report."""
        found: dict[str, list[RunningAttempt]] = {}
        for report, at in self._reports.values():
            found.setdefault(report.worker, []).extend(
                RunningAttempt(
                    job_id=one.job_id,
                    workflow=one.workflow,
                    attempt=one.attempt,
                    steps=one.steps,
                    fraction=one.fraction,
                    note=one.note,
                    grants=report_grants(one, at),
                )
                for one in report.attempts
            )
        return found


class DepartedStarts:
    """The starts of workers that said that they leave, each with the number of that report and when it came.

    A worker has two requests under way when it is told to stop, and says that it leaves by a third. A busy leader may read them in another order.
    A worker that was registered anew by a late one would be in the fleet without a catalogue, for 30 s, and the door would be open meanwhile.
    """

    def __init__(self) -> None:
        self._left: dict[tuple[str, str], tuple[int, float]] = {}

    def note(self, report: WorkerReport, now: float) -> None:
        """Notes that a start leaves with this report. One without an incarnation of its own cannot be told from the worker's next start."""
        if report.incarnation:
            self._left[report.worker, report.start] = report.number, now

    def is_late(self, report: WorkerReport) -> bool:
        """Returns True for a report that was sent before the word that its start leaves."""
        known = self._left.get((report.worker, report.start))
        return known is not None and report.number <= known[0]

    def forget(self, before: float) -> None:
        """Forgets those that left before this time."""
        self._left = {start: found for start, found in self._left.items() if found[1] >= before}
