"""Watches a manager for its operators: alarms, and a chart of the last ten minutes.

The observer logs each alarm once when it begins and once when it ends, and counts durable decisions for metrics and the chart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.clock import Clock
from tenure.control.messages.nodes import Pulse
from tenure.engines.contracts import MAX_SNAPSHOT_BYTES
from tenure.errors import EngineError
from tenure.jobs import Decision
from tenure.jobs.alarms import (
    Alarm,
    AlarmKind,
    Crew,
    down,
    failed_compensations,
    forgotten_pauses,
    misfits,
    nearly_full,
    outgrown,
    stranded,
    unserved,
    unsigned,
    waiting_long,
)
from tenure.jobs.attempt_results import AttemptFailed, WorkflowCompleted
from tenure.jobs.attempts import WorkflowStarted
from tenure.jobs.decisions import Event
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.work_indexes import Lane, lane_of
from tenure.logs import NodeLog
from tenure.nodes.engine_time import clock_alarms
from tenure.nodes.manager.leader import DatacenterLeader, JobLeadership
from tenure.nodes.manager.leader_parts import LeaderPart

if TYPE_CHECKING:
    from tenure.nodes.manager.serving import ManagerMetrics

STEP_S = 5.0
STEPS = 120
"""Ten minutes in all: long enough to see what led to now, short enough that operators do not take it for monitoring."""
_COUNTED: dict[type[Event], str] = {
    JobSubmitted: "submitted",
    WorkflowStarted: "started",
    WorkflowCompleted: "completed",
    AttemptFailed: "failed",
}


@dataclass(slots=True)
class _Step:
    number: int
    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    waiting: int = 0
    running: int = 0


class PulseCounter:
    """Counts events as they become durable. The observer sets how many attempts wait and run (`level`)."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque(maxlen=STEPS)

    def count(self, events: Iterable[Event]) -> None:
        for event in events:
            name = _COUNTED.get(type(event))
            if name is not None:
                step = self._at(event.at)
                setattr(step, name, getattr(step, name) + 1)

    def level(self, now: float, waiting: int, running: int) -> None:
        step = self._at(now)
        step.waiting, step.running = waiting, running

    def _at(self, at: float) -> _Step:
        """Returns the step of this time, or the newest step when the engine's clock was set back."""
        number = int(at // STEP_S)
        if not self._steps:
            self._steps.append(_Step(number))
        last = self._steps[-1]
        # Steps between two calls count no events, and keep the numbers of waiting and running attempts until the next `level`.
        for missing in range(max(last.number + 1, number - STEPS + 1), number + 1):
            self._steps.append(_Step(missing, waiting=last.waiting, running=last.running))
        return self._steps[-1]

    def read(self, now: float) -> Pulse:
        until = (self._at(now).number + 1) * STEP_S
        columns = {
            name: tuple(getattr(step, name) for step in self._steps)
            for name in ("submitted", "started", "completed", "failed", "waiting", "running")
        }
        return Pulse(step_s=STEP_S, until=until, **columns)


LOOK_EVERY_S = 5.0
NO_LEADER_AFTER_TERMS = 2.0
"""An alarm begins after so many terms without a known leader: an ordinary takeover is over by then."""


class Observer:
    """Watches one manager, both as a leader and as a standby. `run` lasts as long as the manager; `lead` makes the part that watches one term."""

    def __init__(
        self,
        leadership: JobLeadership,
        *,
        clock: Clock,
        log: NodeLog,
        crew: Callable[[str], Crew] = lambda mailbox: Crew(),
        metrics: ManagerMetrics | None = None,
        on_alarm: Callable[[Alarm, float, bool], None] = lambda alarm, since, over: None,
    ) -> None:
        """`on_alarm` hears of each alarm that began or is over, and since when it stood."""
        self._leadership, self._clock, self._log, self._crew = leadership, clock, log, crew
        self._metrics, self._on_alarm = metrics, on_alarm
        self._standing: dict[tuple[str, str], Alarm] = {}
        self._since: dict[tuple[str, str], float] = {}
        self.pulse = PulseCounter()
        self._led_at = clock.boottime()
        self._started: dict[Lane, float] = {}

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        return tuple(self._standing.values())

    @property
    def standing_since(self) -> dict[Alarm, float]:
        """Maps each alarm to the engine's time at which it was first seen."""
        return {alarm: self._since[key] for key, alarm in self._standing.items()}

    async def run(self) -> None:
        """Looks for alarms every few seconds, until cancelled."""
        while True:
            self.look()
            await self._clock.async_sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Logs the alarms that began and those that ended. On a leader, records how many attempts wait and run."""
        found = {alarm.key: alarm for alarm in self._now()}
        for key, alarm in found.items():
            if key not in self._standing:
                self._log.error(f"ALARM {alarm.kind}: {alarm}")
                self._on_alarm(alarm, self._time(), False)
        for key, alarm in self._standing.items():
            if key not in found:
                self._log.info(f"alarm over: {alarm.kind} ({alarm.subject})")
                self._on_alarm(alarm, self._since[key], True)
        self._standing = found
        self._since = {key: self._since.get(key) or self._time() for key in found}
        if self._leadership.leader is not None:
            book = self._leadership.ledger.book
            waiting = sum(map(len, book.queued.values())) + sum(map(len, book.ready.values()))
            self.pulse.level(self._time(), waiting, sum(map(len, book.on_worker.values())))

    def _time(self) -> float:
        try:
            return self._leadership.time.now()
        except EngineError:  # the engine has not answered yet: our own clock is the best that there is
            return self._clock.wall()

    def _now(self) -> list[Alarm]:
        return [*self._leadership.failures.alarms(), *clock_alarms(self._leadership.time), *self._of_datacenter()]

    def _of_datacenter(self) -> list[Alarm]:
        node = self._leadership
        if node.leader is not None or node.term_is_current:
            self._led_at = self._clock.boottime()
        if (damage := node.ledger.damage) is not None:
            return [Alarm(AlarmKind.JOURNAL_DAMAGED, node.rules.journal, damage.fact, damage.remedy)]
        without = self._clock.boottime() - self._led_at
        if without > NO_LEADER_AFTER_TERMS * node.term_s:
            kind = AlarmKind.NO_LEADER if node.engine_answers else AlarmKind.ENGINE_SILENT
            return [Alarm(kind, node.rules.election, f"nobody is known to lead for {without:.0f} s", _REMEDIES[kind])]
        if node.leader is None:
            return []
        book = node.ledger.book
        waiting = stranded(book, node.time.now(), self._started, self._crew)
        return [
            *outgrown(node.ledger.state_bytes, MAX_SNAPSHOT_BYTES),
            *nearly_full(book),
            *unserved(book, node.time.now()),
            *misfits(book),
            *failed_compensations(book),
            *unsigned(book, node.time.now()),
            *waiting_long(book, node.time.now()),
            *waiting,
            *down(book, node.time.now()),
            *forgotten_pauses(book, node.time.now()),
        ]

    def lead(self, leader: DatacenterLeader) -> TermWatch:
        self._started = {}
        if self._metrics is not None:
            self._metrics.elections.inc()
        self.pulse = PulseCounter()
        return TermWatch(leader, self._started, self._metrics, self.pulse)


_REMEDIES = {
    AlarmKind.NO_LEADER: "Start a manager on this engine; jobs wait, and what runs goes on",
    AlarmKind.ENGINE_SILENT: "Look after the engine: `tenure doctor --engine URL`",
}


class TermWatch(LeaderPart):
    """Counts each decision of one term once it is durable."""

    heeds = None

    def __init__(
        self, leader: DatacenterLeader, started: dict[Lane, float], metrics: ManagerMetrics | None, pulse: PulseCounter
    ) -> None:
        self._leader, self._started, self._metrics, self._pulse = leader, started, metrics, pulse

    def note(self, decision: Decision, job_ids: Iterable[str]) -> None:
        self._pulse.count(decision.events)
        book = self._leader.ledger.book
        for event in decision.events:
            if isinstance(event, WorkflowStarted) and (info := book.jobs.get(event.job_id)) is not None:
                self._started[lane_of(info)] = event.at
        if self._metrics is not None:
            self._metrics.count(book, decision.events)
