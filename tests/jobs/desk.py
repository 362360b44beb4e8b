"""A manager and a gate without their shells: decide, encode, append to a list, decode, fold. As the nodes do it."""

from __future__ import annotations

from typing import Any

from tenure.jobs import (
    Decision,
    GateJobTracker,
    GateJobTrackingInfo,
    GateSettings,
    JobBook,
    JobGlobalTimeout,
    JobProgressReport,
    JobSettings,
    JobSubmission,
    JobTimeoutReport,
    WorkflowSpec,
    decide,
    decide_gate,
)
from tenure.jobs.attempt_results import RecordFailure, RecordResult
from tenure.jobs.attempts import RecordDispatched, RecordProgress, RecordStarted
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command, GateDecision, Rules, encode_event
from tenure.jobs.gate_decisions import CheckGlobal
from tenure.jobs.gate_exchange import AnswerQuery, HearGate, ObeyGlobalCancel, ObeyGlobalTimeout, report_for
from tenure.jobs.gate_jobs import GateSubmit, GateTakeLead
from tenure.jobs.gate_outbox import owed
from tenure.jobs.gate_reports import HearCorrection, HearProgress, HearTimeout
from tenure.jobs.messages import Identity, JobGlobalCancel, JobOrder, JobStatusQuery
from tenure.jobs.states import AttemptCause
from tenure.jobs.steering import ObeyOrder
from tenure.jobs.submission import SubmitJob
from tenure.jobs.timeout import CheckJob, ProgressWatch, next_due
from tenure.timers import Timers

GATE = ("gate.example", 7000)


def spec(name: str = "w", **options: Any) -> WorkflowSpec:
    return WorkflowSpec(name=name, **options)


def submission(job_id: str = "j", *specs: WorkflowSpec, **options: Any) -> JobSubmission:
    return JobSubmission(job_id=job_id, workflows=specs or (spec(),), **options)


class Desk:
    """One datacenter's leader."""

    def __init__(
        self, datacenter: str = "dc-a", *, at: float = 0.0, settings: JobSettings | None = None, lead: bool = True
    ) -> None:
        self.settings = settings or JobSettings()
        self.book = JobBook(self.settings)
        self.journal: list[bytes] = []
        self.at = at
        self.rules = Rules()
        self.progress = ProgressWatch()
        self.timers: Timers[str] = Timers()
        self.datacenter = datacenter
        self.identity = Identity(datacenter, "m1", "10.0.0.1", 7001)
        if lead:
            self.elect("m1")

    def now(self) -> float:
        return self.at

    async def commit(self, command: Command) -> Decision:
        return self.do(command)

    def fold(self, decision: Decision) -> None:
        encoded = [encode_event(event) for event in decision.events]
        self.journal += encoded
        self.book.replay(encoded)

    def do(self, command: Command) -> Decision:
        decision = decide(self.book, command, self.at, self.rules)
        self.fold(decision)
        return decision

    def elect(self, leader: str) -> None:
        self.identity = Identity(self.datacenter, leader, "10.0.0.1", 7001)
        self.progress = ProgressWatch()
        self.do(TakeLead(epoch=self.book.epoch + 1, leader=leader))

    def submit(self, job_id: str = "j", *specs: WorkflowSpec, **options: Any) -> Decision:
        return self.do(SubmitJob(by="client", submission=submission(job_id, *specs, **options)))

    def run(
        self, job_id: str = "j", workflow: str = "w", *, worker: str = "w1", attempt: int = 1, **options: Any
    ) -> None:
        self.do(RecordDispatched(job_id=job_id, workflow=workflow, attempt=attempt))
        decision = self.do(RecordStarted(job_id=job_id, workflow=workflow, attempt=attempt, worker=worker, **options))
        assert decision.events, decision

    def advance(
        self,
        steps: int,
        job_id: str = "j",
        workflow: str = "w",
        *,
        worker: str = "w1",
        attempt: int = 1,
        **options: Any,
    ) -> Decision:
        command = RecordProgress(
            job_id=job_id, workflow=workflow, attempt=attempt, worker=worker, steps=steps, **options
        )
        decision = self.do(command)
        if decision.outcome != "refused":
            self.progress.observe(command, self.at)
        return decision

    def result(self, job_id: str = "j", workflow: str = "w", *, attempt: int = 1, **options: Any) -> Decision:
        return self.do(RecordResult(job_id=job_id, workflow=workflow, attempt=attempt, **options))

    def fail(
        self,
        job_id: str = "j",
        workflow: str = "w",
        *,
        attempt: int = 1,
        cause: AttemptCause = AttemptCause.ERROR,
        **options: Any,
    ) -> Decision:
        return self.do(RecordFailure(job_id=job_id, workflow=workflow, attempt=attempt, cause=cause, **options))

    def check(self, job_id: str = "j", **options: Any) -> Decision:
        return self.do(CheckJob(job_id=job_id, progress_at=self.progress.last(job_id), **options))

    def report(self, job_id: str = "j") -> Any:
        return report_for(self.book.job(job_id), self.identity, self.at, self.settings, self.progress.last(job_id))

    def due(self, job_id: str = "j") -> float:
        return next_due(self.book.job(job_id), self.settings, self.progress.last(job_id))

    def state(self, job_id: str = "j") -> str:
        return self.book.job(job_id).state

    def kinds(self) -> list[str]:
        return [event.split(b'"', 4)[3].decode() for event in self.journal]


class GateDesk:
    """The leader of a gate cluster."""

    def __init__(self, *, at: float = 0.0, settings: GateSettings | None = None, lead: bool = True) -> None:
        self.settings = settings or GateSettings()
        self.tracker = GateJobTracker(self.settings)
        self.journal: list[bytes] = []
        self.at = at
        self.rules = Rules()
        if lead:
            self.elect("g1")

    def do(self, command: Command) -> GateDecision:
        decision = decide_gate(self.tracker, command, self.at, self.rules)
        encoded = [encode_event(event) for event in decision.events]
        self.journal += encoded
        self.tracker.replay(encoded)
        return decision

    def elect(self, gate: str, epoch: int | None = None) -> None:
        self.do(GateTakeLead(epoch=epoch or self.tracker.epoch + 1, gate=gate))


class Both:
    """A gate and its datacenters, with messages carried by hand."""

    def __init__(self, *names: str, timeout: float = 600.0, at: float = 0.0) -> None:
        self.names = names or ("dc-a", "dc-b")
        self.gate = GateDesk(at=at)
        self.desks = {name: Desk(name, at=at) for name in self.names}
        asked = submission("j", timeout_seconds=timeout, gate_addr=GATE)
        self.gate.do(GateSubmit(by="client", submission=asked, target_datacenters=self.names))

    @property
    def info(self) -> GateJobTrackingInfo:
        return self.gate.tracker.job("j")

    def start(self) -> Both:
        """Submitted everywhere, running everywhere, heard of by the gate."""
        for name in self.names:
            self.tell(name)
            self.desks[name].run()
            self.report(name)
        return self

    def at(self, now: float) -> Both:
        self.gate.at = now
        for desk in self.desks.values():
            desk.at = now
        return self

    def owed(self, name: str) -> Any:
        """What the gate has to say to a datacenter now."""
        return next((item.message for item in owed(self.gate.tracker, self.info) if item.datacenter == name), None)

    def tell(self, name: str, message: Any = None) -> Any:
        """Carry a message of the gate to a datacenter; its answer, which is not carried back."""
        desk, message = self.desks[name], message or self.owed(name)
        if isinstance(message, JobSubmission):
            desk.do(SubmitJob(by="gate", submission=message))
            return None
        if isinstance(message, JobGlobalTimeout):
            return desk.do(ObeyGlobalTimeout(message=message, identity=desk.identity)).reply
        if isinstance(message, JobGlobalCancel):
            return desk.do(ObeyGlobalCancel(message=message, identity=desk.identity)).reply
        if isinstance(message, JobOrder):
            return desk.do(ObeyOrder(message=message, identity=desk.identity)).reply
        if isinstance(message, JobStatusQuery):
            return desk.do(AnswerQuery(message=message, identity=desk.identity)).reply
        return desk.do(HearGate(message=message))

    def hear(self, message: Any) -> GateDecision:
        """Carry a message of a datacenter to the gate."""
        if isinstance(message, JobProgressReport):
            return self.gate.do(HearProgress(report=message))
        if isinstance(message, JobTimeoutReport):
            return self.gate.do(HearTimeout(report=message))
        return self.gate.do(HearCorrection(correction=message))

    def report(self, name: str) -> GateDecision:
        """The datacenter's report that is due, carried to the gate, and the answer carried back."""
        decision = self.hear(self.desks[name].report())
        if decision.ack is not None:
            self.tell(name, decision.ack)
        return decision

    def settle(self, name: str) -> None:
        """Carry the decision there, and the answer back."""
        self.hear(self.tell(name))

    def check(self, **options: Any) -> GateDecision:
        return self.gate.do(CheckGlobal(job_id="j", **options))

    def state(self, name: str) -> str:
        return self.desks[name].state()
