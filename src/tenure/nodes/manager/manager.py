"""A manager stands for election, leads or follows, and answers requests.

This is the shell around its `Leadership`. It knows neither HTTP nor processes: a transport hands it requests and takes its replies, so the
simulator runs it unchanged. Any manager answers reads of jobs, from a book that is never ahead of the journal. Only the leader decides writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tenure import __version__
from tenure.control.async_caller import AsyncCaller
from tenure.control.caller import parse_address
from tenure.control.event_feed import EventFeed
from tenure.control.messages.events import GetEvents, ProgressLine
from tenure.control.messages.jobs import MAX_LISTED, Done
from tenure.control.messages.nodes import ManagerNode, WorkerNode
from tenure.control.messages.wire import AskLeader, Handlers, Placed, Problem, ProblemKind, Reply, Request, candidate_at
from tenure.control.messages.workers import ExtendDeadline, WorkerReport
from tenure.control.problems import problem
from tenure.errors import DeposedError, TenureError
from tenure.jobs import JobSettings
from tenure.jobs.arguments import masked_event
from tenure.jobs.budget import check_worker
from tenure.jobs.decisions import Command
from tenure.jobs.messages import Identity
from tenure.jobs.model import JobSubmission
from tenure.nodes.fleet.member import FleetSettings, PoolView, WorkerStanding, crew
from tenure.nodes.leadership import Leadership
from tenure.nodes.ledger import SNAPSHOT_EVERY
from tenure.nodes.loop_keeper import FailedOn, LoopKeeper, ProductFailures
from tenure.nodes.manager.gate_handlers import GateHandlers
from tenure.nodes.manager.hooks import HookNotices, Hooks
from tenure.nodes.manager.job_handlers import ManagerJobHandlers
from tenure.nodes.manager.leader import DatacenterLeader, JobLeadership
from tenure.nodes.manager.leader_parts import ChildJobs, FormatRaise, JobTraces
from tenure.nodes.manager.ledger import JOURNAL, DatacenterRules, JobLedger, JobMandate
from tenure.nodes.manager.manager_health import DispatchFlow, WatchedCalls, WorkFlow, drained_by, why_closed
from tenure.nodes.manager.observer import Observer
from tenure.nodes.manager.operator_handlers import DeadLetterHandlers, NodeHandlers, QueueHandlers
from tenure.nodes.manager.outage_brake import OutageHandlers
from tenure.nodes.manager.overview import OverviewHandlers
from tenure.nodes.manager.schedules import ScheduleHandlers
from tenure.nodes.manager.submission_intake import SubmissionIntake
from tenure.nodes.manager.worker_reports import WorkerReportHandlers
from tenure.nodes.process import Environment
from tenure.work.result_signatures import ResultKeys

if TYPE_CHECKING:
    from tenure.nodes.manager.serving import ManagerMetrics


@dataclass(frozen=True, slots=True)
class ManagerSetup:
    """The settings of one manager; `serving.ManagerSettings` has those of its whole process."""

    datacenter: str = "local"
    """The name by which gates know the datacenter of this manager."""
    term_s: float = 10.0
    """The seconds for which the other managers wait for a leader that fell silent."""
    jobs: JobSettings | None = None
    fleet: FleetSettings | None = None
    snapshot_every: int = SNAPSHOT_EVERY
    raise_format: bool | None = False
    """True saves the state in pages from now on, which earlier releases cannot read; None does so for a new datacenter only."""
    result_keys: ResultKeys | None = None
    """The keys that results have to be signed with; None: any result is believed that comes from the holder of the work."""
    engine_submissions: bool = False
    """Takes submissions that came through the engine, too (`client.transactions`). Every process does; worlds of the simulator need no such loop."""


class Manager:
    """One manager. `run` lasts until it is cancelled; `answer` works from the first moment on."""

    def __init__(
        self,
        name: str,
        address: str,
        environment: Environment,
        setup: ManagerSetup | None = None,
        *,
        gates: AsyncCaller | None = None,
        pool: PoolView | None = None,
        metrics: ManagerMetrics | None = None,
        tokens: Handlers | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """`address`: where workers, gates and clients reach it. `gates` asks the gates of this datacenter; None for one that has none."""
        setup = setup or ManagerSetup()
        self._calls = calls = WatchedCalls(environment.calls, environment.clock)
        environment = replace(environment, calls=calls)
        engine, clock, log = environment.engine, environment.clock, environment.log
        self.datacenter, self._setup, self._pool = setup.datacenter, setup, pool
        self._identity = Identity(setup.datacenter, name, *parse_address(address))
        self.jobs = ManagerJobHandlers(self, engine, calls, clock)
        failures = ProductFailures(clock, log, metrics.failed_on if metrics is not None else lambda what: None)
        self.leadership: JobLeadership = Leadership(
            candidate_at(name, address),
            environment,
            DatacenterRules(setup.jobs, setup.snapshot_every),
            self._new_leader,
            keeper=LoopKeeper(clock, environment.random, failures),
            term_s=setup.term_s,
            on_change=self.jobs.look,
        )
        self.now = self.leadership.time.now
        """Returns the engine's time."""
        self._hook_notices = HookNotices(hooks or Hooks(()), setup.datacenter, name)
        self.observer = self._observer(environment, metrics)
        self.events = self._feed(environment)
        self._flow: DispatchFlow | None = None
        """The flow of work in the present term, or the last one."""
        self._gates = GateHandlers(self, gates, self._identity) if gates is not None else None
        self.handlers = {**self._own_handlers(environment), **(tokens or {})}
        """Maps each type of request to its handler."""

    def _observer(self, environment: Environment, metrics: ManagerMetrics | None) -> Observer:
        return Observer(
            self.leadership,
            clock=environment.clock,
            log=environment.log,
            crew=lambda mailbox: crew(self.standings(), mailbox, self.ledger.book.state.drained),
            metrics=metrics,
            on_alarm=self._hook_notices.alarm,
        )

    def _feed(self, environment: Environment) -> EventFeed:
        return EventFeed(
            environment.engine.journal(JOURNAL),
            environment.calls,
            clock=environment.clock,
            state=self.jobs.state_for,
            submission_of=self.jobs.submission_of,
            keep=self.leadership.keeper.keep,
            progress=self._progress,
            masked=lambda data: masked_event(data, self.ledger.book),
        )

    def _own_handlers(self, environment: Environment) -> Handlers:
        engine, calls = environment.engine, environment.calls
        nodes = NodeHandlers(self, engine, calls)
        return {
            AskLeader: self.leadership.who_leads,
            WorkerReport: self._report,
            ExtendDeadline: self._extend,
            GetEvents: self.events.page,
            **ScheduleHandlers(self, engine, calls).handlers,
            **self.jobs.handlers,
            **QueueHandlers(self).handlers,
            **DeadLetterHandlers(self, engine, calls).handlers,
            **nodes.handlers,
            **OutageHandlers(self.write).handlers,
            **OverviewHandlers(self, nodes, environment.clock).handlers,
            **(self._gates.handlers if self._gates is not None else {}),
        }

    def _progress(self, request: GetEvents) -> tuple[ProgressLine, ...]:
        """Returns how the work of one job, or of all, stands. Workers report to the leader only."""
        reports = self.worker_reports if self.leads else None
        if reports is None:
            raise DeposedError("only the leader hears of progress")
        return tuple(reports.progress.lines([request.job_id] if request.job_id else None, MAX_LISTED))

    def _new_leader(self, mandate: JobMandate) -> DatacenterLeader:
        self._flow = flow = DispatchFlow(mandate.environment.clock)
        parts = [ChildJobs, JobTraces, self.observer.lead, lambda leader: flow]
        if self._hook_notices.wanted:
            parts.append(self._hook_notices.lead)
        if self._gates is not None:
            parts.append(self._gates.reporting)
        if self._setup.raise_format is not False:
            parts.append(partial(FormatRaise, bool(self._setup.raise_format)))
        if self._setup.engine_submissions:
            parts.append(partial(SubmissionIntake, mandate))
        setup, pool = self._setup, self._pool
        return DatacenterLeader(
            mandate, self._identity, fleet=setup.fleet, pool=pool, parts=parts, result_keys=setup.result_keys
        )

    async def run(self) -> None:
        """Stands for election, leads and follows, until cancelled. Cancelling resigns from the term."""
        try:
            await self.leadership.keeper.keep_all({"node": self.leadership.run, "observer": self.observer.run})
        finally:
            self.jobs.close()
            self.events.close()

    @property
    def leads(self) -> bool:
        return self.leadership.leader is not None

    @property
    def name(self) -> str:
        """Returns `NAME@ADDRESS`, the name under which this node stands for election."""
        return self.leadership.name

    @property
    def plain_name(self) -> str:
        return self._identity.manager_id

    @property
    def epoch(self) -> int:
        return self.leadership.epoch

    @property
    def worker_reports(self) -> WorkerReportHandlers:
        """Returns the part of the leader that answers worker reports. Raises `DeposedError` when this node does not lead."""
        if self.leadership.leader is None:
            raise DeposedError("only the leader hears of workers")
        return self.leadership.leader.worker_reports

    def workers(self) -> list[WorkerNode]:
        """Returns the workers that report to this manager; empty unless it leads."""
        return [one.node for one in self.standings()]

    @property
    def unready(self) -> dict[str, str]:
        """Maps the part that is missing (engine, journal or leader) to the reason; empty when this manager is ready to answer."""
        if self.ledger.loading is not None:
            return {"journal": str(self.ledger.loading)}
        if not self.leadership.engine_answers:
            return {"engine": "it does not answer"}
        if self.ledger.damage is not None:
            return {"journal": str(self.ledger.damage)}
        if not self.ledger.seq:
            return {"journal": "it was not read yet"}
        if not self.leads and not self.leadership.term_is_current:
            return {"leader": "nobody is known to lead"}
        return {}

    # Its health (document 001)

    @property
    def drained(self) -> str:
        """Returns who drained this manager, and why; empty where nobody did."""
        return drained_by(self.ledger.book, self._identity.manager_id)

    @property
    def closed(self) -> str:
        """The reason why this manager accepts no new jobs; empty while it does."""
        return why_closed(self.ledger.book, self._identity.manager_id, self._calls.full)

    def takes(self, submission: JobSubmission) -> bool:
        """Returns False for a new job while an operator has drained this manager, or its engine is full. A job that is known is taken, and answered as it stands."""
        book, job_id = self.ledger.book, submission.job_id
        known = job_id in book.jobs or job_id in book.state.archive or job_id in book.state.tombstones
        return known or not (self.drained or self._calls.full)

    def flow(self) -> WorkFlow:
        """Returns the flow of work to the workers; nothing on a standby."""
        if self.leadership.leader is None or self._flow is None:
            return WorkFlow()
        return self._flow.measure(self.ledger.book, self.now())

    def node(self, name: str, address: str, started_at: float = 0.0) -> ManagerNode:
        """Returns this manager's description of itself. Raises `EngineUnavailableError` before it knows the engine's time."""
        time = self.leadership.time
        return ManagerNode(
            name=name,
            address=address,
            leads=self.leads,
            epoch=self.leadership.known_epoch,
            seq=self.ledger.seq,
            version=__version__,
            skew_s=time.skew_s,
            started_at=started_at or time.now(),
            heard_s_ago=0.0,
            closed=self.closed,
        )

    @property
    def ledger(self) -> JobLedger:
        return self.leadership.ledger

    async def answer(self, sender: str, request: Request) -> Reply:
        """Returns the reply to any request that `request_decoding` let in. Raises nothing: an error becomes a `Problem`, or a redirect to the leader."""
        handler = self.handlers.get(type(request))
        if handler is None:
            fact = f"a manager does not answer {request.__struct_config__.tag!r}"
            return Problem(kind=ProblemKind.UNKNOWN, fact=fact, remedy="GET /v1/openapi.json lists what it does")
        try:
            if isinstance(request, Placed) and request.datacenter not in ("", self.datacenter):
                return self._another(request)
            return await self._by_leader(handler, request)
        except TenureError as error:
            return problem(error)
        except Exception as error:
            kind = type(request).__name__
            failures = self.leadership.failures
            return problem(failures.note(FailedOn.REQUEST, kind, f"answering a {kind} from {sender}", error))

    async def _by_leader(self, handler: Callable[[Any], Awaitable[Reply]], request: Request) -> Reply:
        try:
            return await handler(request)
        except DeposedError:
            return self.leadership.elsewhere()

    def _another(self, request: Placed) -> Problem:
        return Problem(
            kind=ProblemKind.IMPOSSIBLE,
            fact=f"{request.__struct_config__.tag!r} is for datacenter {request.datacenter!r}, and this is a manager of {self.datacenter!r}",
            remedy="Ask a gate, or a manager of that datacenter; or leave the datacenter out",
        )

    # Writes

    async def write(self, command: Command) -> Reply:
        """Commits a command and returns the reply for the caller that asked for it. Raises `DeposedError` when this node does not lead."""
        decision = await self.leadership.commit(command)
        return Done(job_id=decision.job_id, outcome=decision.outcome, reason=decision.reason, epoch=self.epoch)

    def standings(self) -> list[WorkerStanding]:
        """Returns the workers as the leader sees them; empty on a standby, because workers report only to the leader."""
        leader = self.leadership.leader
        return leader.worker_reports.fleet.standings(self.now()) if leader is not None else []

    async def _report(self, report: WorkerReport) -> Reply:
        reports = self.worker_reports
        check_worker(self.ledger.book, report.worker)
        return await reports.report(report)

    async def _extend(self, ask: ExtendDeadline) -> Reply:
        return await self.worker_reports.extend(ask)
