"""What belongs to datacenters, asked through a gate in virtual time: gathered, passed on, or refused with whom to ask instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from tests.nodes.gate.harness import GateWorld
from tests.worlds.gates.cast import Plan

from tenure.control.messages.events import EventPage, GetEvents
from tenure.control.messages.gates import AskDatacenter, AskGate, Forward, GateView, TellDatacenter
from tenure.control.messages.jobs import Cancel, Done, GetJob, GetResult, JobList, JobView, ListJobs, ResultView
from tenure.control.messages.nodes import DrainNode, ListNodes, NodeList, UndrainNode
from tenure.control.messages.operations import OPERATIONS, AtGate, Role
from tenure.control.messages.queues import (
    DeadLetterList,
    GetDeadLetter,
    ListDeadLetters,
    ListQueues,
    ListSchedules,
    PauseQueue,
    QueueList,
    ResumeQueue,
    SetSchedule,
    TriggerSchedule,
)
from tenure.control.messages.tokens import Token
from tenure.control.messages.wire import Problem, ProblemKind, Request
from tenure.control.messages.workers import ExtendDeadline, WorkerReport
from tenure.control.tokens import TokenBook
from tenure.health.extension import HealthcheckExtensionRequest
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.state_records import Schedule
from tenure.nodes.gate.gate import Gate
from tenure.nodes.process import Environment
from tenure.nodes.token_keeper import TokenKeeper

SPEC = WorkflowSpec(name="w", arguments={"steps": 1, "ends": "well"})


@pytest.fixture(scope="module")
def nodes() -> Iterator[GateWorld]:
    made = GateWorld()
    made.pass_time(5.0)
    made.submit("warm", target_datacenters=("a", "b"), steps=2)  # a worker is known once it reported something
    made.until(lambda: made.job("warm").ended)
    yield made
    made.close()


def ask(nodes: GateWorld, request: Request, **options: Any) -> Any:
    return nodes.ask(request, **options)


def test_lists_are_gathered_from_every_datacenter_and_each_line_says_where_it_is_from(nodes: GateWorld) -> None:
    listed = ask(nodes, ListNodes())
    assert isinstance(listed, NodeList)
    assert {(one.name, one.datacenter) for one in listed.workers} == {("a-w1", "a"), ("b-w1", "b")}
    assert listed.missing == ()
    # The gates are nodes, too: this one and its peer, and one of them leads.
    assert {gate.address for gate in listed.gates} == {"g1:1", "g2:1"}
    assert [gate.leads for gate in listed.gates].count(True) == 1
    queues = ask(nodes, ListQueues())
    assert isinstance(queues, QueueList)
    assert [(one.name, one.datacenter) for one in queues.queues] == [("default", "a"), ("default", "b")]
    letters = ask(nodes, ListDeadLetters())
    assert isinstance(letters, DeadLetterList)
    assert (letters.count, letters.missing) == (0, ())
    # A gate that does not lead gathers by itself: nothing is asked of the leader.
    other = next(gate for gate in nodes.living() if not gate.leads)
    assert ask(nodes, ListQueues(), address=other.address).queues == queues.queues


def test_what_names_a_datacenter_is_asked_there_and_only_there(nodes: GateWorld) -> None:
    assert {one.datacenter for one in ask(nodes, ListNodes(datacenter="b")).workers} == {""}
    assert isinstance(ask(nodes, PauseQueue(queue="default", datacenter="b", by="ops")), Done)
    paused = {one.datacenter: one.paused for one in ask(nodes, ListQueues()).queues}
    assert paused == {"a": False, "b": True}
    assert isinstance(ask(nodes, ResumeQueue(queue="default", datacenter="b")), Done)
    # Jobs of a datacenter that no gate knows of are reached through it as well.
    schedule = Schedule(name="poll", job=JobSubmission(job_id="poll", workflows=(SPEC,)), every_s=86_400.0)
    assert isinstance(ask(nodes, SetSchedule(schedule=schedule, datacenter="a")), Done)
    assert [(one.schedule.name, one.datacenter) for one in ask(nodes, ListSchedules()).schedules] == [("poll", "a")]
    run = ask(nodes, TriggerSchedule(name="poll", job_id="poll/now", datacenter="a"))
    assert isinstance(run, Done)
    assert isinstance(ask(nodes, GetJob(job_id="poll/now")), Problem)
    there = ask(nodes, GetJob(job_id="poll/now", wait_s=8.0, datacenter="a"), timeout=20.0)
    assert isinstance(there, JobView)
    assert there.ended
    assert isinstance(ask(nodes, GetResult(job_id="poll/now", datacenter="a")), ResultView)
    assert "poll/now" in {row.job_id for row in ask(nodes, ListJobs(datacenter="a")).jobs}
    assert isinstance(ask(nodes, ListJobs(datacenter="b")), JobList)
    page = ask(nodes, GetEvents(after="0", job_id="poll/now", datacenter="a"))
    assert isinstance(page, EventPage)
    assert page.events[-1].event["type"] == "JobEnded"
    assert isinstance(ask(nodes, Cancel(job_id="poll/now", datacenter="a")), Done)


def test_what_would_have_to_be_guessed_is_refused_and_the_remedy_names_the_field(nodes: GateWorld) -> None:
    for request in (DrainNode(node="a-w1"), PauseQueue(queue="default"), GetDeadLetter(mailbox="m", id="1")):
        refused = ask(nodes, request)
        assert (refused.kind, refused.retryable) == (ProblemKind.IMPOSSIBLE, False)
        assert "is for one datacenter, and this gate has 2" in refused.fact
        assert "datacenter=a" in refused.remedy
        assert "There are: a, b" in refused.remedy
    mars = ask(nodes, ListNodes(datacenter="mars"))
    assert "does not know the datacenter 'mars'" in mars.fact
    page = ask(nodes, ListDeadLetters(after="1"))
    assert "Name both: datacenter" in page.remedy
    # What the datacenters refuse is refused in their words.
    assert "limit is 9999" in ask(nodes, ListDeadLetters(limit=9_999)).fact


def test_a_gate_of_one_datacenter_need_not_be_told_which() -> None:
    nodes = GateWorld(Plan.of(1, 1))
    try:
        nodes.pass_time(3.0)
        assert isinstance(ask(nodes, PauseQueue(queue="default")), Done)
        assert [one.paused for one in ask(nodes, ListQueues()).queues] == [True]
    finally:
        nodes.close()


class KeepingGate(Gate):
    """A gate that keeps tokens, as its process makes it do."""

    def __init__(self, name: str, address: str, environment: Environment, *given: Any, **options: Any) -> None:
        engine, calls, clock, log = environment.engine, environment.calls, environment.clock, environment.log
        tokens = TokenKeeper(engine, calls, clock, log, TokenBook(), lambda book: None)
        super().__init__(name, address, environment, *given, tokens=tokens, **options)


def test_no_operation_is_answered_as_if_there_were_none() -> None:
    """Every operation of the API has a word of its own at a gate, with a remedy where it is refused."""
    given: dict[str, Any] = {
        "submission": JobSubmission(job_id="any", workflows=(SPEC,), target_datacenters=("a",)),
        "submissions": (),
        "schedule": Schedule(name="any", job=JobSubmission(job_id="any", workflows=(SPEC,)), every_s=86_400.0),
        "request": HealthcheckExtensionRequest(
            worker_id="w",
            reason="long_workflow",
            current_progress=0.5,
            estimated_completion=1.0,
            active_workflow_count=1,
        ),
        "words": (),
        "ids": (),
        "job_ids": ("any",),
        "token": Token(name="any", role=Role.CLIENT, sha256="a" * 64),
        "body": msgspec.Raw(b"{}"),
    }
    with closing(GateWorld(gate_class=KeepingGate)) as nodes:
        nodes.until(lambda: any(gate.leads for gate in nodes.living()))
        for operation in OPERATIONS:
            fields = {
                field.name: given.get(field.name, "a" if field.name == "datacenter" else "any")
                for field in msgspec.structs.fields(operation.request)
                if field.required
            }
            reply = ask(nodes, operation.request(**fields))
            if isinstance(reply, Problem):
                assert reply.kind is not ProblemKind.FAILED, (operation.name, reply)
                known = "there is no" in reply.fact  # a job, a letter: the operation itself was understood
                assert reply.remedy or known or "must be" in reply.fact, (operation.name, reply)
                assert reply.kind is not ProblemKind.UNKNOWN or known, (operation.name, reply)
            if operation.at_gate is AtGate.REFUSED:
                assert isinstance(reply, Problem)
                assert (reply.kind, "this is a gate" in reply.fact) == (ProblemKind.IMPOSSIBLE, True)
                assert "Give the addresses of managers" in reply.remedy


def test_a_manager_refuses_what_is_for_another_datacenter_and_what_no_gate_passes_on(nodes: GateWorld) -> None:
    manager = nodes.plan.managers["b"][0]
    assert isinstance(ask(nodes, ListNodes(datacenter="b"), address=manager), NodeList)
    wrong = ask(nodes, DrainNode(node="b-w1", datacenter="a"), address=manager)
    assert (wrong.kind, "this is a manager of 'b'" in wrong.fact) == (ProblemKind.IMPOSSIBLE, True)
    for name, body in (("report", b'{"worker":"x"}'), ("forward", b"{}"), ("submit", b"{}"), ("none", b"{}")):
        refused = ask(nodes, Forward(name=name, body=msgspec.Raw(body), by="g"), address=manager)
        assert (refused.kind, "about one datacenter" in refused.fact) == (ProblemKind.IMPOSSIBLE, True)
    broken = ask(nodes, Forward(name="drain", body=msgspec.Raw(b'{"node":7}'), by="g"), address=manager)
    assert "the body of 'drain' cannot be read" in broken.fact


def test_a_datacenter_that_does_not_answer_is_named_and_the_rest_is_told() -> None:
    nodes = GateWorld(Plan.of(3, 1))
    try:
        nodes.pass_time(4.0)
        mend = nodes.cut("c")
        begun = nodes.world.now
        first = ask(nodes, ListQueues())
        assert nodes.world.now - begun <= 3.5  # not yet known to be silent: it is waited for, for its time
        assert [one.datacenter for one in first.missing] == ["c"]
        assert "did not answer" in first.missing[0].reason
        nodes.until(lambda: nodes.leader().watch.silent("c"), 30)
        begun = nodes.world.now
        silent = ask(nodes, ListNodes())
        assert nodes.world.now - begun < 0.5  # known to be silent: nobody waits for it
        assert {one.datacenter for one in silent.workers} <= {"a", "b"}
        assert [(one.datacenter, one.reason.startswith("it is silent")) for one in silent.missing] == [("c", True)]
        # What is for that one alone says so, and may be asked again.
        alone = ask(nodes, PauseQueue(queue="default", datacenter="c"), timeout=20.0)
        assert (alone.kind, alone.retryable) == (ProblemKind.UNAVAILABLE, True)
        for name in ("a", "b"):
            nodes.cut(name)
        nodes.pass_time(10.0)
        nobody = ask(nodes, ListQueues())
        assert (nobody.kind, nobody.retryable) == (ProblemKind.UNAVAILABLE, True)
        assert all(f"{name}: it is silent" in nobody.fact for name in ("a", "b", "c"))
        mend()
    finally:
        nodes.close()


def test_work_is_not_placed_where_operators_drained_every_worker() -> None:
    nodes = GateWorld(Plan.of(2, 2))
    try:
        nodes.submit("warm", target_datacenters=("a", "b"), steps=2)
        nodes.until(lambda: nodes.job("warm").ended)
        assert isinstance(ask(nodes, DrainNode(node="a-w1", datacenter="a", reason="new kernel")), Done)

        def place(name: str) -> Any:
            view = ask(nodes, AskGate())
            assert isinstance(view, GateView)
            return next(one for one in view.datacenters if one.name == name)

        # Its workers go on reporting.
        nodes.submit("keep", target_datacenters=("a", "b"), steps=40, timeout_seconds=200)
        nodes.until(lambda: place("a").rule == "drained", 30, step=0.5)
        assert place("a").health == "DEGRADED"
        assert "operators drained every worker there" in place("a").reason
        for number in range(6):
            nodes.submit(f"free-{number}", steps=1)
        assert {tuple(one.name for one in nodes.job(f"free-{number}").datacenters) for number in range(6)} == {("b",)}
        both = nodes.submit("both", datacenters=2)
        assert isinstance(both, Problem)
        assert "a: operators drained every worker there" in both.fact
        # One that names it waits for it, as for one that is away.
        assert isinstance(nodes.submit("named", target_datacenters=("a",), steps=1), Done)
        assert isinstance(ask(nodes, UndrainNode(node="a-w1", datacenter="a")), Done)
        nodes.until(lambda: place("a").rule != "drained", 30, step=0.5)
    finally:
        nodes.close()


def test_jobs_that_were_passed_on_or_withdrawn_do_not_count_as_lying_at_the_gate() -> None:
    nodes = GateWorld(Plan.of(2, 2))
    try:
        nodes.pass_time(4.0)
        for number in range(5):
            nodes.submit(f"j-{number}", target_datacenters=("a",), steps=1)
        nodes.submit("cancelled", target_datacenters=("a", "b"), ends="hang")
        nodes.cancel("cancelled")
        nodes.pass_time(15.0)
        state = nodes.leader().fitness.own_state()
        assert (state.jobs_waiting, str(state.progress_state)) == (0, "normal")
        assert ask(nodes, AskGate()).fit_to_lead
    finally:
        nodes.close()


def test_what_is_for_managers_only_says_whom_to_ask(nodes: GateWorld) -> None:
    for request in (WorkerReport(worker="w"), AskDatacenter(), TellDatacenter(datacenter="a")):
        refused = ask(nodes, request)
        assert isinstance(refused, Problem)
        assert "--managers" in refused.remedy
    assert ExtendDeadline in {operation.request for operation in OPERATIONS if operation.at_gate is AtGate.REFUSED}


def test_a_wait_that_no_manager_allows_is_refused_in_its_words(nodes: GateWorld) -> None:
    for wait_s in (-5.0, 1e6):
        refused = ask(nodes, GetJob(job_id="warm", wait_s=wait_s, datacenter="a"))
        assert (refused.kind, "wait_s" in refused.fact) == (ProblemKind.INVALID, True)
