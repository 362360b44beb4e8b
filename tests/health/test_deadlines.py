from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tenure.clock import ManualClock
from tenure.errors import LimitError, UnknownWorkerError
from tenure.health.brake import BrakePhase
from tenure.health.deadlines import ExtensionConfig, WorkerHealthManager
from tenure.health.extension import ExtensionTracker, HealthcheckExtensionRequest
from tenure.health.node_states import WorkerHealthState


def report(clock: ManualClock, worker_id: str = "w", **changes: object) -> WorkerHealthState:
    fields: dict[str, object] = {
        "last_liveness_response": clock.monotonic(),
        "consecutive_liveness_failures": 0,
        "accepting_work": True,
        "available_capacity": 1,
        "workflows_assigned": 1,
        "completions_last_interval": 0,
        "expected_completion_rate": 1.0,
        "workflows_advancing": 1,
        "clock": clock,
    }
    return WorkerHealthState(worker_id, **(fields | changes))


def ask(worker_id: str, progress: float, counter: int | None = None) -> HealthcheckExtensionRequest:
    return HealthcheckExtensionRequest(worker_id, "long_workflow", progress, 0.0, 1, counter)


@pytest.mark.parametrize("call", ["deadline", "suspicion", "extensions", "evidence"])
def test_nothing_is_said_about_a_worker_that_is_not_known(call: str) -> None:
    with pytest.raises(UnknownWorkerError):
        getattr(WorkerHealthManager(clock=ManualClock()), call)("ghost")


def test_a_report_from_an_unknown_worker_is_refused() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    with pytest.raises(UnknownWorkerError):
        manager.on_report(report(clock))
    with pytest.raises(UnknownWorkerError):
        manager.mark_suspect("w", "why")
    assert "w" not in manager.workers


def test_a_worker_that_registers_and_never_reports_is_evicted() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    manager.register("w")
    assert manager.workers.get_routing_decision("w") == "drain"  # nothing is known yet: no work for it
    clock.advance(30)
    [(node_id, reason)] = manager.sweep().evict
    assert node_id == "w"
    assert reason == "eviction criteria met: its healthcheck deadline passed 0.0 s ago without progress"


def test_a_removed_worker_leaves_nothing_behind() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    manager.register("w")
    assert manager.remove("w")
    assert not manager.remove("w")
    clock.advance(100)
    assert manager.expire() == []
    assert manager.sweep().evict == ()
    assert "w" not in manager.workers


def test_a_new_incarnation_starts_with_everything_fresh() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    manager.register("w")
    manager.handle_extension_request(ask("w", 0.9))
    clock.advance(100)
    manager.expire()
    assert manager.register("w") == clock.monotonic() + 30
    assert manager.suspicion("w") is None
    assert manager.workers.get_routing_decision("w") == "drain"
    assert manager.handle_extension_request(ask("w", 0.1)).extension_seconds == 30.0


def test_a_new_leader_goes_on_from_the_journal_or_from_now_as_is_later() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    spent = ExtensionTracker("w", extension_count=4, last_progress=0.5, total_extended=56.25)
    assert manager.register("w", deadline=clock.monotonic() + 50, extensions=spent) == clock.monotonic() + 50
    assert manager.register("v", deadline=clock.monotonic() - 500) == clock.monotonic() + 30
    assert manager.handle_extension_request(ask("w", 0.5)).denial_reason
    assert manager.handle_extension_request(ask("w", 0.6)).extension_seconds == 1.875


def test_suspicion_by_gossip_ends_with_the_next_proof_of_progress() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    manager.register("w")
    manager.mark_suspect("w", "gossip lost it")
    assert manager.workers.get_verdict("w").reason == "gossip lost it"
    clock.advance(30)
    assert manager.expire() == ["w"]
    assert manager.suspicion("w") == "gossip lost it"  # the first reason is the one that tells
    manager.on_worker_healthy("w")
    assert manager.suspicion("w") is None


def test_a_cut_cable_holds_the_brake_and_everybody_comes_back() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    workers = [f"w{index}" for index in range(10)]
    for worker in workers:
        manager.register(worker)
        manager.on_report(report(clock, worker))
    clock.advance(60)
    sweep = manager.sweep()
    assert (sweep.evict, sweep.held, sweep.brake.phase) == ((), 10, BrakePhase.HOLDING)
    assert all(manager.workers.get_routing_decision(worker) == "route" for worker in workers)
    for worker in workers:
        manager.on_report(report(clock, worker))
    assert manager.sweep().brake.phase is BrakePhase.RELEASED
    assert len(manager.workers.get_healthy_nodes()) == 10


def test_a_fleet_that_restarts_is_not_counted_as_lost() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    workers = [f"w{index}" for index in range(10)]
    for worker in workers:
        manager.register(worker)
    clock.advance(60)
    assert manager.sweep().brake.phase is BrakePhase.HOLDING
    for worker in workers[:5]:
        manager.register(worker)
    status = manager.sweep().brake
    assert (status.phase, status.failing, status.total) == (BrakePhase.RELEASED, 5, 10)
    assert [entry.health_class for entry in manager.workers.history("w0")] == ["BUSY", "SUSPECT", "BUSY"]


def test_the_documents_numbers_are_settings() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock, config=ExtensionConfig(base_deadline=15.0, max_extensions=1))
    assert manager.register("w") == clock.monotonic() + 15
    assert manager.handle_extension_request(ask("w", 0.5)).extension_seconds == 15.0
    assert not manager.handle_extension_request(ask("w", 0.9)).granted
    with pytest.raises(LimitError, match="min_grant is"):
        ExtensionConfig(base_deadline=15.0, min_grant=20.0)


def test_completing_and_asking_again_and_again_does_not_hoard_time() -> None:
    clock = ManualClock()
    manager = WorkerHealthManager(clock=clock)
    manager.register("w")
    for _ in range(100):
        manager.on_worker_healthy("w")
        response = manager.handle_extension_request(ask("w", 0.5))
        clock.advance(1)
    assert response.granted
    assert response.extension_seconds == 1.0
    assert manager.deadline("w") <= clock.monotonic() + 30.0 + 2 * 58.125


class Workers(RuleBasedStateMachine):
    """Whatever workers report and ask for: time is only ever earned, and what stops is found within the bound."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.manager = WorkerHealthManager(clock=self.clock)
        self.proved = {"a": self.clock.monotonic(), "b": self.clock.monotonic()}
        self.deadlines = {worker: self.manager.register(worker) for worker in self.proved}
        self.free = dict.fromkeys(self.proved, True)  # a grant that needs no progress is still to be had
        self.reached = dict.fromkeys(self.proved, 0)

    workers = st.sampled_from(["a", "b"])

    @rule(seconds=st.floats(0, 20))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(worker=workers, advancing=st.integers(0, 1))
    def reports(self, worker: str, advancing: int) -> None:
        before = self.manager.extensions(worker).extension_count
        self.manager.on_report(report(self.clock, worker, workflows_advancing=advancing))
        if advancing:
            self.proved[worker] = self.clock.monotonic()
        if self.manager.extensions(worker).extension_count < before:
            assert advancing
            self.free[worker] = True

    @rule(worker=workers)
    def completes(self, worker: str) -> None:
        self.manager.on_worker_healthy(worker)
        self.proved[worker] = self.clock.monotonic()
        self.free[worker] = True

    @rule(worker=workers, steps=st.integers(0, 2))
    def asks(self, worker: str, steps: int) -> None:
        counter = self.reached[worker] + steps
        late = self.clock.monotonic() >= self.manager.deadline(worker)
        suspect = self.manager.suspicion(worker)
        response = self.manager.handle_extension_request(ask(worker, 0.5, counter))
        if response.granted:
            assert not late
            assert suspect is None
            assert steps > 0 or self.free[worker]
            self.reached[worker] = counter
            self.free[worker] = False
        else:
            assert response.denial_reason
            assert response.extension_seconds == 0.0

    @rule()
    def sweeps(self) -> None:
        now = self.clock.monotonic()
        for worker, _ in self.manager.sweep().evict:
            held = self.manager.workers.state(worker)
            assert now >= self.manager.deadline(worker) or not held.liveness_at(now)
        for worker in self.proved:
            overdue = self.clock.monotonic() >= self.manager.deadline(worker)
            assert (self.manager.suspicion(worker) is not None) == overdue

    @invariant()
    def deadlines_only_move_forward_and_stay_within_the_bound(self) -> None:
        for worker, before in self.deadlines.items():
            deadline = self.manager.deadline(worker)
            assert deadline >= before
            bound = self.manager.extensions(worker).bound
            assert deadline <= self.clock.monotonic() + 30.0 + 2 * bound + 1e-6
            # What was saved up before the last proof, and one series after it.
            assert deadline <= self.proved[worker] + 30.0 + 3 * bound + 1e-6
            self.deadlines[worker] = deadline


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
