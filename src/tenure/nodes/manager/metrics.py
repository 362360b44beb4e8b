"""Defines the Prometheus metrics of a manager. docs/metrics.md lists every name; a test keeps the two equal.

Counters count durable decisions; a scrape reads the gauges. Labels are states, causes, lanes and verdicts: the code and the setup of an
operator bound them, never the number of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tenure.control.access_log import PortMetrics
from tenure.jobs import JobBook
from tenure.jobs.alarms import Alarm
from tenure.jobs.attempt_results import AttemptFailed, ResultRefused, WorkflowCompleted
from tenure.jobs.attempts import Dispatched, WorkflowStarted
from tenure.jobs.budget import claimed
from tenure.jobs.decisions import Event
from tenure.jobs.endings import JobEnded
from tenure.jobs.extensions import ExtensionDenied, ExtensionGranted
from tenure.jobs.outbox import mailbox_name
from tenure.jobs.schedules import CronFired, InstantsSkipped
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.workers import WorkerEvicted
from tenure.nodes.fleet.member import verdicts

if TYPE_CHECKING:
    from tenure.nodes.manager.leader import JobLeadership
    from tenure.nodes.manager.manager import Manager


_WAITS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0, 3_600.0)
_LENGTHS = (0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0)


class ManagerMetrics:
    """The counters of one manager. The observer gives `count` each event that became durable while this manager leads."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self.submitted = counter("tenure_jobs_submitted", "Jobs that were accepted.")
        self.ended = counter("tenure_jobs_ended", "Jobs that ended, by how.", "state")
        self.attempts = counter(
            "tenure_attempts", "Attempts that ended: completed, or the cause of their failure.", "ending"
        )
        self.dispatched = counter("tenure_dispatches", "Attempts that were put into the engine.")
        self.refused = counter(
            "tenure_results_refused", "Results of attempts that did not count any more, by rule.", "rule"
        )
        self.evicted = counter("tenure_evictions", "Workers that were evicted.")
        self.extensions = counter("tenure_extensions", "Workers' requests for time, by answer.", "answer")
        self.instants = counter("tenure_schedule_instants", "Instants of schedules: fired or skipped.", "outcome")
        self.elections = counter("tenure_elections_won", "How often this manager became the leader.")
        self.failures = counter(
            "tenure_product_failures", "What this node's own code raised on, by what it handled.", "on"
        )
        self.pick_up = Histogram(
            "tenure_pick_up_seconds", "From dispatch to the start of an attempt.", buckets=_WAITS, registry=registry
        )
        self.length = Histogram(
            "tenure_job_seconds", "From a job's submission to its end.", buckets=_LENGTHS, registry=registry
        )
        self._count: dict[type[Event], Callable[[JobBook, Any], None]] = {
            JobSubmitted: lambda book, event: self.submitted.inc(),
            JobEnded: self._job_ended,
            WorkflowCompleted: lambda book, event: self.attempts.labels("completed").inc(),
            AttemptFailed: lambda book, event: self.attempts.labels(event.cause.value).inc(),
            Dispatched: lambda book, event: self.dispatched.inc(),
            WorkflowStarted: self._started,
            ResultRefused: lambda book, event: self.refused.labels(event.rule.value).inc(),
            WorkerEvicted: lambda book, event: self.evicted.inc(),
            ExtensionGranted: lambda book, event: self.extensions.labels("granted").inc(),
            ExtensionDenied: lambda book, event: self.extensions.labels("denied").inc(),
            CronFired: lambda book, event: self.instants.labels("fired").inc(),
            InstantsSkipped: lambda book, event: self.instants.labels("skipped").inc(event.count),
        }

    def failed_on(self, what: str) -> None:
        """Counts one failure of our own code, by the kind of thing that it handled."""
        self.failures.labels(what).inc()

    def count(self, book: JobBook, events: Iterable[Event]) -> None:
        for event in events:
            counted = self._count.get(type(event))
            if counted is not None:
                counted(book, event)

    def _job_ended(self, book: JobBook, event: JobEnded) -> None:
        self.ended.labels(event.state.value).inc()
        if info := book.jobs.get(event.job_id):
            self.length.observe(max(0.0, event.at - info.job.submitted_at))

    def _started(self, book: JobBook, event: WorkflowStarted) -> None:
        info = book.jobs.get(event.job_id)
        workflow = info.workflows.get(event.workflow) if info else None
        if workflow is not None and workflow.dispatched_at:
            self.pick_up.observe(max(0.0, event.at - workflow.dispatched_at))


class ManagerGauges(Collector):
    """The state of a manager at a scrape. It reads indexes of the book only, so that a scrape costs the same however many jobs there are."""

    def __init__(
        self,
        leadership: JobLeadership,
        alarms: Callable[[], Iterable[Alarm]],
        workers: Callable[[], dict[str, int]],
    ) -> None:
        self._leadership, self._alarms, self._workers = leadership, alarms, workers

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Returns nothing. Without this method, registering would already ask for every value."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        node = self._leadership
        book, leads = node.ledger.book, node.leader is not None
        yield _one("tenure_manager_leads", "1 on the manager that leads.", leads)
        yield _one("tenure_manager_epoch", "The newest epoch that this manager knows.", max(node.epoch, book.epoch))
        yield _one("tenure_manager_journal_sequence", "How far this manager has read the journal.", node.ledger.seq)
        yield _one("tenure_manager_engine_answers", "0 while the engine does not answer.", node.engine_answers)
        yield _one("tenure_manager_clock_skew_seconds", "This machine's clock minus the engine's.", node.time.skew_s)
        alarms = GaugeMetricFamily("tenure_alarm", "1 while an alarm stands.", labels=["kind", "subject"])
        for alarm in self._alarms():
            alarms.add_metric(list(alarm.key), 1)
        yield alarms
        if leads:
            yield from self._led(book)

    def _led(self, book: JobBook) -> Iterator[GaugeMetricFamily]:
        now = self._leadership.time.now()
        jobs = GaugeMetricFamily("tenure_jobs", "Jobs in memory.", labels=["state"])
        jobs.add_metric(["live"], len(book.jobs) - len(book.ended))
        jobs.add_metric(["ended"], len(book.ended))
        yield jobs
        yield _one("tenure_state_bytes", "Bytes of state, with what live jobs may yet need.", claimed(book))
        yield _one("tenure_state_budget_bytes", "At so many, new jobs are refused.", book.settings.state_budget)
        attempts = GaugeMetricFamily("tenure_attempts_open", "Attempts that have not ended.", labels=["state"])
        attempts.add_metric(["resting"], len(book.resting))
        attempts.add_metric(["held"], sum(map(len, book.ready.values())))
        attempts.add_metric(["queued"], sum(map(len, book.queued.values())))
        attempts.add_metric(["running"], sum(map(len, book.on_worker.values())))
        yield attempts
        oldest = GaugeMetricFamily(
            "tenure_lane_oldest_seconds", "How long the oldest unclaimed attempt has waited.", labels=["lane"]
        )
        for lane, waiting in book.queued.items():
            age = 0.0
            if waiting:
                job_id, name = next(iter(waiting))
                age = max(0.0, now - book.jobs[job_id].workflows[name].dispatched_at)
            oldest.add_metric([mailbox_name(*lane)], age)
        yield oldest
        workers = GaugeMetricFamily("tenure_workers", "Workers by the leader's verdict.", labels=["verdict"])
        for verdict, count in self._workers().items():
            workers.add_metric([verdict], count)
        yield workers


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))


class NodeMetrics(PortMetrics):
    """The metrics of one manager process. `watch` adds the gauges once the manager is made."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = ManagerMetrics(self.registry)

    def watch(self, manager: Manager) -> None:
        def workers() -> dict[str, int]:
            return verdicts(manager.standings(), manager.ledger.book.state.drained)

        self.registry.register(ManagerGauges(manager.leadership, lambda: manager.observer.alarms, workers))
