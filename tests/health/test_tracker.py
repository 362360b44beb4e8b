from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tenure.clock import ManualClock
from tenure.health.brake import BrakeConfig, BrakePhase
from tenure.health.node_states import WorkerHealthState
from tenure.health.signals import HealthClass
from tenure.health.tracker import NodeHealthTracker

Tracker = NodeHealthTracker[WorkerHealthState]


def state(clock: ManualClock, **changes: object) -> WorkerHealthState:
    fields: dict[str, object] = {
        "last_liveness_response": clock.monotonic(),
        "consecutive_liveness_failures": 0,
        "accepting_work": True,
        "available_capacity": 2,
        "workflows_assigned": 2,
        "completions_last_interval": 2,
        "expected_completion_rate": 1.0,
        "clock": clock,
    }
    return WorkerHealthState("w", **(fields | changes))


def fleet(clock: ManualClock, size: int, **settings: object) -> Tracker:
    tracker: Tracker = NodeHealthTracker("worker", clock=clock, **settings)
    for index in range(size):
        tracker.update_state(f"n{index}", state(clock))
    return tracker


def keep(tracker: Tracker, clock: ManualClock, *indexes: int) -> None:
    for index in indexes:
        tracker.update_state(f"n{index}", state(clock))


def test_liveness_decays_without_any_event() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 4)
    clock.advance(20)
    keep(tracker, clock, 1, 2, 3)
    clock.advance(10)
    assert tracker.get_routing_decision("n0") == "evict"
    assert tracker.get_healthy_nodes() == ["n1", "n2", "n3"]
    assert tracker.brake_status().failing == 1


def test_while_the_brake_holds_work_goes_on_under_the_previous_verdicts() -> None:
    """Interleaving 17 of LESSONS."""
    clock = ManualClock()
    tracker = fleet(clock, 4)
    tracker.update_state("n1", state(clock, completions_last_interval=1))
    tracker.update_state("n2", state(clock, accepting_work=False))
    before = [tracker.get_routing_decision(f"n{index}") for index in range(4)]
    assert before == ["route", "investigate", "drain", "route"]
    clock.advance(30)
    assert [tracker.get_routing_decision(f"n{index}") for index in range(4)] == before
    assert not any(tracker.should_evict(f"n{index}").should_evict for index in range(4))
    verdict = tracker.get_verdict("n0")
    assert (verdict.decision, verdict.health_class, verdict.held) == ("route", HealthClass.SUSPECT, True)
    assert verdict.reason == (
        "no answer for 30.0 s (limit 30 s); keeps its previous verdict, the brake holds: "
        "4 of 4 nodes fail: taken for one common cause; held for 0 s of at most 300 s"
    )


def test_a_node_that_began_failing_gets_no_work_while_the_brake_holds() -> None:
    clock = ManualClock()
    tracker: Tracker = NodeHealthTracker("worker", clock=clock)
    for index in range(3):
        tracker.update_state(f"n{index}", state(clock, consecutive_liveness_failures=3))
    assert tracker.get_verdict("n0").held
    assert tracker.get_routing_decision("n0") == "drain"


def test_after_the_hold_evictions_go_on_at_the_limited_rate_and_say_so() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 40)
    clock.advance(30)
    sweep = tracker.sweep()
    assert (sweep.evict, sweep.held, sweep.brake.phase) == ((), 40, BrakePhase.HOLDING)
    clock.advance(300)
    sweep = tracker.sweep()
    assert [node for node, _ in sweep.evict] == ["n0", "n1", "n2", "n3"]  # a tenth; equal times, so as they came
    assert sweep.held == 36
    assert "limited rate" in sweep.evict[0][1]
    assert tracker.should_evict("n4") == (False, "systemic failure detected, evicting at a limited rate")
    assert tracker.get_routing_decision("n0") == "evict"
    assert tracker.get_routing_decision("n4") == "route"


def test_asking_twice_uses_no_second_place_in_the_rate() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 40)
    clock.advance(30)
    tracker.brake_status()
    clock.advance(300)
    assert all(tracker.should_evict("n0").should_evict for _ in range(50))
    assert [tracker.should_evict(f"n{index}").should_evict for index in range(1, 5)] == [True, True, True, False]
    assert len(tracker.sweep().evict) == len(tracker.sweep().evict) == 4


def test_a_rolling_failure_never_takes_the_whole_fleet_at_once() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 0)
    for index in range(60):  # a switch dies: the last answers of 60 nodes are spread over 30 s
        tracker.update_state(f"n{index}", state(clock))
        clock.advance(0.5)
    evicted = 0
    for _ in range(60):
        clock.advance(1)
        for node_id, _ in tracker.sweep().evict:
            tracker.remove(node_id)
            evicted += 1
    assert 20 < evicted <= 30
    assert tracker.brake_status().phase is BrakePhase.HOLDING
    for index in range(60):  # and it comes back
        tracker.update_state(f"n{index}", state(clock))
    assert len(tracker.get_healthy_nodes()) == 60
    assert tracker.brake_status().phase is BrakePhase.RELEASED


def test_a_stuck_node_that_moves_again_is_not_evicted() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 3)
    tracker.update_state("n0", state(clock, completions_last_interval=0))
    clock.advance(29)
    keep(tracker, clock, 0, 1, 2)
    clock.advance(10)
    tracker.update_state("n0", state(clock, completions_last_interval=0))
    assert tracker.should_evict("n0").reason == "stuck, draining until its healthcheck deadline"


def test_history_is_bounded_and_says_what_changed_and_why() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 1)
    clock.advance(5)
    tracker.update_state("n0", state(clock, accepting_work=False))
    tracker.update_state("n0", state(clock, accepting_work=False))
    clock.advance(30)
    assert tracker.get_routing_decision("n0") == "evict"
    assert [(entry.at, entry.health_class) for entry in tracker.history("n0")] == [
        (1000.0, "HEALTHY"),
        (1005.0, "BUSY"),
        (1035.0, "SUSPECT"),
    ]
    assert tracker.history("n0")[1].reason.startswith("answers, does not accept work")
    assert tracker.history("n0")[2].reason == "no answer for 30.0 s (limit 30 s)"
    for turn in range(100):
        tracker.update_state("n0", state(clock, accepting_work=turn % 2 == 0))
    assert len(tracker.history("n0")) == 16
    assert tracker.history("ghost") == ()


def test_a_removed_node_is_unknown_and_leaves_nothing_behind() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 2)
    assert tracker.remove("n0")
    assert not tracker.remove("n0")
    assert "n0" not in tracker
    assert len(tracker) == 1
    assert tracker.state("n0") is None
    assert tracker.get_routing_decision("n0") == "unknown"
    assert tracker.get_verdict("n0").health_class is None
    clock.advance(100)
    assert tracker.should_evict("n0") == (False, "unknown node")
    assert tracker.brake_status().total == 1


def test_suspicion_from_outside_counts_until_it_is_cleared() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 3)
    tracker.mark_suspect("n0", "its deadline passed")
    keep(tracker, clock, 0)
    assert tracker.get_verdict("n0") == ("evict", "its deadline passed", "SUSPECT", False)
    assert tracker.should_evict("n0").should_evict
    tracker.clear_suspect("n0")
    tracker.mark_suspect("ghost", "nobody")
    assert tracker.get_routing_decision("n0") == "route"
    assert [entry.reason for entry in tracker.history("n0")][1] == "its deadline passed"


def test_an_event_from_the_past_does_not_turn_time_back() -> None:
    clock = ManualClock()
    tracker = fleet(clock, 1)
    assert tracker.get_routing_decision("n0", now=1_030.0) == "evict"
    assert tracker.get_routing_decision("n0", now=1_000.0) == "evict"


def test_each_kind_of_node_has_its_own_brake() -> None:
    clock = ManualClock()
    workers, managers = fleet(clock, 3), fleet(clock, 10)
    clock.advance(29)
    keep(managers, clock, *range(1, 10))
    clock.advance(1)
    assert not workers.should_evict("n0").should_evict
    assert managers.should_evict("n0").should_evict


class AgainstAScan(RuleBasedStateMachine):
    """Kept counts and cached classes equal what a scan over all states gives, whatever happens in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.tracker: Tracker = NodeHealthTracker("worker", clock=self.clock, brake=BrakeConfig(max_hold_s=40.0))
        self.states: dict[str, WorkerHealthState] = {}

    nodes = st.sampled_from([f"n{index}" for index in range(8)])

    @rule(
        node=nodes,
        age=st.integers(0, 40),
        misses=st.integers(0, 4),
        accepting=st.booleans(),
        assigned=st.integers(0, 2),
        completed=st.integers(0, 2),
    )
    def update(self, node: str, age: int, misses: int, accepting: bool, assigned: int, completed: int) -> None:
        new = state(
            self.clock,
            last_liveness_response=self.clock.monotonic() - age,
            consecutive_liveness_failures=misses,
            accepting_work=accepting,
            workflows_assigned=assigned,
            completions_last_interval=completed,
        )
        self.states[node] = new
        self.tracker.update_state(node, new)

    @rule(seconds=st.floats(0, 35))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(node=nodes)
    def remove(self, node: str) -> None:
        assert self.tracker.remove(node) is (self.states.pop(node, None) is not None)

    @rule()
    def evict_what_is_due(self) -> None:
        now = self.clock.monotonic()
        sweep = self.tracker.sweep()
        if sweep.brake.phase is BrakePhase.HOLDING:
            assert sweep.evict == ()
        for node, reason in sweep.evict:
            assert reason
            assert self.states[node].class_at(now) <= HealthClass.STUCK
            self.tracker.remove(node)
            del self.states[node]

    @invariant()
    def the_tracker_agrees_with_a_scan(self) -> None:
        now = self.clock.monotonic()
        failing = [node for node, held in self.states.items() if held.class_at(now) <= HealthClass.STUCK]
        status = self.tracker.brake_status()
        assert (status.failing, status.total) == (len(failing), len(self.states))
        assert sorted(self.tracker.get_healthy_nodes()) == sorted(
            node for node, held in self.states.items() if held.liveness_at(now) and held.readiness
        )
        for node, held in self.states.items():
            verdict = self.tracker.get_verdict(node)
            assert verdict.health_class == held.class_at(now)
            assert verdict.decision == self.tracker.get_routing_decision(node)
            if not verdict.held:
                assert verdict[:2] == held.assess_at(now)[1:]
            else:
                assert status.phase is not BrakePhase.RELEASED
                assert verdict.decision != "evict"


TestAgainstAScan = AgainstAScan.TestCase
TestAgainstAScan.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def test_a_state_is_a_value_and_cannot_be_changed_behind_the_trackers_back() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        state(ManualClock()).available_capacity = 0
