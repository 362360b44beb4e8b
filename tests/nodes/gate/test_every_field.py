"""Every field of every view and row of a job comes through a gate as the datacenter's manager shows it.

The submission sets each of its fields, and the walk asks gate and manager at moments at which each field of the replies has something to show. A new
field fails the test until it is set here, shown by both, or listed with the reason why a gate may show something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.nodes.gate.harness import GateWorld
from tests.worlds.gates.cast import Plan
from tests.worlds.planes import SimCaller

from tenure.attempt_data import WaitsFor
from tenure.backoff import Retry
from tenure.control.messages.jobs import (
    GetJob,
    GetResult,
    JobList,
    JobRow,
    JobView,
    ListJobs,
    PauseRunningJob,
    ResultView,
    ResumePausedJob,
    RetryJob,
    SignalJob,
    Submit,
    WorkflowView,
)
from tenure.control.messages.wire import Problem
from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.control.messages.workflows import ListWorkflows
from tenure.engines.contracts import Mailbox
from tenure.jobs.catalogue import offer_digest
from tenure.jobs.mailbox_names import work_mailbox
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import JobState, OnFailure
from tenure.served_workflow import KeyLimit, ServedWorkflow
from tenure.sim.world import Host
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult

MANAGER = "a-m1:1"
RESULT_TTL_S = 20.0

RETRY: dict[str, Any] = {
    "max_attempts": 2,
    "delay": 0.5,
    "factor": 3.0,
    "max_delay": 60.0,
    "jitter": 0.0,
    "max_restarts": 9,
}
ENCODE: dict[str, Any] = {
    "name": "encode",
    "function": "media.encode",
    "arguments": {"frames": 7},
    "after": ("fetch",),
    "on_failure": OnFailure.CONTINUE,
    "retry": Retry(**RETRY),
    "max_attempts": 2,
    "stall": 25.0,
    "version": "3",
    "concurrency": KeyLimit(key="args.frames", most=2),
}
SUBMISSION: dict[str, Any] = {
    "job_id": "whole",
    "workflows": (WorkflowSpec(name="fetch", arguments={"url": "x"}), WorkflowSpec(**ENCODE)),
    "timeout_seconds": 300.0,
    "grace": 20.0,
    "stuck_threshold": 90.0,
    "gate_addr": ("elsewhere", 1),
    "gate_addrs": (("elsewhere", 2),),
    "gate_epoch": 5,
    "target_datacenters": ("a",),
    "datacenters": 2,
    "global_submitted_at": 12.0,
    "idempotency_key": "once",
    "name": "nightly",
    "queue": "gpu",
    "priority": 3,
    "park": True,
    "delay": 2.0,
    "result_ttl": RESULT_TTL_S,
    "submitted_by": "ann",
    "labels": {"team": "x"},
    "among": {"team": "x"},
    "retry_of": "earlier",
}

REFUSED_BY_GATES = {"unique", "undo_of", "arguments_at"}
NEEDS_STEPS = {"retry_from"}
"""A datacenter refuses what has no steps to begin from (`test_gate.py` has one that has)."""

MAY_DIFFER: dict[type[msgspec.Struct], dict[str, str]] = {
    JobView: {
        "reason": "the gate says in which datacenters the job ended",
        "submitted_at": "the gate accepted the job before the datacenter did",
        "ended_at": "the gate decides on the end when it hears of it",
        "deadline": "the gate's counts from its own submission",
        "now": "each answers at its own time",
        "datacenters": "only a gate has datacenters",
        "grants": "the gate keeps the global deadline; each datacenter keeps the others",
        "workflows": "compared one by one",
        "pause": "the gate decides on it before the datacenter hears of it",
        "signals": "a gate keeps none, and the request says so",
    },
    WorkflowView: {
        "datacenter": "a manager has only its own",
        "grants": "each counts from the time of its answer",
        "eta": "each counts from the time of its answer",
    },
    JobRow: {
        "reason": "the gate says in which datacenters the job ended",
        "submitted_at": "the gate accepted the job before the datacenter did",
        "ended_at": "the gate decides on the end when it hears of it",
        "grants": "the gate keeps the global deadline; each datacenter keeps the others",
        "waits_for": "a report to a gate does not say it; the view of a job does",
        "progress": "a report to a gate counts workflows that ended, and no fraction of those that run",
    },
    ResultView: {},
}
STATES = {JobState.PENDING: JobState.RUNNING}
"""The states that a gate shows otherwise: a job that waits in its datacenter is under way for its gate."""


LANES = ("gpu.p3",)
GO = {"type": "object", "properties": {"go": {"type": "string"}}}
SERVED = (ServedWorkflow(name="fetch", version="1", signals=GO), ServedWorkflow(name="media.encode", version="3"))


class Worker:
    """Runs one attempt at a time, as the test tells it to, and reports it with every field set."""

    def __init__(self) -> None:
        self.runs = ""
        self.number = 0
        self.outcome: WorkFailure | WaitsFor | bytes | None = None

    async def run(self, host: Host) -> None:
        caller = SimCaller(host)
        await caller.ask(MANAGER, self._report(serves=offer_digest(LANES, SERVED), workflows=SERVED), 2.0)
        for function, version in (("fetch", ""), ("media.encode", "3")):  # in the order in which the job runs them
            mailbox = work_mailbox("gpu", 3, function, version)
            await self._work(host, caller, host.engine.mailbox(mailbox, WorkItem, WorkResult))

    async def _work(self, host: Host, caller: SimCaller, mailbox: Mailbox[WorkItem, WorkResult]) -> None:
        while not (messages := await host.calls.run(mailbox.receive, 1, 60.0, 5.0)):
            pass
        (message,) = messages
        item, self.runs, self.outcome = message.body, message.body.workflow_id, None
        while self.outcome is None:
            self.number += 1
            one = AttemptReport(
                job_id=item.job_id,
                workflow=item.workflow_id,
                attempt=item.attempt,
                delivery=message.delivery_count,
                steps=4,
                fraction=min(0.5, self.number / 6),  # it rises at first, so that there is an estimate
                stall_s=25.0,
                note="frame 3",
                exposed='{"status": "reels"}',
                lease_s=60.0,
                unproven=True,
            )
            await caller.ask(MANAGER, self._report(attempts=(one,), steps=self.number, number=self.number), 2.0)
            await host.clock.async_sleep(0.5)
        failure = self.outcome if isinstance(self.outcome, WorkFailure) else None
        result = WorkResult(
            job_id=item.job_id,
            workflow_id=item.workflow_id,
            workflow=item.workflow,
            attempt=item.attempt,
            fence=message.fence,
            worker="w-gpu",
            failure=failure,
            result=msgspec.Raw(self.outcome if isinstance(self.outcome, bytes) else b"null"),
        )
        waits = self.outcome if isinstance(self.outcome, WaitsFor) else None
        await host.calls.run(message.settle, msgspec.structs.replace(result, suspended=waits))
        self.runs = ""
        if waits is not None:
            await self._work(host, caller, mailbox)

    def _report(self, **fields: Any) -> WorkerReport:
        return WorkerReport(worker="w-gpu", slots=1, lanes=LANES, **fields)


async def serve_something_else(host: Host) -> None:
    served = (ServedWorkflow(name="other", version="1"),)
    report = WorkerReport(
        worker="w-other", lanes=("cpu.p0",), serves=offer_digest(("cpu.p0",), served), workflows=served
    )
    await SimCaller(host).ask(MANAGER, report, 2.0)


@pytest.fixture
def nodes() -> Iterator[GateWorld]:
    made = GateWorld(Plan.of(1, 1))
    yield made
    made.close()


def defaults(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        field.name: None
        if field.required
        else field.default_factory()
        if field.default is msgspec.NODEFAULT
        else field.default
        for field in msgspec.structs.fields(struct)
    }


@pytest.mark.parametrize(("struct", "given"), [(JobSubmission, SUBMISSION), (WorkflowSpec, ENCODE), (Retry, RETRY)])
def test_the_submission_of_this_walk_sets_every_field(struct: type[msgspec.Struct], given: dict[str, Any]) -> None:
    plain = defaults(struct)
    assert set(given) == set(plain) - REFUSED_BY_GATES - NEEDS_STEPS
    assert [name for name, value in given.items() if value == plain[name]] == []


class Walk:
    """Compares the answers of gate and manager, and remembers which fields had anything to show."""

    def __init__(self, nodes: GateWorld) -> None:
        self._stage = nodes
        self.shown: dict[type[msgspec.Struct], set[str]] = {kind: set() for kind in MAY_DIFFER}

    def compare(self, by_gate: Any, by_manager: Any) -> None:
        kind = type(by_manager)
        assert type(by_gate) is kind, by_gate
        plain = defaults(kind)
        for name in kind.__struct_fields__:
            ours, theirs = getattr(by_gate, name), getattr(by_manager, name)
            if ours != plain[name]:
                self.shown[kind].add(name)
            if isinstance(theirs, JobState):
                assert ours is STATES.get(theirs, theirs)
            elif name not in MAY_DIFFER[kind]:
                assert ours == theirs, f"{kind.__name__}.{name}"

    def ask(self, request: Any) -> tuple[Any, Any]:
        """Asks the gate itself, and the manager through it."""
        there = msgspec.structs.replace(request, datacenter="a")
        return self._stage.ask(request), self._stage.ask(there)

    def look(self) -> JobView:
        by_gate, by_manager = self.ask(GetJob(job_id="whole"))
        self.compare(by_gate, by_manager)
        for ours, theirs in zip(by_gate.workflows, by_manager.workflows, strict=True):
            self.compare(ours, theirs)
        rows = [[one for one in reply.jobs if one.job_id == "whole"] for reply in self.ask(ListJobs(args=True))]
        (ours,), (theirs,) = rows
        self.compare(ours, theirs)
        for one in by_gate.workflows:
            self.compare(*self.ask(GetResult(job_id="whole", workflow=one.name)))
        assert isinstance(by_gate, JobView)
        return by_gate

    def retry(self) -> WorkflowView:
        """Retries the job at the gate. Returns the view of the workflow that completed before, as the gate shows it."""
        again = self._stage.ask(RetryJob(job_id="whole")).job_id
        self._stage.until(lambda: self._stage.job(again).workflows)
        by_gate, by_manager = (reply.workflows[0] for reply in self.ask(GetJob(job_id=again)))
        self.compare(by_gate, by_manager)
        self.compare(*self.ask(GetResult(job_id=again, workflow=by_gate.name)))
        assert isinstance(by_gate, WorkflowView)
        return by_gate


def test_a_gate_shows_every_field_of_a_job_as_its_datacenter_does(nodes: GateWorld) -> None:
    worker, walk = Worker(), Walk(nodes)
    nodes.world.node("w-other", serve_something_else, engine="a").start()
    nodes.until(lambda: nodes.ask(ListWorkflows(datacenter="a")).workflows)
    nodes.ask(Submit(submission=JobSubmission(**SUBMISSION)))
    nodes.until(lambda: nodes.job("whole").workflows)
    nodes.pass_time(SUBMISSION["delay"] + 1.0)
    assert "a worker that serves 'fetch' in queue 'gpu' at priority 3" in walk.look().workflows[0].waits_for
    nodes.world.node("w-gpu", worker.run, engine="a").start()
    nodes.until(lambda: worker.runs == "fetch")
    nodes.pass_time(2.0)  # for the next report to the gate
    walk.look()
    worker.outcome = WaitsFor(step="event go #1", event="go")
    nodes.until(lambda: nodes.job("whole").workflows[0].signal)
    refused = nodes.ask(SignalJob(job_id="whole", name="go", signal_id="1", payload=7))
    assert isinstance(refused, Problem)
    assert "field 'payload' is 7, and should be a string" in refused.fact
    nodes.pass_time(2.0)
    walk.look()
    nodes.ask(SignalJob(job_id="whole", name="go", signal_id="2", payload="on"))
    nodes.until(lambda: worker.runs == "fetch")
    worker.outcome = b'{"frames": 7}'
    nodes.until(lambda: worker.runs == "encode")
    nodes.pass_time(2.0)
    walk.look()
    nodes.ask(PauseRunningJob(job_id="whole", reason="wait", by="ann"))
    nodes.until(lambda: nodes.ask(GetJob(job_id="whole", datacenter="a")).pause)
    walk.look()
    nodes.ask(ResumePausedJob(job_id="whole", reason="go on", by="ann"))
    nodes.until(lambda: not nodes.ask(GetJob(job_id="whole", datacenter="a")).pause)
    worker.outcome = WorkFailure(cause=Cause.BAD_RESULT, reason="out of tape")
    nodes.until(lambda: nodes.job("whole").ended)
    nodes.pass_time(2.0)
    assert walk.look().workflows[0].result == {"frames": 7}
    taken = walk.retry()
    assert (taken.taken_from, taken.state, taken.result) == ("whole", "completed", {"frames": 7})
    nodes.pass_time(RESULT_TTL_S)
    expired = walk.look()
    assert expired.results_expired
    assert expired.workflows[0].result is None
    walk.shown[JobRow].add("waits_for")
    walk.shown[JobView].add("signals")
    for kind, shown in walk.shown.items():
        assert set(kind.__struct_fields__) - shown == set(), f"this walk shows nothing of {kind.__name__}"


def test_a_gate_shows_its_own_submission_while_the_datacenter_does_not_answer(nodes: GateWorld) -> None:
    nodes.cut("a")
    nodes.ask(Submit(submission=JobSubmission(**SUBMISSION)))
    view = nodes.job("whole")
    assert view.workflows == ()
    assert (view.name, view.queue, view.labels, view.submitted_by) == ("nightly", "gpu", {"team": "x"}, "ann")


FILTERS: dict[str, tuple[Any, Any]] = {
    "state": (JobState.RUNNING, JobState.FAILED),
    "queue": ("gpu", "cpu"),
    "name": ("night", "day"),
    "function": ("media.encode", "media.decode"),
    "label": ("team=x", "team=y"),
    "arg": ("frames=7", "frames=8"),
    "since": (1.0, 9e9),
    "until": (9e9, 1.0),
}
"""For each filter a value that finds the job, and one that does not."""


def test_every_filter_of_a_list_means_the_same_at_a_gate(nodes: GateWorld) -> None:
    assert set(FILTERS) == set(ListJobs.__struct_fields__) - {"datacenter", "after", "limit", "args"}
    worker = Worker()
    nodes.world.node("w-gpu", worker.run, engine="a").start()
    nodes.until(lambda: nodes.ask(ListWorkflows(datacenter="a")).workflows)
    nodes.ask(Submit(submission=JobSubmission(**{**SUBMISSION, "delay": 0.0})))
    nodes.until(lambda: worker.runs == "fetch")
    nodes.pass_time(1.0)
    for name, (fits, misses) in FILTERS.items():
        for value, found in ((fits, ["whole"]), (misses, [])):
            for datacenter in ("", "a"):
                reply = nodes.ask(ListJobs(**{name: value}, datacenter=datacenter))
                assert isinstance(reply, JobList), reply
                assert [row.job_id for row in reply.jobs] == found, (name, value, datacenter)


def test_a_job_that_nobody_knows_is_unknown_to_both(nodes: GateWorld) -> None:
    for datacenter in ("", "a"):
        reply = nodes.ask(GetJob(job_id="nobody", datacenter=datacenter))
        assert isinstance(reply, Problem)
        assert reply.kind == "unknown"
