"""A gate in virtual time: places jobs, keeps their deadlines everywhere, passes on, sheds, hands over, and tells what it knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.nodes.gate.stage import Stage
from tests.worlds.gates.cast import Pace, Plan

from tenure.control.messages.gates import AskGate, GateView
from tenure.control.messages.job_details import (
    GetLogs,
    GetResult,
    LogPage,
    ManySubmitted,
    ResultView,
    RetryJob,
    SubmitMany,
)
from tenure.control.messages.jobs import (
    AskLeader,
    Cancel,
    Done,
    GetJob,
    JobList,
    JobView,
    LeaderView,
    ListJobs,
    Problem,
    ProblemKind,
    Submit,
)
from tenure.health.overload import OverloadAssessment, OverloadState
from tenure.jobs.decisions import Outcome
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import GateSettings
from tenure.jobs.states import JobState
from tenure.nodes.gate.probes import ProbeSettings


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


@pytest.fixture
def three() -> Iterator[Stage]:
    made = Stage(Plan.of(3, 2))
    yield made
    made.close()


def states(view: JobView) -> dict[str, str]:
    return {place.name: str(place.state) for place in view.datacenters}


def test_a_job_runs_where_it_says_and_its_results_come_from_everywhere(stage: Stage) -> None:
    done = stage.submit("j", target_datacenters=("a", "b"), steps=2)
    assert (done.outcome, done.job_id) == (Outcome.ACCEPTED, "j")
    stage.until(lambda: stage.job("j").ended)
    view = stage.job("j")
    assert view.state is JobState.COMPLETED
    assert states(view) == {"a": "completed", "b": "completed"}
    assert [(one.datacenter, one.name, str(one.state)) for one in view.workflows] == [
        ("a", "a/w", "completed"),
        ("b", "b/w", "completed"),
    ]
    told = stage.why("j")
    assert "submitted with 60 s to a, b" in told
    assert "In a: job j: completed" in told
    assert "In b: job j: completed" in told


def test_the_same_submission_is_one_job_and_another_under_its_id_is_refused(stage: Stage) -> None:
    assert stage.submit("j").outcome is Outcome.ACCEPTED
    assert stage.submit("j").outcome is Outcome.ALREADY
    other = stage.submit("j", steps=4)
    assert isinstance(other, Problem)
    assert other.kind is ProblemKind.CONFLICT


def test_many_at_once_results_retries_logs_and_lists_as_a_manager_has_them(stage: Stage) -> None:
    spec = WorkflowSpec(name="w", arguments={"steps": 1, "ends": "well"})

    def one(job_id: str, **options: Any) -> JobSubmission:
        return JobSubmission(job_id=job_id, workflows=(spec,), **options)

    many = stage.ask(
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
    stage.until(lambda: stage.job("one").ended and stage.job("both").ended)
    result = stage.ask(GetResult(job_id="one"))
    assert isinstance(result, ResultView)
    assert (result.workflow, result.ready) == ("w", True)
    there = stage.ask(GetResult(job_id="both", workflow="b/w"))
    assert isinstance(there, ResultView)
    assert there.ready
    unnamed = stage.ask(GetResult(job_id="both"))
    assert isinstance(unnamed, Problem)
    assert "Name one of: a/w, b/w" in unnamed.remedy
    # Logs are where it ran.
    logs = stage.ask(GetLogs(job_id="both", workflow="b/w"))
    assert isinstance(logs, LogPage)
    assert (logs.workflow, logs.ended) == ("w", True)
    assert isinstance(stage.ask(GetLogs(job_id="both", workflow="w")), Problem)
    # Another try runs in the same places.
    again = stage.ask(RetryJob(job_id="both", by="test"))
    assert isinstance(again, Done)
    assert (again.job_id, again.outcome) == ("both~2", Outcome.ACCEPTED)
    assert sorted(states(stage.job("both~2"))) == ["a", "b"]
    early = stage.ask(RetryJob(job_id="both~2"))
    assert isinstance(early, Problem)
    assert early.kind is ProblemKind.CONFLICT

    def listed(**filters: Any) -> list[str]:
        reply = stage.ask(ListJobs(**filters))
        assert isinstance(reply, JobList)
        return [row.job_id for row in reply.jobs]

    assert set(listed()) == {"one", "both", "both~2"}
    assert listed(label="team=x") == ["one"]
    assert set(listed(name="nightly")) == {"both", "both~2"}
    assert set(listed(function="w")) == {"one", "both", "both~2"}
    assert listed(function="other") == listed(queue="other") == []
    first = stage.ask(ListJobs(limit=2))
    assert isinstance(first, JobList)
    assert (len(first.jobs), first.known) == (2, 3)
    assert [*(row.job_id for row in first.jobs), *listed(after=first.next)] == listed()


def test_a_job_that_names_no_datacenter_gets_the_best_and_one_that_names_an_unknown_one_is_refused(
    stage: Stage,
) -> None:
    assert isinstance(stage.submit("best"), Done)
    stage.until(lambda: stage.job("best").ended)
    assert len(states(stage.job("best"))) == 1
    assert isinstance(stage.submit("two", datacenters=2), Done)
    assert sorted(states(stage.job("two"))) == ["a", "b"]
    refused = stage.submit("nowhere", target_datacenters=("mars",))
    assert isinstance(refused, Problem)
    assert "datacenter 'mars', which this gate does not know. There are: a, b" in f"{refused.fact}. {refused.remedy}"
    many = stage.submit("many", datacenters=9)
    assert isinstance(many, Problem)
    assert (many.kind, many.retryable) == (ProblemKind.IMPOSSIBLE, False)  # however often it is asked
    assert "needs 9 datacenters, and this gate has 2" in many.fact
    stage.cut("b")
    stage.until(lambda: stage.leader().watch.class_of("b") == "UNHEALTHY", 40)
    both = stage.submit("both", datacenters=2)
    assert isinstance(both, Problem)
    assert (both.kind, both.retryable) == (ProblemKind.UNAVAILABLE, True)  # until b is back
    assert "needs 2 datacenters, and 1 can take it" in both.fact


def test_a_deadline_passes_everywhere_within_a_round_trip(stage: Stage) -> None:
    stage.submit("slow", target_datacenters=("a", "b"), ends="hang", timeout_seconds=6.0, stuck_threshold=5.9)
    submitted = stage.world.now
    stage.until(lambda: stage.job("slow").ended)
    assert 6.0 <= stage.world.now - submitted <= 6.3
    assert stage.job("slow").state is JobState.TIMED_OUT
    assert states(stage.job("slow")) == {"a": "timed_out", "b": "timed_out"}


def test_a_cancel_reaches_every_datacenter_within_a_round_trip(stage: Stage) -> None:
    stage.submit("unwanted", target_datacenters=("a", "b"), ends="hang")
    stage.pass_time(3.0)
    assert stage.cancel("unwanted").outcome is Outcome.ACCEPTED
    assert stage.until(lambda: stage.job("unwanted").ended) <= 0.15
    assert states(stage.job("unwanted")) == {"a": "cancelled", "b": "cancelled"}
    assert stage.cancel("unwanted").outcome is Outcome.ALREADY
    # One that is not known yet will not run.
    assert stage.cancel("never").outcome is Outcome.ACCEPTED
    stage.submit("never", target_datacenters=("a",))
    stage.until(lambda: stage.job("never").ended)
    assert stage.job("never").state is JobState.CANCELLED


def test_what_was_written_down_is_done_also_for_a_client_that_hung_up_meanwhile(stage: Stage) -> None:
    """It was not: the job was known, "submitted before" to whoever asked again, went nowhere and had no deadline (decision 0182)."""
    spec = WorkflowSpec(name="w", arguments={"steps": 3, "ends": "hang"})
    job = JobSubmission(job_id="left", workflows=(spec,), timeout_seconds=30.0, target_datacenters=("a", "b"))
    stage.hang_up(Submit(submission=job), "gates")
    stage.until(lambda: len(stage.job("left").workflows) == 2)
    stage.until(lambda: all(one.started_at for one in stage.job("left").workflows))
    stage.hang_up(Cancel(job_id="left", reason="enough", by="test"), "gates")
    stage.until(lambda: stage.job("left").ended, 5)
    assert states(stage.job("left")) == {"a": "cancelled", "b": "cancelled"}


def test_time_that_ran_out_in_one_datacenter_has_run_out_in_all(stage: Stage) -> None:
    """b's worker is dead, so nothing runs and nothing is stuck there; a is stuck, and that ends it in both."""
    stage.world.nodes["b-w1"].crash()
    stage.submit("half", target_datacenters=("a", "b"), ends="hang", timeout_seconds=50.0, stuck_threshold=5.0)
    stage.until(lambda: stage.job("half").ended, 20)
    assert states(stage.job("half")) == {"a": "timed_out", "b": "timed_out"}
    assert "datacenter a timed out" in stage.why("half")


def test_a_gate_that_does_not_lead_passes_on_whatever_it_is_asked(stage: Stage) -> None:
    other = next(gate for gate in stage.living() if not gate.leads)
    spec = WorkflowSpec(name="w", arguments={"steps": 1, "ends": "well"})
    reply = stage.ask(Submit(submission=JobSubmission(job_id="j", workflows=(spec,))), other.address)
    assert isinstance(reply, Done)
    assert isinstance(stage.ask(GetJob(job_id="j"), other.address), JobView)
    listed = stage.ask(ListJobs(), other.address)
    assert isinstance(listed, JobList)
    assert [row.job_id for row in listed.jobs] == ["j"]
    leader = stage.ask(AskLeader(), other.address)
    assert isinstance(leader, LeaderView)
    assert (leader.leads, leader.address) == (False, stage.leader().address)
    assert isinstance(stage.ask(Cancel(job_id="j"), other.address), Done)
    unknown = stage.ask(GetJob(job_id="nobody"), other.address)
    assert isinstance(unknown, Problem)
    assert unknown.kind is ProblemKind.UNKNOWN


def test_when_the_leading_gate_dies_the_other_goes_on_from_the_same_deadline(stage: Stage) -> None:
    stage.submit("j", target_datacenters=("a", "b"), ends="hang", timeout_seconds=12.0, stuck_threshold=11.0)
    deadline = stage.job("j").deadline
    dead = stage.leader()
    stage.world.nodes[dead.address].crash()
    stage.until(lambda: any(gate.leads for gate in stage.living()), 10)
    assert stage.leader() is not dead
    assert stage.job("j").deadline == deadline
    stage.until(lambda: stage.job("j").ended, 20)
    assert stage.job("j").state is JobState.TIMED_OUT
    told = stage.why("j").partition("In a:")[0]
    assert told.count("the gate decided for every datacenter") == 1
    before, _, after = told.partition("another gate took over, from the same start")
    assert "it advances" in before
    assert "the gate decided" in after
    assert "declared a global timeout: 12 s elapsed of 12 s allowed" in stage.why("j")


def test_a_datacenter_that_comes_back_hears_what_was_decided_in_its_absence(stage: Stage) -> None:
    stage.submit("j", target_datacenters=("a", "b"), ends="hang", timeout_seconds=8.0, stuck_threshold=7.0)
    stage.pass_time(3.0)
    mend = stage.cut("b")
    stage.until(lambda: states(stage.job("j"))["a"] == "timed_out", 15)
    view = stage.job("j")
    assert (states(view)["b"], view.ended) == ("running", False)
    assert [place.answers for place in view.datacenters] == [True, False]
    mend()
    assert stage.until(lambda: stage.job("j").ended, 10) < 6.0
    assert "the gate declared a global timeout" in stage.why("j").partition("In b:")[2]


def test_what_the_last_leader_of_a_datacenter_did_not_hear_is_said_to_the_next_as_soon_as_it_leads() -> None:
    """And not when the pause between two tries happens to be over, which may be half a minute."""
    pace = Pace(
        gate=GateSettings(check_interval=1.5, stuck_threshold=100.0, resend_first=8.0, resend_most=60.0),
        probes=ProbeSettings(interval_s=1.0, timeout_s=1.0, suspicion_s=20.0),
    )
    stage = Stage(replace(Plan.of(2, 2, managers=2), pace=pace))
    try:
        stage.submit("j", target_datacenters=("a", "b"), ends="hang")
        stage.until(lambda: len(stage.job("j").workflows) == 2)
        stage.until(lambda: stage.leader().watch.datacenters["a"].leader)
        leads = stage.leader().watch.datacenters["a"].leader.address
        stage.world.nodes[leads].crash()
        stage.cancel("j")
        took = stage.until(lambda: states(stage.job("j"))["a"] == "cancelled", 20)
        assert took <= stage.plan.pace.term_s + 2.5  # the next leader, and a probe; the next try would be after 8 s
    finally:
        stage.close()


def test_classes_with_reasons_unknown_first_and_unhealthy_only_after_the_suspicion_time(three: Stage) -> None:
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
    stage = Stage(Plan.of(2, 1))
    try:
        for name in ("a", "b"):
            for manager in stage.plan.managers[name]:
                stage.world.nodes[manager].crash()
        stage.world.nodes["g1:1"].restart()
        stage.pass_time(0.1)
        stage.until(lambda: any(gate.leads for gate in stage.living()), 15)
        view = stage.ask(AskGate())
        assert isinstance(view, GateView)
        # Two probes in a row were refused in both: until the suspicion time is over, that proves nothing.
        assert {place.health for place in view.datacenters} == {"UNKNOWN"}
        refused = stage.submit("j")
        assert isinstance(refused, Problem)
        assert refused.retryable
        assert "nothing is known of it yet" in refused.fact
    finally:
        stage.close()


def test_when_all_datacenters_fall_silent_our_own_link_is_suspected_and_nobody_is_declared_stuck(three: Stage) -> None:
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


def test_a_leader_that_reaches_no_datacenter_hands_over_to_a_peer_that_does(stage: Stage) -> None:
    stage.pass_time(5.0)
    cut_off = stage.leader()
    rest = [name for name in stage.world.nodes if name not in (*stage.plan.gates, "client")]
    stage.world.network.partition([cut_off.address], rest)
    stage.until(lambda: any(gate.leads and gate is not cut_off for gate in stage.living()), 40)
    assert not cut_off.fitness.own_state().should_participate_in_election()
    assert not cut_off.fitness.fit()
    stage.pass_time(5.0)
    assert stage.leader() is not cut_off


def test_an_overloaded_gate_sheds_low_priority_first_and_never_a_cancel_or_a_result(stage: Stage) -> None:
    stage.submit("running", target_datacenters=("a",), steps=1)
    gate = stage.leader()

    def load(state: OverloadState) -> None:
        gate.load.assess = lambda: None  # type: ignore[method-assign]  the test measures
        gate.load.assessment = OverloadAssessment(state, "latency 900 ms")

    load(OverloadState.STRESSED)
    refused = stage.submit("low")
    assert isinstance(refused, Problem)
    assert (refused.kind, refused.retryable) == (ProblemKind.UNAVAILABLE, True)  # 503 with Retry-After
    assert "stressed and takes jobs of priority 1 and above; this one has 0 (latency 900 ms)" in refused.fact
    assert isinstance(stage.submit("high", priority=5, target_datacenters=("a",)), Done)
    load(OverloadState.OVERLOADED)
    assert isinstance(stage.submit("highest", priority=9), Problem)
    assert isinstance(stage.ask(ListJobs()), Problem)
    assert isinstance(stage.cancel("high"), Done)
    stage.until(lambda: stage.job("running").ended)  # its reports and its result still pass
    view = stage.ask(AskGate())
    assert isinstance(view, GateView)
    assert (view.overload_state, view.fit_to_lead) == (OverloadState.OVERLOADED, False)
    assert gate.load.turned_away == 3
