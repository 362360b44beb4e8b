"""Time past a job's deadline, earned by progress, in virtual time with the settings that a datacenter and a gate have by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.changed import changed
from tests.nodes.gate.harness import GateWorld
from tests.worlds.gates import hands
from tests.worlds.gates.cast import Pace, Plan

from tenure.backoff import Retry
from tenure.control.messages.jobs import AskWhy, Done, GetJob, JobView, Submit, WhyReply
from tenure.control.messages.wire import Reply, Request
from tenure.control.messages.workers import AttemptReport
from tenure.errors import NodeUnavailableError
from tenure.jobs import deadlines, extensions, gate_exchange, timeout
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import GateSettings, JobSettings
from tenure.jobs.states import JobState
from tenure.nodes.fleet.member import FleetSettings
from tenure.nodes.gate.probes import ProbeSettings
from tenure.nodes.manager import gate_reports, worker_reports
from tenure.nodes.worker import directives
from tenure.nodes.worker.worker import ReportSettings

DEFAULT = Pace(
    term_s=10.0,
    lease_s=30.0,
    jobs=JobSettings(),
    gate=GateSettings(),
    probes=ProbeSettings(),
    fleet=FleetSettings(),
    reports=ReportSettings(),
)
TIMEOUT_S = 60.0
ALL_S = 1.9375 * 30
GRANTS = ("30 s", "15 s", "7.5 s", "3.8 s", "1.9 s")


class CountsItems(hands.Act):
    """Work that counts, and stands at one item while it beats."""

    def report(self, now: float) -> AttemptReport:
        return replace_report(super().report(now), news=7, counts=True)


def replace_report(report: AttemptReport, **changes: Any) -> AttemptReport:
    return AttemptReport(**{name: getattr(report, name) for name in AttemptReport.__struct_fields__} | changes)


@contextmanager
def world(*, managers: int = 1, gates: int = 2, pace: Pace = DEFAULT) -> Iterator[GateWorld]:
    nodes = GateWorld(Plan.of(1, gates, managers=managers, pace=pace))
    try:
        nodes.until(lambda: {place.health for place in nodes.leader().watch.views()} == {"HEALTHY"}, 60)
        yield nodes
    finally:
        nodes.close()


def ask(nodes: GateWorld, request: Request, where: str) -> Reply:
    """Asks the gates, or the datacenter's managers, whoever of them answers."""
    if where == "gate":
        return nodes.ask(request)
    for address in nodes.plan.managers["a"]:
        try:
            reply = nodes.ask(request, address)
        except NodeUnavailableError:
            continue
        if isinstance(reply, (Done, JobView, WhyReply)):
            return reply
    raise NodeUnavailableError("no manager answers")


def submit(nodes: GateWorld, where: str, **options: Any) -> float:
    """Submits work that goes on for an hour; returns when."""
    spec = WorkflowSpec(name="w", arguments={"steps": 6_000, "ends": "well"}, retry=Retry(max_attempts=1))
    job = JobSubmission(job_id="j", workflows=(spec,), **{"timeout_seconds": TIMEOUT_S, **options})
    begun = nodes.world.now
    assert isinstance(ask(nodes, Submit(submission=job), where), Done)
    return begun


def job(nodes: GateWorld, where: str) -> JobView:
    reply = ask(nodes, GetJob(job_id="j"), where)
    assert isinstance(reply, JobView)
    return reply


def why(nodes: GateWorld, where: str) -> str:
    reply = ask(nodes, AskWhy(job_id="j"), where)
    assert isinstance(reply, WhyReply)
    return reply.text


def ends_at(nodes: GateWorld, where: str, begun: float, expected_s: float, *, late_s: float = 1.0) -> None:
    """Requires that the job ends so many seconds after its submission: no second before, and not later than `late_s`."""
    nodes.pass_time(begun + expected_s - 1.0 - nodes.world.now)
    assert not is_over(nodes, where)
    nodes.until(lambda: is_over(nodes, where), 1.0 + late_s, step=0.25)


def is_over(nodes: GateWorld, where: str) -> bool:
    try:
        return job(nodes, where).ended
    except (NodeUnavailableError, StopIteration):  # nobody leads now
        return False


def earns_all_of_it(where: str) -> None:
    with world() as nodes:
        begun = submit(nodes, where)
        ends_at(nodes, where, begun, TIMEOUT_S + ALL_S)
        assert job(nodes, where).state is JobState.TIMED_OUT
        text = why(nodes, "manager")
        for number, grant in enumerate(GRANTS, start=1):
            assert f"the job was granted {grant} past its deadline (grant {number} of 5" in text
        assert "was denied it: Maximum extensions (5) exceeded" in text


@pytest.mark.parametrize("where", ["manager", "gate"])
def test_a_job_that_only_beats_ends_after_its_timeout_and_1_9375_x_30_seconds(where: str) -> None:
    earns_all_of_it(where)


@pytest.mark.parametrize("where", ["manager", "gate"])
def test_one_that_beats_without_advancing_is_granted_nothing_and_why_says_so(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "Act", CountsItems)
    stands_still(where)


def stands_still(where: str) -> None:
    with world() as nodes:
        begun = submit(nodes, where)
        ends_at(nodes, where, begun, TIMEOUT_S)
        text = why(nodes, "manager")
        assert "the job was granted" not in text
        assert "was denied it: No progress since its deadline came near" in text


def test_one_that_ends_within_its_grants_completes() -> None:
    with world() as nodes:
        spec = WorkflowSpec(name="w", arguments={"steps": 140, "ends": "well"})
        submitted = JobSubmission(job_id="j", workflows=(spec,), timeout_seconds=TIMEOUT_S)
        begun = nodes.world.now
        nodes.ask(Submit(submission=submitted))
        ends_at(nodes, "gate", begun, 0.6 * 140, late_s=5.0)
        assert job(nodes, "gate").state is JobState.COMPLETED


def test_the_base_of_a_submission_counts_through_a_gate_too_and_0_is_a_wall() -> None:
    with world() as nodes:
        begun = submit(nodes, "gate", grace=9.0)
        ends_at(nodes, "gate", begun, TIMEOUT_S + 1.9375 * 9)
    with world() as nodes:
        begun = submit(nodes, "gate", grace=0.0)
        ends_at(nodes, "gate", begun, TIMEOUT_S)


def crash_leader(nodes: GateWorld, where: str) -> None:
    if where == "gate":
        nodes.world.nodes[nodes.leader().address].crash()
    else:
        leads = nodes.leader().watch.datacenters["a"].leader
        assert leads is not None
        nodes.world.nodes[leads.address].crash()


@pytest.mark.parametrize(
    ("submitted_to", "after_s"), [("manager", 52.0), ("gate", 52.0), ("gate", 50.0), ("manager", 75.0)]
)
def test_a_change_of_leaders_neither_costs_a_job_its_grants_nor_gives_it_more(
    submitted_to: str, after_s: float
) -> None:
    """The leader dies as the deadline comes near, so that it passes while nobody leads, or between two grants."""
    outlives_its_leader(submitted_to, after_s)


def outlives_its_leader(submitted_to: str, after_s: float) -> None:
    with world(managers=2) as nodes:
        begun = submit(nodes, submitted_to)
        nodes.pass_time(begun + after_s - nodes.world.now)
        crash_leader(nodes, "manager")
        ends_at(nodes, submitted_to, begun, TIMEOUT_S + ALL_S)


@pytest.mark.parametrize("after_s", [49.0, 59.0, 105.0])
def test_a_change_of_gates_neither_costs_a_job_its_grants_nor_gives_it_more(after_s: float) -> None:
    """At 105 s the next gate leads 2 s before the end: the datacenter must not wait any longer than that before it reports again."""
    with world() as nodes:
        begun = submit(nodes, "gate")
        nodes.pass_time(begun + after_s - nodes.world.now)
        crash_leader(nodes, "gate")
        ends_at(nodes, "gate", begun, TIMEOUT_S + ALL_S)


def test_a_grant_of_the_last_moment_is_known_to_the_gate_in_time() -> None:
    """Reports come every 10 s; the work begins to advance 3 s before its deadline."""

    class Late(hands.Act):
        def report(self, now: float) -> AttemptReport:
            steps = max(0, self.steps - 95)  # 95 x 0.6 s = 57 s
            return replace_report(super().report(now), steps=steps)

    with world() as nodes:
        sound, hands.Act = hands.Act, Late
        try:
            begun = submit(nodes, "gate", stuck_threshold=59.0)
            nodes.pass_time(TIMEOUT_S + 5.0)
        finally:
            hands.Act = sound
        assert job(nodes, "gate").state is JobState.RUNNING
        deadline = job(nodes, "gate").deadline
        assert deadline is not None
        assert deadline - job(nodes, "gate").submitted_at == pytest.approx(90.0, abs=0.5)
        assert nodes.world.now - begun > TIMEOUT_S


# Broken on purpose


def keeping_grants_for_the_next_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the gate does not wait for it."""
    sound = gate_reports.report_debt

    def quiet(info: Any) -> Any:
        debt = sound(info)
        return None if debt is None else changed(debt, extensions=0.0)

    monkeypatch.setattr(gate_reports, "report_debt", quiet)
    monkeypatch.setattr(GateJobTracker, "closes_at", GateJobTracker.deadline)


def taking_beats_for_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directives, "advanced", lambda before, now: now.steps > before.steps)
    monkeypatch.setattr(hands, "Act", CountsItems)


def never_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_reports, "near_deadlines", lambda book, report, now: ())


def a_series_for_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant does not count in the job's series."""
    sound = extensions.job_extended

    def uncounted(book: Any, event: Any) -> None:
        sound(book, event)
        book.jobs[event.jobs[0]].timeout_tracking.extension_count = 0

    monkeypatch.setattr(extensions, "job_extended", uncounted)


def only_gives_up_at_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeout, "ends_at", lambda info: info.timeout_tracking.started_at + TIMEOUT_S)
    monkeypatch.setattr(deadlines, "ends_at", lambda info: info.timeout_tracking.started_at + TIMEOUT_S)


def reporting_as_if_nothing_could_be_earned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first report of a new leader closes the deadline, before its workers could ask."""
    monkeypatch.setattr(gate_exchange, "may_earn", lambda info, now: False)


MUTANTS = {
    reporting_as_if_nothing_could_be_earned: lambda: outlives_its_leader("gate", 50.0),
    keeping_grants_for_the_next_report: lambda: earns_all_of_it("gate"),
    taking_beats_for_progress: lambda: stands_still("manager"),
    never_near: lambda: earns_all_of_it("manager"),
    a_series_for_each_worker: lambda: earns_all_of_it("manager"),
    only_gives_up_at_the_wall: lambda: earns_all_of_it("manager"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_datacenter_that_breaks_the_rule_is_found(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        MUTANTS[mutant]()
