"""Runs a manager as a process: makes it of an open engine and port, with its entry in the list of managers, its gossip pool and its metrics.

Counters count durable decisions; a scrape reads the gauges (`nodes.metrics`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily

from tenure import machine
from tenure.bound_checks import check
from tenure.bounds import DatacenterName
from tenure.clock import Clock, SystemClock
from tenure.control.access_log import PortMetrics
from tenure.control.async_caller import ConfiguredCaller, HttpCaller
from tenure.control.caller import parse_address
from tenure.control.messages.operations import BY_NAME
from tenure.control.messages.wire import MANAGER_PORT, Problem, ProblemKind, Redirect, Reply, Request
from tenure.errors import NodeUnavailableError
from tenure.gossip.settings import format_address
from tenure.health.node_states import NodeType
from tenure.health.overload import ASSESS_EVERY_S, HybridOverloadDetector
from tenure.jobs import JobBook
from tenure.jobs.attempt_results import AttemptFailed, ResultRefused, WorkflowCompleted
from tenure.jobs.attempts import Dispatched, WorkflowStarted
from tenure.jobs.budget import claimed
from tenure.jobs.decisions import Event
from tenure.jobs.endings import JobEnded
from tenure.jobs.extensions import ExtensionDenied, ExtensionGranted
from tenure.jobs.mailbox_names import mailbox_name
from tenure.jobs.schedules import CronFired, InstantsSkipped
from tenure.jobs.settings import KEEP_ARCHIVE_S, PAGED_STATE_BUDGET, STUCK_THRESHOLD_S, JobSettings, check_positive
from tenure.jobs.submission import JobSubmitted
from tenure.jobs.unsigned_results import UnsignedRefused
from tenure.jobs.work_left import work_left
from tenure.jobs.workers import WorkerEvicted
from tenure.logs import NodeLog
from tenure.nodes.fleet.member import HEALTHCHECK_S, FleetSettings, verdicts
from tenure.nodes.gossip_pool import TELL_EVERY_S, EngineSeeds, Pool, pooled
from tenure.nodes.manager.hooks import HookSettings, check_hook, hooked
from tenure.nodes.manager.manager import Manager, ManagerSetup
from tenure.nodes.manager.operator_handlers import Presence, oldest_s
from tenure.nodes.node_process import (
    AnsweringNode,
    NodeGauges,
    NodeProcess,
    NodeSettings,
    gauge,
    gauges,
    node_process,
    readiness,
)
from tenure.nodes.pool_settings import PoolSettings
from tenure.work.result_signatures import ResultKeys

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
            UnsignedRefused: lambda book, event: self.refused.labels(event.rule.value).inc(),
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


class ManagerGauges(NodeGauges):
    """The gauges of one manager."""

    def __init__(self, manager: Manager) -> None:
        super().__init__("manager", manager.leadership)
        self._manager = manager

    def shown(self) -> Iterator[GaugeMetricFamily]:
        alarms = {alarm.key: 1 for alarm in self._manager.observer.alarms}
        yield gauges("tenure_alarm", "1 while an alarm stands.", ["kind", "subject"], alarms)

    def led(self) -> Iterator[GaugeMetricFamily]:
        manager, book, now = self._manager, self._manager.ledger.book, self._manager.now()
        jobs = {"live": len(book.jobs) - len(book.ended), "ended": len(book.ended)}
        yield gauges("tenure_jobs", "Jobs in memory.", ["state"], jobs)
        yield gauge("tenure_state_bytes", "Bytes of state, with what live jobs may yet need.", claimed(book))
        yield gauge("tenure_state_budget_bytes", "At so many, new jobs are refused.", book.budget)
        attempts = {
            "resting": len(book.resting),
            "held": sum(map(len, book.ready.values())),
            "queued": sum(map(len, book.queued.values())),
            "running": sum(map(len, book.on_worker.values())),
        }
        yield gauges("tenure_attempts_open", "Attempts that have not ended.", ["state"], attempts)
        yield gauges(
            "tenure_lane_oldest_seconds",
            "How long the oldest unclaimed attempt has waited.",
            ["lane"],
            {mailbox_name(*lane): oldest_s(book, lane, now) for lane in book.queued},
        )
        yield gauges(
            "tenure_work_left_seconds",
            "Seconds of work that waits or runs, for one slot.",
            ["queue"],
            work_left(book, now, self._says_left),
        )
        yield from threshold_gauges(book)
        workers = verdicts(manager.workers(), book.state.drained)
        yield gauges("tenure_workers", "Workers by the leader's verdict.", ["verdict"], workers)

    def _says_left(self, job_id: str, workflow: str) -> float | None:
        """Returns what a running workflow has left by the pace of its own fraction, where it reports one."""
        reports = self._manager.worker_reports
        live = reports.live(job_id, workflow)
        if live is None or live.fraction is None:
            return None
        eta = reports.progress.eta(job_id, workflow, live.fraction)
        return eta.left_s if eta is not None else None


def threshold_gauges(book: JobBook) -> Iterator[GaugeMetricFamily]:
    """Yields the stall thresholds of the workflows that were learned of, and how often the learned one was wrong, or found a hang sooner."""
    found = {tuple(key.rpartition("@")[::2]): one for key, one in book.state.gaps.workflows.items()}
    labels = ["workflow", "version"]
    learned = {key: one.proposed_s for key, one in found.items() if one.proposed_s}
    yield gauges("tenure_threshold_learned_seconds", "The learned stall threshold.", labels, learned)
    held = {key: one.set_s for key, one in found.items() if one.set_s}
    yield gauges("tenure_threshold_set_seconds", "The stall threshold that is set.", labels, held)
    wrong = {key: one.wrong_ever for key, one in found.items()}
    yield gauges("tenure_threshold_wrong", "Healthy attempts that the learned threshold ends.", labels, wrong)
    sooner = {key: one.found for key, one in found.items()}
    yield gauges("tenure_threshold_found_sooner", "Hangs that it ends before the set one.", labels, sooner)


class NodeMetrics(PortMetrics):
    """The metrics of one manager process. `watch` adds the gauges once the manager is made."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = ManagerMetrics(self.registry)

    def watch(self, manager: Manager) -> None:
        self.registry.register(ManagerGauges(manager))


PATIENCE_S = 10.0
"""The seconds that the leader may take for its answer, beyond the `wait_s` of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings(NodeSettings):
    """The settings of one manager process."""

    port: int = MANAGER_PORT
    stuck_s: float | None = None
    """A job without progress for these seconds is stuck, unless its submission sets another threshold. None: 120 s, or twice its longest stall."""
    healthcheck_s: float = HEALTHCHECK_S
    """A worker without proof of life or progress for these seconds is suspect, and then evicted."""
    gossip: PoolSettings = field(default_factory=PoolSettings)
    datacenter: str = "local"
    """The name by which gates know the datacenter of this manager."""
    gates: Sequence[str] = ()
    """The only addresses of gates that this manager reports to; without any, those that nodes' submissions name."""
    report_s: float = 10.0
    """The seconds between two reports to a gate on each of its jobs."""
    fallback_s: float = 300.0
    """A local timeout that no gate has answered for these seconds is executed here."""
    keep_finished_s: float = 3_600.0
    """The seconds for which a finished job stays in memory and in lists; fewer when its room is needed."""
    keep_archive_s: float = KEEP_ARCHIVE_S
    """The seconds for which an archived job can be read by its id, unless its queue has a setting of its own."""
    state_budget: int = PAGED_STATE_BUDGET
    """The bytes of state at which the leader refuses new jobs; 48 MiB at most until the format is raised."""
    raise_format: bool = False
    """True saves the state in pages from now on, which earlier releases cannot read. A new datacenter does so in any case."""
    result_keys: ResultKeys | None = field(default=None, repr=False)
    """The keys that results have to be signed with."""
    hooks: Sequence[HookSettings] = ()
    """Whom it tells of alarms and of ends of jobs."""

    def __post_init__(self) -> None:
        NodeSettings.__post_init__(self)  # `super()` does not find the class that `slots` makes anew
        for name in ("stuck_s", "report_s", "fallback_s"):
            if (seconds := getattr(self, name)) is not None:
                check_positive(name, seconds)
        _ = self.setup  # its parts raise by rules of their own
        check(self.datacenter, DatacenterName, field="datacenter")
        for address in self.gates:
            parse_address(address)
        for hook in self.hooks:
            check_hook(hook)

    @property
    def setup(self) -> ManagerSetup:
        jobs = JobSettings(
            stuck_threshold=STUCK_THRESHOLD_S if self.stuck_s is None else self.stuck_s,
            stuck_is_explicit=self.stuck_s is not None,
            report_interval=self.report_s,
            fallback_after=self.fallback_s,
            archive_after=self.keep_finished_s,
            keep_archive=self.keep_archive_s,
            state_budget=self.state_budget,
        )
        fleet = FleetSettings(healthcheck_s=self.healthcheck_s)
        raised = self.raise_format or None
        return ManagerSetup(
            self.datacenter,
            self.term_s,
            jobs,
            fleet,
            raise_format=raised,
            result_keys=self.result_keys,
            engine_submissions=True,
        )


async def serve(
    settings: ManagerSettings,
    stop: asyncio.Event,
    *,
    log: NodeLog,
    on_ready: Callable[[str], None] = lambda address: None,
    clock: Clock | None = None,
) -> None:
    """Runs until `stop` is set; then resigns, so that the next leader need not wait for the end of our term."""
    clock, metrics = clock or SystemClock(), NodeMetrics()
    about = {"node": "manager", "datacenter": settings.datacenter}
    async with (
        node_process(settings, about, metrics, kind="node", clock=clock, log=log, stop=stop) as process,
        _pooled(settings, process, clock, log) as pool,
        hooked(settings.hooks, process.environment) as hooks,
    ):
        environment, address, started = process.environment, process.address, clock.wall()
        manager = Manager(
            settings.name,
            address,
            environment,
            settings.setup,
            gates=ConfiguredCaller(process.caller, settings.gates) if settings.gates else process.caller,
            pool=pool,
            metrics=metrics.manager,
            tokens=process.tokens.handlers,
            hooks=hooks,
        )
        metrics.watch(manager)
        presence = Presence(
            environment.engine,
            environment.calls,
            clock,
            node=lambda: manager.node(settings.name, address, started),
            now=manager.now,
            gossip=format_address(pool.node.address) if pool is not None else "",
        )
        loops = {"manager": manager.run, "presence": presence.run, "tokens": process.tokens.run, **hooks.loops()}
        loops |= {"pool": partial(tell_pool, manager, pool, clock)} if pool is not None else {}
        life = partial(manager.leadership.keeper.keep_all, loops)
        await process.run(answering(manager, Following(manager, process.caller)), life, stop, on_ready)


def _pooled(
    settings: ManagerSettings, process: NodeProcess, clock: Clock, log: NodeLog
) -> AbstractAsyncContextManager[Pool | None]:
    found = EngineSeeds(process.environment.engine, process.environment.calls, settings.engine_url)
    return pooled(settings.gossip, settings.name, NodeType.MANAGER, clock=clock, log=log, found=found)


def answering(manager: Manager, follow: Following | None = None) -> AnsweringNode:
    """Returns the parts of a manager that its port calls."""
    return AnsweringNode(
        manager.answer,
        manager.events.stream,
        lambda: readiness(manager.unready, manager.observer.alarms),
        follow,
    )


async def tell_pool(manager: Manager, pool: Pool, clock: Clock) -> None:
    """Tells the pool the health of a manager, every `TELL_EVERY_S`. Its load is the lateness of its event loop, and the memory of its machine."""
    load = HybridOverloadDetector()
    while True:
        workers, flow = manager.workers(), manager.flow()
        pool.tell_fleet(
            accepting=manager.ledger.seq > 0 and not manager.closed,
            free=sum(one.free for one in workers),
            dispatched=flow.dispatched,
            expected=flow.expected,
            running=sum(one.running for one in workers),
            workers=len(workers),
            overload=load.state,
        )
        for _ in range(round(TELL_EVERY_S / ASSESS_EVERY_S)):
            asked = clock.monotonic()
            await clock.async_sleep(ASSESS_EVERY_S)
            load.record_latency(1_000 * max(0.0, clock.monotonic() - asked - ASSESS_EVERY_S))
            load.assess(memory_percent=machine.here.memory_percent())


class Following:
    """Fetches the leader's answer for a caller that cannot follow a redirect: a browser sends neither tokens nor requests to another host.

    It asks in the name of the caller, with its token if it gave one: the caller may do no more through this node than at the leader.
    """

    def __init__(self, manager: Manager, caller: HttpCaller) -> None:
        self._manager, self._caller = manager, caller

    async def __call__(self, request: Request, token: str) -> Reply | None:
        """Returns the leader's answer; None when this node should answer: it leads, it knows no leader, or the leader does not answer a read."""
        address = self._manager.leadership.other_leader
        if not address:
            return None
        wait_s: float = getattr(request, "wait_s", 0.0)
        try:
            reply = await self._caller.ask(address, request, PATIENCE_S + wait_s, token=token)
        except NodeUnavailableError as error:
            if BY_NAME[str(request.__struct_config__.tag)].reads:
                return None
            return Problem(kind=ProblemKind.UNAVAILABLE, fact=error.fact, remedy="Ask again", retryable=True)
        # We ask without the header that the caller gave us, so the other node passes nothing on: a request travels once.
        return None if isinstance(reply, Redirect) else reply
