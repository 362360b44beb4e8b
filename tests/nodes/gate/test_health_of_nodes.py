"""A gate judges managers and peer gates as managers judge workers, and acts on it (document 001). Each rule is also broken, and the story must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.changed import changed
from tests.nodes.gate.harness import GateWorld
from tests.worlds.gates.cast import Pace, Plan

from tenure.control.messages.jobs import Done, Submit
from tenure.control.messages.nodes import DrainNode, UndrainNode
from tenure.control.messages.wire import Problem
from tenure.health.signals import RoutingDecision
from tenure.jobs.gate_outbox import Owed
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.settings import GateSettings
from tenure.nodes.gate import datacenter_health
from tenure.nodes.gate.datacenter_health import Datacenter, DatacenterWatch
from tenure.nodes.gate.fitness import GateFitness
from tenure.nodes.gate.gate import Gate
from tenure.nodes.gate.probes import ProbeSettings


@contextmanager
def world(plan: Plan | None = None, *, gate_class: type[Gate] = Gate) -> Iterator[GateWorld]:
    nodes = GateWorld(plan, gate_class=gate_class)
    try:
        nodes.until(lambda: {place.health for place in nodes.leader().watch.views()} == {"HEALTHY"}, 60)
        yield nodes
    finally:
        nodes.close()


def new_job(job_id: str) -> Submit:
    spec = WorkflowSpec(name="w", arguments={"steps": 1, "ends": "well"})
    return Submit(submission=JobSubmission(job_id=job_id, workflows=(spec,), timeout_seconds=600.0))


# Managers


def jobs_go_elsewhere_while_a_manager_is_drained() -> None:
    with world() as nodes:
        [manager] = nodes.leader().watch.datacenters["a"].managers
        assert manager.view is not None
        drained = f"manager/{manager.view.manager_id}"
        assert isinstance(nodes.ask(DrainNode(node=drained, reason="new rack", by="ops", datacenter="a")), Done)
        nodes.until(lambda: nodes.leader().watch.datacenters["a"].closed, 20)
        for number in range(4):
            nodes.submit(f"j-{number}")
            assert [place.name for place in nodes.job(f"j-{number}").datacenters] == ["b"]
        place = next(one for one in nodes.leader().watch.views() if one.name == "a")
        assert (place.rule, "it accepts no new jobs: drained by ops: new rack" in place.reason) == ("closed", True)
        # Also where nothing else is left, a job is refused rather than left lying there.
        mend = nodes.cut("b")
        nodes.until(lambda: nodes.leader().watch.class_of("b") == "UNHEALTHY", 60)
        refused = nodes.ask(new_job("nowhere"))
        assert isinstance(refused, Problem)
        assert "a: it accepts no new jobs: drained by ops: new rack" in refused.fact
        mend()
        # A job that names it waits for it.
        nodes.submit("named", target_datacenters=("a",))
        nodes.pass_time(10)
        assert not nodes.job("named").ended
        nodes.ask(UndrainNode(node=drained, by="ops", datacenter="a"))
        nodes.until(lambda: nodes.job("named").ended, 30)


def a_manager_that_died_is_asked_last() -> None:
    with world(Plan.of(2, 1, managers={"a": 2})) as nodes:
        gate = nodes.leader()
        leads = gate.watch.datacenters["a"].leader
        assert leads is not None
        other = next(one.address for one in gate.watch.datacenters["a"].managers if one is not leads)
        nodes.world.nodes[leads.address].crash()
        nodes.until(lambda: gate.watch.verdict(leads.address).decision is RoutingDecision.EVICT, 40)
        assert gate.watch.ask_order([leads.address, other]) == [other, leads.address]
        nodes.until(lambda: gate.watch.datacenters["a"].led_by == other, 30)
        nodes.submit("j", target_datacenters=("a",))
        nodes.until(lambda: nodes.job("j").ended, 30)
        link = gate.links.get("a")
        assert link is not None
        assert link.route.addresses == [other, leads.address]


def a_datacenter_without_quorum_is_not_taken_for_healthy() -> None:
    with world() as nodes:
        backend = nodes.world.backend_of("a")
        backend.outages += 1
        try:
            nodes.until(lambda: nodes.leader().watch.class_of("a") == "DEGRADED", 30)
            [manager] = nodes.leader().watch.datacenters["a"].managers
            found = nodes.leader().watch.verdict(manager.address)
            assert found.decision in (RoutingDecision.DRAIN, RoutingDecision.EVICT)
            assert "has no quorum" in found.reason
        finally:
            backend.end_outage()


def a_few_missed_probes_are_no_death() -> None:
    """With 2 s between probes and 30 s of suspicion, 15 misses in a row make a death, and 5 do not."""
    health = ProbeSettings().health
    assert (health.liveness_timeout_s, health.max_liveness_failures) == (30.0, 15)


# Gates


class PassesNothingOn(Gate):
    """A gate that accepts jobs and sends none of them, while it is told to."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        put = self.links.put

        def put_unless_stuck(owed: Owed) -> None:
            if self.address != STUCK.address:
                put(owed)

        self.links.put = put_unless_stuck  # type: ignore[method-assign]


class STUCK:
    address = ""


def a_stuck_gate_gets_no_new_jobs_and_hands_over() -> None:
    STUCK.address = ""
    pace = Pace(gate=GateSettings(check_interval=1.5, stuck_threshold=600.0, resend_first=0.5, resend_most=3.0))
    with world(Plan.of(2, 2, pace=pace), gate_class=PassesNothingOn) as nodes:
        stuck = nodes.leader()
        other = next(gate for gate in nodes.living() if gate is not stuck)
        STUCK.address = stuck.address
        try:
            nodes.ask(new_job("waits"))
            nodes.until(lambda: other.fitness.verdict(stuck.address).decision is RoutingDecision.EVICT, 90)
            refused = nodes.ask(new_job("refused"), other.address)
            assert isinstance(refused, Problem)
            assert f"the leading gate {stuck.address} gets no new jobs" in refused.fact
            assert "stuck" in refused.fact
            nodes.until(lambda: other.leads, 60)
            nodes.until(lambda: nodes.job("waits").ended, 60)  # the next leader owes what the last one did not send
        finally:
            STUCK.address = ""


def checks_come_when_they_are_due() -> None:
    """The only datacenter of the job is cut off, so nobody but the gate's own check can find that its time ran out."""
    with world() as nodes:
        nodes.submit("late", steps=10_000, timeout_seconds=6.0, grace=0.0, target_datacenters=("a",))
        nodes.cut("a")
        job = nodes.leader().leadership.ledger.book.jobs["late"]
        assert nodes.until(lambda: job.decided is not None, 30) < 8.0


STORIES: tuple[Callable[[], None], ...] = (
    jobs_go_elsewhere_while_a_manager_is_drained,
    a_manager_that_died_is_asked_last,
    a_datacenter_without_quorum_is_not_taken_for_healthy,
    a_few_missed_probes_are_no_death,
    a_stuck_gate_gets_no_new_jobs_and_hands_over,
    checks_come_when_they_are_due,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_it_is_so(story: Callable[[], None]) -> None:
    story()


# Each rule broken


def ignoring_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    made = datacenter_health.ManagerHealthState
    monkeypatch.setattr(datacenter_health, "ManagerHealthState", lambda **given: made(**{**given, "has_quorum": True}))


def ignoring_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datacenter_health, "choose", _choosing_anywhere(datacenter_health.choose))


def _choosing_anywhere(choose: Callable[..., Any]) -> Callable[..., Any]:
    return lambda places, *given, **options: choose([changed(one, closed="") for one in places], *given, **options)


def asking_the_dead_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatacenterWatch, "ask_order", lambda self, addresses: list(addresses))


def three_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = ProbeSettings.health.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(
        ProbeSettings, "health", property(lambda self: type(sound(self))(self.suspicion_s, max_liveness_failures=3))
    )


def passing_to_the_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GateFitness, "_why_unfit", lambda self: "")


def never_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Datacenter, "closed", property(lambda self: ""))


def checking_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as rarely as the check interval says."""
    sound = GateJobTracker.next_due
    monkeypatch.setattr(
        GateJobTracker,
        "next_due",
        lambda self, job_id: sound(self, job_id) + 9 * self.settings.check_interval,
    )


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    ignoring_quorum: a_datacenter_without_quorum_is_not_taken_for_healthy,
    ignoring_closed: jobs_go_elsewhere_while_a_manager_is_drained,
    never_closed: jobs_go_elsewhere_while_a_manager_is_drained,
    asking_the_dead_first: a_manager_that_died_is_asked_last,
    three_misses: a_few_missed_probes_are_no_death,
    passing_to_the_stuck: a_stuck_gate_gets_no_new_jobs_and_hands_over,
    checking_rarely: checks_come_when_they_are_due,
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_gate_that_breaks_the_rule_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        MUTANTS[mutant]()
