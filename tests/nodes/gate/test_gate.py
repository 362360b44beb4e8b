"""A gate in virtual time: places jobs, keeps their deadlines everywhere, passes on, sheds, hands over, and tells what it knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.nodes.gate.harness import GateWorld
from tests.worlds.gates.cast import Pace, Plan

from tenure.control.messages.gates import AskGate, GateView
from tenure.control.messages.job_output import GetLogs, GetOutput, LogPage, OutputPage
from tenure.control.messages.jobs import (
    AskWhy,
    Cancel,
    Done,
    GetJob,
    GetResult,
    JobList,
    JobView,
    ListJobs,
    ManySubmitted,
    ResultView,
    RetryJob,
    Submit,
    SubmitMany,
    WhyReply,
)
from tenure.control.messages.wire import AskLeader, LeaderView, Problem, ProblemKind
from tenure.health.overload import OverloadAssessment, OverloadState
from tenure.jobs.decisions import Outcome
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import GateSettings
from tenure.jobs.states import JobState
from tenure.nodes.gate.probes import ProbeSettings


@pytest.fixture
def nodes() -> Iterator[GateWorld]:
    made = GateWorld()
    yield made
    made.close()


@pytest.fixture
def three() -> Iterator[GateWorld]:
    made = GateWorld(Plan.of(3, 2))
    yield made
    made.close()


def states(view: JobView) -> dict[str, str]:
    return {place.name: str(place.state) for place in view.datacenters}


def test_a_job_runs_where_it_says_and_its_results_come_from_everywhere(nodes: GateWorld) -> None:
    done = nodes.submit("j", target_datacenters=("a", "b"), steps=2)
    assert (done.outcome, done.job_id) == (Outcome.ACCEPTED, "j")
    nodes.until(lambda: nodes.job("j").ended)
    view = nodes.job("j")
    assert view.state is JobState.COMPLETED
    assert states(view) == {"a": "completed", "b": "completed"}
    assert [(one.datacenter, one.name, str(one.state)) for one in view.workflows] == [
        ("a", "a/w", "completed"),
        ("b", "b/w", "completed"),
    ]
    reply = nodes.ask(AskWhy(job_id="j"))
    assert isinstance(reply, WhyReply)
    runs = [(one.workflow, one.worker.partition("/")[0], one.outcome) for one in reply.why.runs]
    assert sorted(runs) == [("a/w", "a", "completed"), ("b/w", "b", "completed")]
    told = reply.text
    assert "submitted with 60 s to a, b" in told
    assert "In a: Nothing ended it early: it completed" in told
    assert "In b: Nothing ended it early: it completed" in told


def test_the_same_submission_is_one_job_and_another_under_its_id_is_refused(nodes: GateWorld) -> None:
    assert nodes.submit("j").outcome is Outcome.ACCEPTED
    assert nodes.submit("j").outcome is Outcome.ALREADY
    other = nodes.submit("j", steps=4)
    assert isinstance(other, Problem)
    assert other.kind is ProblemKind.CONFLICT


def test_many_at_once_results_retries_logs_and_lists_as_a_manager_has_them(nodes: GateWorld) -> None:
    spec = WorkflowSpec(name="w", arguments={"steps": 1, "ends": "well"})

    def one(job_id: str, **options: Any) -> JobSubmission:
        return JobSubmission(job_id=job_id, workflows=(spec,), **options)

    many = nodes.ask(
        SubmitMany(
            submissions=(
                one("one", target_datacenters=("a",), labels={"team": "x"}),
                one("both", target_datacenters=("a", "b"), name="nightly"),
                one("wrong", target_datacenters=("mars",)),
            )
        )
    )
    assert isinstance(many, ManySubmitted)
    assert [(job.job_id, str(job.outcome)) for job in many.jobs] == [
        ("one", "accepted"),
        ("both", "accepted"),
        ("wrong", "refused"),
    ]
    nodes.until(lambda: nodes.job("one").ended and nodes.job("both").ended)
    result = nodes.ask(GetResult(job_id="one"))
    assert isinstance(result, ResultView)
    assert (result.workflow, result.ready) == ("w", True)
    there = nodes.ask(GetResult(job_id="both", workflow="b/w"))
    assert isinstance(there, ResultView)
    assert there.ready
    unnamed = nodes.ask(GetResult(job_id="both"))
    assert isinstance(unnamed, Problem)
    assert "Name one of: a/w, b/w" in unnamed.remedy
    # Logs are where it ran.
    logs = nodes.ask(GetLogs(job_id="both", workflow="b/w"))
    assert isinstance(logs, LogPage)
    assert (logs.workflow, logs.ended) == ("w", True)
    assert isinstance(nodes.ask(GetLogs(job_id="both", workflow="w")), Problem)
    output = nodes.ask(GetOutput(job_id="both", workflow="b/w", after=2))
    assert isinstance(output, OutputPage)
    assert (output.workflow, output.next, output.ended) == ("w", 2, True)
    # Another try runs in the same places.
    again = nodes.ask(RetryJob(job_id="both", by="test"))
    assert isinstance(again, Done)
    assert (again.job_id, again.outcome) == ("both~2", Outcome.ACCEPTED)
    assert sorted(states(nodes.job("both~2"))) == ["a", "b"]
    early = nodes.ask(RetryJob(job_id="both~2"))
    assert isinstance(early, Problem)
    assert early.kind is ProblemKind.CONFLICT

    def listed(**filters: Any) -> list[str]:
        reply = nodes.ask(ListJobs(**filters))
        assert isinstance(reply, JobList)
        return [row.job_id for row in reply.jobs]

    assert set(listed()) == {"one", "both", "both~2"}
    assert listed(label="team=x") == ["one"]
    assert set(listed(name="nightly")) == {"both", "both~2"}
    assert set(listed(function="w")) == {"one", "both", "both~2"}
    assert listed(function="other") == listed(queue="other") == []
    first = nodes.ask(ListJobs(limit=2))
    assert isinstance(first, JobList)
    assert (len(first.jobs), first.known) == (2, 3)
    assert [*(row.job_id for row in first.jobs), *listed(after=first.next)] == listed()


def test_a_job_that_names_no_datacenter_gets_the_best_and_one_that_names_an_unknown_one_is_refused(
    nodes: GateWorld,
) -> None:
    assert isinstance(nodes.submit("best"), Done)
    nodes.until(lambda: nodes.job("best").ended)
    assert len(states(nodes.job("best"))) == 1
    assert isinstance(nodes.submit("two", datacenters=2), Done)
    assert sorted(states(nodes.job("two"))) == ["a", "b"]
    refused = nodes.submit("nowhere", target_datacenters=("mars",))
    assert isinstance(refused, Problem)
    assert "datacenter 'mars', which this gate does not know. There are: a, b" in f"{refused.fact}. {refused.remedy}"
    many = nodes.submit("many", datacenters=9)
    assert isinstance(many, Problem)
    assert (many.kind, many.retryable) == (ProblemKind.IMPOSSIBLE, False)  # however often it is asked
    assert "needs 9 datacenters, and this gate has 2" in many.fact
    nodes.cut("b")
    nodes.until(lambda: nodes.leader().watch.class_of("b") == "UNHEALTHY", 40)
    both = nodes.submit("both", datacenters=2)
    assert isinstance(both, Problem)
    assert (both.kind, both.retryable) == (ProblemKind.UNAVAILABLE, True)  # until b is back
    assert "needs 2 datacenters, and 1 can take it" in both.fact


def test_a_deadline_passes_everywhere_within_a_round_trip(nodes: GateWorld) -> None:
    nodes.submit(
        "slow", target_datacenters=("a", "b"), ends="hang", timeout_seconds=6.0, stuck_threshold=5.9, grace=0.0
    )
    submitted = nodes.world.now
    nodes.until(lambda: nodes.job("slow").ended)
    assert 6.0 <= nodes.world.now - submitted <= 6.3
    assert nodes.job("slow").state is JobState.TIMED_OUT
    assert states(nodes.job("slow")) == {"a": "timed_out", "b": "timed_out"}


def test_a_cancel_reaches_every_datacenter_within_a_round_trip(nodes: GateWorld) -> None:
    nodes.submit("unwanted", target_datacenters=("a", "b"), ends="hang")
    nodes.pass_time(3.0)
    assert nodes.cancel("unwanted").outcome is Outcome.ACCEPTED
    assert nodes.until(lambda: nodes.job("unwanted").ended) <= 0.15
    assert states(nodes.job("unwanted")) == {"a": "cancelled", "b": "cancelled"}
    assert nodes.cancel("unwanted").outcome is Outcome.ALREADY
    # One that is not known yet will not run.
    assert nodes.cancel("never").outcome is Outcome.ACCEPTED
    nodes.submit("never", target_datacenters=("a",))
    nodes.until(lambda: nodes.job("never").ended)
    assert nodes.job("never").state is JobState.CANCELLED


def test_what_was_written_down_is_done_also_for_a_client_that_hung_up_meanwhile(nodes: GateWorld) -> None:
    """It was not: the job was known, "submitted before" to whoever asked again, went nowhere and had no deadline (decision 0182)."""
    spec = WorkflowSpec(name="w", arguments={"steps": 3, "ends": "hang"})
    job = JobSubmission(job_id="left", workflows=(spec,), timeout_seconds=30.0, target_datacenters=("a", "b"))
    nodes.hang_up(Submit(submission=job), "gates")
    nodes.until(lambda: len(nodes.job("left").workflows) == 2)
    nodes.until(lambda: all(one.started_at for one in nodes.job("left").workflows))
    nodes.hang_up(Cancel(job_id="left", reason="enough", by="test"), "gates")
    nodes.until(lambda: nodes.job("left").ended, 5)
    assert states(nodes.job("left")) == {"a": "cancelled", "b": "cancelled"}


def test_time_that_ran_out_in_one_datacenter_has_run_out_in_all(nodes: GateWorld) -> None:
    """b's worker is dead, so nothing runs and nothing is stuck there; a is stuck, and that ends it in both."""
    nodes.world.nodes["b-w1"].crash()
    nodes.submit("half", target_datacenters=("a", "b"), ends="hang", timeout_seconds=50.0, stuck_threshold=5.0)
    nodes.until(lambda: nodes.job("half").ended, 20)
    assert states(nodes.job("half")) == {"a": "timed_out", "b": "timed_out"}
    assert "datacenter a timed out" in nodes.why("half")


def test_a_gate_that_does_not_lead_passes_on_whatever_it_is_asked(nodes: GateWorld) -> None:
    other = next(gate for gate in nodes.living() if not gate.leads)
    spec = WorkflowSpec(name="w", arguments={"steps": 1, "ends": "well"})
    reply = nodes.ask(Submit(submission=JobSubmission(job_id="j", workflows=(spec,))), other.address)
    assert isinstance(reply, Done)
    assert isinstance(nodes.ask(GetJob(job_id="j"), other.address), JobView)
    listed = nodes.ask(ListJobs(), other.address)
    assert isinstance(listed, JobList)
    assert [row.job_id for row in listed.jobs] == ["j"]
    leader = nodes.ask(AskLeader(), other.address)
    assert isinstance(leader, LeaderView)
    assert (leader.leads, leader.address) == (False, nodes.leader().address)
    assert isinstance(nodes.ask(Cancel(job_id="j"), other.address), Done)
    unknown = nodes.ask(GetJob(job_id="nobody"), other.address)
    assert isinstance(unknown, Problem)
    assert unknown.kind is ProblemKind.UNKNOWN


def test_when_the_leading_gate_dies_the_other_goes_on_from_the_same_deadline(nodes: GateWorld) -> None:
    nodes.submit("j", target_datacenters=("a", "b"), ends="hang", timeout_seconds=12.0, stuck_threshold=11.0)
    deadline = nodes.job("j").deadline
    dead = nodes.leader()
    nodes.world.nodes[dead.address].crash()
    nodes.until(lambda: any(gate.leads for gate in nodes.living()), 10)
    assert nodes.leader() is not dead
    assert nodes.job("j").deadline == deadline
    nodes.until(lambda: nodes.job("j").ended, 20)
    assert nodes.job("j").state is JobState.TIMED_OUT
    told = nodes.why("j").partition("In a:")[0]
    assert told.startswith("Its deadline passed, so the gate ended it everywhere: 12.0 s of 12 s, nothing granted")
    assert "tenure retry j --timeout 24" in told
    assert told.count("the gate decided for every datacenter") == 1
    before, _, after = told.partition("another gate took over, from the same start")
    assert "it advances" in before
    assert "the gate decided" in after
    assert "declared a global timeout: 12 s elapsed of 12 s allowed" in nodes.why("j")


def test_a_datacenter_that_comes_back_hears_what_was_decided_in_its_absence(nodes: GateWorld) -> None:
    nodes.submit("j", target_datacenters=("a", "b"), ends="hang", timeout_seconds=8.0, stuck_threshold=7.0)
    nodes.pass_time(3.0)
    mend = nodes.cut("b")
    nodes.until(lambda: states(nodes.job("j"))["a"] == "timed_out", 15)
    view = nodes.job("j")
    assert (states(view)["b"], view.ended) == ("running", False)
    assert [place.answers for place in view.datacenters] == [True, False]
    mend()
    assert nodes.until(lambda: nodes.job("j").ended, 10) < 6.0
    assert "the gate declared a global timeout" in nodes.why("j").partition("In b:")[2]


def test_what_the_last_leader_of_a_datacenter_did_not_hear_is_said_to_the_next_as_soon_as_it_leads() -> None:
    """And not when the pause between two tries happens to be over, which may be half a minute."""
    pace = Pace(
        gate=GateSettings(check_interval=1.5, stuck_threshold=100.0, resend_first=8.0, resend_most=60.0),
        probes=ProbeSettings(interval_s=1.0, timeout_s=1.0, suspicion_s=20.0),
    )
    nodes = GateWorld(replace(Plan.of(2, 2, managers=2), pace=pace))
    try:
        nodes.submit("j", target_datacenters=("a", "b"), ends="hang")
        nodes.until(lambda: len(nodes.job("j").workflows) == 2)
        nodes.until(lambda: nodes.leader().watch.datacenters["a"].leader)
        leads = nodes.leader().watch.datacenters["a"].leader.address
        nodes.world.nodes[leads].crash()
        nodes.cancel("j")
        took = nodes.until(lambda: states(nodes.job("j"))["a"] == "cancelled", 20)
        assert took <= nodes.plan.pace.term_s + 2.5  # the next leader, and a probe; the next try would be after 8 s
    finally:
        nodes.close()


def test_classes_with_reasons_unknown_first_and_unhealthy_only_after_the_suspicion_time(three: GateWorld) -> None:
    def seen() -> dict[str, str]:
        view = three.ask(AskGate())
        assert isinstance(view, GateView)
        return {place.name: place.health for place in view.datacenters}

    three.submit("warm", target_datacenters=("a", "b", "c"), steps=30, timeout_seconds=100)
    three.until(lambda: set(seen().values()) == {"HEALTHY"}, 30, step=1.0)
    mend = three.cut("c")
    three.pass_time(4.0)
    assert seen()["c"] == "HEALTHY"  # suspicion is not yet over
    three.until(lambda: seen()["c"] == "UNHEALTHY", 20, step=1.0)
    view = three.ask(AskGate())
    assert isinstance(view, GateView)
    (place,) = [place for place in view.datacenters if place.name == "c"]
    assert place.reason.startswith("none of 1 managers answers (c-m1:1 did not answer")
    assert place.rule == "no_manager_answers"
    assert not view.link_suspect
    # A job without a target goes elsewhere; one that names it waits for it.
    assert isinstance(three.submit("free"), Done)
    assert list(states(three.job("free"))) != ["c"]
    assert isinstance(three.submit("named", target_datacenters=("c",), steps=1), Done)
    mend()
    three.until(lambda: three.job("named").ended, 20)
    three.until(lambda: seen()["c"] == "HEALTHY", 30, step=1.0)


def test_before_anything_was_heard_a_datacenter_is_unknown_and_gets_nothing() -> None:
    nodes = GateWorld(Plan.of(2, 1))
    try:
        for name in ("a", "b"):
            for manager in nodes.plan.managers[name]:
                nodes.world.nodes[manager].crash()
        nodes.world.nodes["g1:1"].restart()
        nodes.pass_time(0.1)
        nodes.until(lambda: any(gate.leads for gate in nodes.living()), 15)
        view = nodes.ask(AskGate())
        assert isinstance(view, GateView)
        # Two probes in a row were refused in both: until the suspicion time is over, that proves nothing.
        assert {place.health for place in view.datacenters} == {"UNKNOWN"}
        refused = nodes.submit("j")
        assert isinstance(refused, Problem)
        assert refused.retryable
        assert "nothing is known of it yet" in refused.fact
    finally:
        nodes.close()


def test_when_all_datacenters_fall_silent_our_own_link_is_suspected_and_nobody_is_declared_stuck(
    three: GateWorld,
) -> None:
    three.submit("warm", target_datacenters=("a", "b", "c"), ends="hang", steps=30, timeout_seconds=100)
    three.pass_time(12.0)
    gates = list(three.plan.gates)
    rest = [name for name in three.world.nodes if name not in (*gates, "client")]
    cuts = three.world.network.partition(gates, rest)
    three.pass_time(25.0)  # far beyond the gate's stuck threshold of 10 s, and the suspicion time of 8 s
    view = three.ask(AskGate())
    assert isinstance(view, GateView)
    assert view.link_suspect
    assert "UNHEALTHY" not in {place.health for place in view.datacenters}
    assert all(place.held for place in view.datacenters)
    assert "taken for one common cause" in view.datacenters[0].reason
    assert three.job("warm").state is JobState.RUNNING
    assert "decided" not in three.why("warm")
    for cut in cuts:
        three.world.network.mend(cut)
    three.until(lambda: not three.leader().watch.link_suspect(), 10)


def test_a_leader_that_reaches_no_datacenter_hands_over_to_a_peer_that_does(nodes: GateWorld) -> None:
    nodes.pass_time(5.0)
    cut_off = nodes.leader()
    rest = [name for name in nodes.world.nodes if name not in (*nodes.plan.gates, "client")]
    nodes.world.network.partition([cut_off.address], rest)
    nodes.until(lambda: any(gate.leads and gate is not cut_off for gate in nodes.living()), 40)
    assert not cut_off.fitness.own_state().should_participate_in_election()
    assert not cut_off.fitness.fit()
    nodes.pass_time(5.0)
    assert nodes.leader() is not cut_off


def test_an_overloaded_gate_sheds_low_priority_first_and_never_a_cancel_or_a_result(nodes: GateWorld) -> None:
    nodes.submit("running", target_datacenters=("a",), steps=1)
    gate = nodes.leader()

    def load(state: OverloadState) -> None:
        gate.load.assess = lambda: None  # type: ignore[method-assign]  the test measures
        gate.load.assessment = OverloadAssessment(state, "latency 900 ms")

    load(OverloadState.STRESSED)
    refused = nodes.submit("low")
    assert isinstance(refused, Problem)
    assert (refused.kind, refused.retryable) == (ProblemKind.UNAVAILABLE, True)  # 503 with Retry-After
    assert "stressed and takes jobs of priority 1 and above; this one has 0 (latency 900 ms)" in refused.fact
    assert isinstance(nodes.submit("high", priority=5, target_datacenters=("a",)), Done)
    load(OverloadState.OVERLOADED)
    assert isinstance(nodes.submit("highest", priority=9), Problem)
    assert isinstance(nodes.ask(ListJobs()), Problem)
    assert isinstance(nodes.cancel("high"), Done)
    nodes.until(lambda: nodes.job("running").ended)  # its reports and its result still pass
    view = nodes.ask(AskGate())
    assert isinstance(view, GateView)
    assert (view.overload_state, view.fit_to_lead) == (OverloadState.OVERLOADED, False)
    assert gate.load.turned_away == 3
