"""Document 001, "Three-Signal Health Model": its matrix, its tables, its code; and our rulings on it."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Iterator

import pytest
from bench.baselines import document_health as document
from hypothesis import given
from hypothesis import strategies as st

from tenure.clock import ManualClock
from tenure.health.deadlines import WorkerHealthManager
from tenure.health.node_states import (
    GateHealthState,
    HealthPiggyback,
    ManagerHealthState,
    WorkerHealthState,
    has_quorum,
)
from tenure.health.placement import classify_datacenter
from tenure.health.signals import HealthClass, HealthSignals, NodeHealthState, classify
from tenure.health.tracker import NodeHealthTracker

CLOCK = ManualClock(start=1_000.0)
NOW = 1_000.0


@pytest.fixture(autouse=True, scope="module")
def documents_clock() -> Iterator[None]:
    machine, document.clock = document.clock, CLOCK
    yield
    document.clock = machine


def worker(**changes: object) -> WorkerHealthState:
    fields: dict[str, object] = {
        "last_liveness_response": NOW,
        "consecutive_liveness_failures": 0,
        "accepting_work": True,
        "available_capacity": 4,
        "workflows_assigned": 10,
        "completions_last_interval": 10,
        "expected_completion_rate": 1.0,
        "clock": CLOCK,
    }
    return WorkerHealthState("w", **(fields | changes))


def manager(**changes: object) -> ManagerHealthState:
    fields: dict[str, object] = {
        "last_liveness_response": NOW,
        "consecutive_liveness_failures": 0,
        "has_quorum": True,
        "accepting_jobs": True,
        "active_worker_count": 3,
        "jobs_accepted_last_interval": 5,
        "workflows_dispatched_last_interval": 10,
        "expected_throughput": 10.0,
        "clock": CLOCK,
    }
    return ManagerHealthState("m", "dc", **(fields | changes))


def gate(**changes: object) -> GateHealthState:
    fields: dict[str, object] = {
        "last_liveness_response": NOW,
        "consecutive_liveness_failures": 0,
        "has_dc_connectivity": True,
        "connected_dc_count": 2,
        "overload_state": "healthy",
        "jobs_forwarded_last_interval": 10,
        "stats_aggregated_last_interval": 3,
        "expected_forward_rate": 10.0,
        "clock": CLOCK,
    }
    return GateHealthState("g", **(fields | changes))


DEAD = {"last_liveness_response": NOW - 30.0}
NOT_READY = {
    "worker": {"accepting_work": False},
    "manager": {"accepting_jobs": False},
    "gate": {"overload_state": "stressed"},
}
PROGRESS = {
    "worker": {
        "idle": {"workflows_assigned": 0, "completions_last_interval": 0},
        "normal": {},
        "slow": {"completions_last_interval": 5},
        "degraded": {"completions_last_interval": 2},
        "stuck": {"completions_last_interval": 0},
    },
    "manager": {
        "idle": {"jobs_accepted_last_interval": 0},
        "normal": {},
        "slow": {"workflows_dispatched_last_interval": 5},
        "degraded": {"workflows_dispatched_last_interval": 2},
        "stuck": {"workflows_dispatched_last_interval": 0},
    },
    "gate": {
        "idle": {"jobs_forwarded_last_interval": 0},
        "normal": {},
        "slow": {"jobs_forwarded_last_interval": 5},
        "degraded": {"jobs_forwarded_last_interval": 2},
        "stuck": {"jobs_forwarded_last_interval": 0, "jobs_waiting": 1},
    },
}
BUILD = {"worker": worker, "manager": manager, "gate": gate}
LEVELS = {"NORMAL": ("idle", "normal"), "LOW": ("slow", "degraded"), "ZERO": ("stuck",)}

# The decision matrix, row for row; "*" is any.
MATRIX = [
    ("YES", "YES", "NORMAL", "HEALTHY", "route"),
    ("YES", "NO", "NORMAL", "BUSY", "drain"),
    ("YES", "YES", "LOW", "SLOW", "investigate"),
    ("YES", "NO", "LOW", "DEGRADED", "drain"),  # the document's code says investigate; ruled: the matrix
    ("YES", "*", "ZERO", "STUCK", "evict"),  # drain + timer: should_evict waits for the deadline, see below
    ("NO", "*", "*", "SUSPECT", "evict"),
]


def cells() -> Iterator[object]:
    for kind in BUILD:
        for alive, ready, level, health_class, decision in MATRIX:
            for is_ready in ("YES", "NO") if ready == "*" else (ready,):
                for progress in sum(LEVELS.values(), ()) if level == "*" else LEVELS[level]:
                    name = f"{kind}-{alive}-{is_ready}-{progress}"
                    yield pytest.param(kind, alive, is_ready, progress, health_class, decision, id=name)


@pytest.mark.parametrize(("kind", "alive", "ready", "progress", "health_class", "decision"), list(cells()))
def test_each_cell_of_the_decision_matrix(
    kind: str, alive: str, ready: str, progress: str, health_class: str, decision: str
) -> None:
    state = BUILD[kind](
        **PROGRESS[kind][progress], **({} if alive == "YES" else DEAD), **({} if ready == "YES" else NOT_READY[kind])
    )
    assert (state.liveness, state.readiness, state.progress_state) == (alive == "YES", ready == "YES", progress)
    assert state.health_class == health_class
    assert state.get_routing_decision() == decision
    assert classify(state.liveness, state.readiness, state.progress_state) == health_class
    assessment = state.assess_at(NOW)
    assert (assessment.health_class, assessment.decision) == (health_class, decision)
    assert len(assessment.reason) > 10 or progress == "idle"


def test_the_matrix_has_a_class_for_each_of_the_twenty_combinations() -> None:
    seen = [
        classify(alive, ready, progress)
        for alive in (True, False)
        for ready in (True, False)
        for progress in ("idle", "normal", "slow", "degraded", "stuck")
    ]
    assert len(seen) == 20
    assert set(seen) == set(HealthClass)


def test_the_order_of_the_classes_is_written_down() -> None:
    order = ["SUSPECT", "STUCK", "DEGRADED", "SLOW", "BUSY", "HEALTHY"]
    assert sorted(HealthClass) == order
    for worse, better in itertools.pairwise(order):
        assert HealthClass(worse) < HealthClass(better)
        assert HealthClass(better) > worse
        assert HealthClass(worse) <= HealthClass(worse)
        assert HealthClass(better) >= HealthClass(worse)


# The signal definitions' failure thresholds, for each kind of node


@pytest.mark.parametrize("build", BUILD.values(), ids=BUILD)
@pytest.mark.parametrize(
    ("failures", "silent_s", "alive"),
    [(0, 0.0, True), (2, 29.999, True), (3, 0.0, False), (0, 30.0, False), (4, 31.0, False)],
)
def test_liveness_fails_after_three_misses_or_thirty_seconds(
    build: object, failures: int, silent_s: float, alive: bool
) -> None:
    state = build(consecutive_liveness_failures=failures, last_liveness_response=NOW - silent_s)
    assert state.liveness is alive
    assert state.liveness_at(NOW) is alive


@pytest.mark.parametrize(
    ("state", "ready"),
    [
        (worker(), True),
        (worker(accepting_work=False), False),
        (worker(available_capacity=0), False),
        (manager(), True),
        (manager(has_quorum=False), False),
        (manager(accepting_jobs=False), False),
        (manager(active_worker_count=0), False),
        (gate(), True),
        (gate(overload_state="busy"), True),
        (gate(has_dc_connectivity=False), False),
        (gate(connected_dc_count=0), False),
        (gate(overload_state="stressed"), False),
        (gate(overload_state="overloaded"), False),
    ],
)
def test_readiness_fails_as_the_tables_say(state: NodeHealthState, ready: bool) -> None:
    assert state.readiness is ready


@pytest.mark.parametrize(
    ("share", "progress"),
    [(100, "normal"), (80, "normal"), (79, "slow"), (30, "slow"), (29, "degraded"), (1, "degraded"), (0, "stuck")],
)
def test_progress_is_graded_against_the_expected_rate(share: int, progress: str) -> None:
    assert worker(workflows_assigned=100, completions_last_interval=share).progress_state == progress
    assert manager(workflows_dispatched_last_interval=share, expected_throughput=100.0).progress_state == progress
    waiting = {"jobs_waiting": 1} if share == 0 else {}
    assert gate(jobs_forwarded_last_interval=share, expected_forward_rate=100.0, **waiting).progress_state == progress


# The code: constructors as written, and the same answers wherever nothing was ruled otherwise


@pytest.mark.parametrize("name", ["WorkerHealthState", "ManagerHealthState", "GateHealthState"])
def test_the_fields_are_the_documents_in_their_order(name: str) -> None:
    ours = {"WorkerHealthState": WorkerHealthState, "ManagerHealthState": ManagerHealthState}.get(name, GateHealthState)
    theirs = [field.name for field in dataclasses.fields(getattr(document, name))]
    assert [field.name for field in dataclasses.fields(ours)][: len(theirs)] == theirs
    more = [p for p in inspect.signature(ours).parameters.values() if p.name not in theirs]
    assert all(p.default is not inspect.Parameter.empty for p in more)


COUNT = st.integers(0, 12)
# Eighths: no rounding can part the document's `now - last < 30` from ours.
LAST = st.integers(-400, 0).map(lambda eighths: NOW + eighths / 8)
RATE = st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0, 8.0])


def agree(ours: NodeHealthState, theirs: object) -> None:
    assert ours.liveness == theirs.liveness
    assert ours.readiness == theirs.readiness
    assert ours.progress_state == theirs.progress_state
    low_and_not_ready = theirs.liveness and theirs.progress_state in ("slow", "degraded") and not theirs.readiness
    expected = "drain" if low_and_not_ready else theirs.get_routing_decision()
    assert ours.get_routing_decision() == expected


@given(LAST, COUNT, st.booleans(), COUNT, COUNT, COUNT, RATE)
def test_a_worker_is_judged_as_the_documents_code_does(
    last: float, misses: int, accepting: bool, capacity: int, assigned: int, completed: int, rate: float
) -> None:
    fields = (last, misses, accepting, capacity, assigned, completed, rate)
    agree(WorkerHealthState("w", *fields, clock=CLOCK), document.WorkerHealthState("w", *fields))


@given(LAST, COUNT, st.booleans(), st.booleans(), COUNT, COUNT, COUNT, RATE)
def test_a_manager_is_judged_as_the_documents_code_does(
    last: float, misses: int, quorum: bool, accepting: bool, workers: int, accepted: int, dispatched: int, rate: float
) -> None:
    fields = (last, misses, quorum, accepting, workers, accepted, dispatched, rate)
    agree(ManagerHealthState("m", "dc", *fields, clock=CLOCK), document.ManagerHealthState("m", "dc", *fields))


@given(
    LAST,
    COUNT,
    st.booleans(),
    COUNT,
    st.sampled_from(["healthy", "busy", "stressed", "overloaded"]),
    COUNT,
    COUNT,
    RATE,
)
def test_a_gate_is_judged_as_the_documents_code_does(
    last: float, misses: int, connected: bool, count: int, load: str, forwarded: int, stats: int, rate: float
) -> None:
    fields = (last, misses, connected, count, load, forwarded, stats, rate)
    ours, theirs = GateHealthState("g", *fields, clock=CLOCK), document.GateHealthState("g", *fields)
    agree(ours, theirs)
    assert ours.should_participate_in_election() == theirs.should_participate_in_election()


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"jobs_forwarded_last_interval": 0}, True),
        ({"jobs_forwarded_last_interval": 5}, False),
        ({"jobs_forwarded_last_interval": 0, "jobs_waiting": 1}, False),
        ({"overload_state": "stressed"}, False),
        ({"has_dc_connectivity": False}, False),
        (DEAD, False),
    ],
)
def test_gates_with_poor_health_do_not_become_leaders(changes: dict[str, object], may: bool) -> None:
    assert gate(**changes).should_participate_in_election() is may
    assert gate(**changes).should_participate_in_election_at(NOW) is may


def test_states_ask_the_machines_clock_when_none_is_given() -> None:
    state = WorkerHealthState("w", -1e9, 0, True, 1, 0, 0, 1.0)
    assert state.clock is None
    assert state.get_routing_decision() == "evict"


def test_each_state_is_a_provider_of_health_signals() -> None:
    assert all(isinstance(build(), HealthSignals) for build in BUILD.values())


# The generic tracker


@dataclasses.dataclass
class Plain:
    """Nothing but the document's protocol."""

    liveness: bool = True
    readiness: bool = True
    progress_state: str = "normal"


def fleet(*failing: bool) -> NodeHealthTracker[WorkerHealthState]:
    tracker: NodeHealthTracker[WorkerHealthState] = NodeHealthTracker("worker", clock=CLOCK)
    for index, fails in enumerate(failing):
        tracker.update_state(f"n{index}", worker(**(DEAD if fails else {})))
    return tracker


def test_an_unknown_node_is_unknown() -> None:
    tracker = fleet(False)
    assert tracker.get_routing_decision("ghost") == "unknown"
    assert tracker.should_evict("ghost") == (False, "unknown node")


def test_the_trackers_answers_are_the_documents() -> None:
    tracker = fleet(True, False, False, False)
    assert tracker.get_routing_decision("n0") == "evict"
    assert tracker.get_routing_decision("n1") == "route"
    assert tracker.get_healthy_nodes() == ["n1", "n2", "n3"]
    assert tracker.should_evict("n0") == (True, "eviction criteria met")
    assert tracker.should_evict("n1") == (False, "healthy")
    should, reason = tracker.should_evict("n0")
    assert should
    assert reason


def test_more_than_half_failing_is_a_systemic_failure() -> None:
    assert fleet(True, True, True, False, False).should_evict("n0") == (
        False,
        "systemic failure detected, holding eviction",
    )
    assert fleet(True, True, False, False).should_evict("n0") == (True, "eviction criteria met")  # half is not more


@given(st.lists(st.booleans(), min_size=3, max_size=12).filter(lambda nodes: sum(nodes) != 1))
def test_the_correlation_check_is_the_documents_from_three_nodes_and_two_failures_up(failing: list[bool]) -> None:
    # Nodes are seen together, as after a silence: filling the fleet one by one would show other shares on the way.
    clock = ManualClock(start=NOW)
    ours: NodeHealthTracker[WorkerHealthState] = NodeHealthTracker("worker", clock=clock)
    theirs: document.NodeHealthTracker[document.WorkerHealthState] = document.NodeHealthTracker("worker")
    for index, fails in enumerate(failing):
        last = NOW - 29 if fails else NOW
        ours.update_state(f"n{index}", worker(last_liveness_response=last, clock=clock))
        theirs.update_state(f"n{index}", document.WorkerHealthState("w", last, 0, True, 4, 10, 10, 1.0))
    clock.advance(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "clock", clock)
        for index in range(len(failing)):
            assert ours.should_evict(f"n{index}") == theirs.should_evict(f"n{index}")


def test_a_state_that_has_only_the_protocol_can_be_tracked() -> None:
    tracker: NodeHealthTracker[Plain] = NodeHealthTracker("other", clock=CLOCK)
    states = [Plain() for _ in range(4)]
    for index, state in enumerate(states):
        tracker.update_state(f"n{index}", state)
    assert tracker.get_healthy_nodes() == ["n0", "n1", "n2", "n3"]
    states[0].liveness = False  # it changes by itself, as the document's own do
    assert tracker.get_routing_decision("n0") == "evict"
    assert tracker.get_healthy_nodes() == ["n1", "n2", "n3"]
    assert tracker.sweep().evict == (("n0", "eviction criteria met: its signals say so"),)


# Datacenters


def dead_manager(**changes: object) -> ManagerHealthState:
    return manager(**DEAD, **changes)


NO = {"accepting_jobs": False}
STUCK = {"workflows_dispatched_last_interval": 0}
FULL = {"workflows_dispatched_last_interval": 0, "expected_throughput": 0.0}


@pytest.mark.parametrize(
    ("managers", "capacity", "health"),
    [
        ([], 10, "UNHEALTHY"),
        ([dead_manager()], 10, "UNHEALTHY"),
        ([dead_manager(), dead_manager()], 10, "UNHEALTHY"),
        ([dead_manager(), dead_manager()], 0, "UNHEALTHY"),
        ([manager(**NO), manager(**NO), manager()], 10, "DEGRADED"),
        ([manager(**NO), manager()], 10, "HEALTHY"),  # half is no majority
        ([manager(**NO)], 10, "DEGRADED"),
        ([manager(**STUCK), manager(), manager()], 10, "DEGRADED"),
        ([manager(**STUCK), manager()], 0, "DEGRADED"),  # the rule for stuck comes before that for full
        ([manager(), manager()], 0, "BUSY"),
        ([manager(**FULL), manager(**FULL)], 0, "BUSY"),
        ([manager(), manager()], 1, "HEALTHY"),
        ([manager(), manager(), dead_manager()], 5, "HEALTHY"),
        # A silent manager's last word on its readiness is not known to hold any more: it counts as not ready.
        ([manager(), dead_manager(), dead_manager()], 5, "DEGRADED"),
        # The document says nothing of a full datacenter with one manager that is not ready; full is BUSY.
        ([manager(), manager(), manager(**NO)], 0, "BUSY"),
    ],
)
def test_datacenters_are_classed_by_the_documents_rules_in_its_order(
    managers: list[ManagerHealthState], capacity: int, health: str
) -> None:
    by_clock = classify_datacenter(managers, capacity)
    assert by_clock.health == health
    assert by_clock == classify_datacenter(managers, capacity, now=NOW)
    assert by_clock.reason


def test_placement_prefers_healthy_over_busy_over_degraded() -> None:
    kinds = [
        classify_datacenter(managers, capacity).health
        for managers, capacity in [([], 0), ([manager(**STUCK)], 1), ([manager()], 0), ([manager()], 1)]
    ]
    assert [kind.preference for kind in kinds] == [0, 1, 2, 3]


# The piggyback


def test_the_piggyback_takes_the_documents_fields() -> None:
    piggyback = HealthPiggyback(
        node_id="w",
        node_type="worker",
        accepting_work=True,
        capacity=4,
        throughput=10,
        expected_throughput=12,
        overload_state="busy",
    )
    assert HealthPiggyback.decode(piggyback.encode()) == piggyback


# Rulings


def test_answers_are_enums_that_equal_the_documents_strings() -> None:
    assert worker().get_routing_decision() == "route"
    assert f"{worker().progress_state}" == "normal"


def test_one_long_workflow_that_advances_is_not_stuck() -> None:
    """LESSONS: any workflow longer than one interval looked stuck."""
    silent = worker(workflows_assigned=1, completions_last_interval=0)
    assert silent.progress_state == "stuck"
    advancing = dataclasses.replace(silent, workflows_advancing=1)
    assert advancing.progress_state == "normal"
    assert advancing.get_routing_decision() == "route"


@pytest.mark.parametrize(
    ("advancing", "progress"), [(10, "normal"), (8, "normal"), (5, "slow"), (2, "degraded"), (0, "stuck")]
)
def test_a_workflow_that_advances_counts_as_one_that_meets_its_rate(advancing: int, progress: str) -> None:
    state = worker(workflows_assigned=10, completions_last_interval=0, workflows_advancing=advancing)
    assert state.progress_state == progress
    # However fast other work completes: what is long is not slow.
    assert dataclasses.replace(state, expected_completion_rate=100.0).progress_state == progress


def test_work_that_stands_still_is_stuck_even_when_no_rate_is_known_yet() -> None:
    state = worker(completions_last_interval=0, expected_completion_rate=0.0)
    assert state.progress_state == "stuck"
    assert dataclasses.replace(state, workflows_advancing=1).progress_state == "normal"


def test_stuck_drains_now_and_is_evicted_when_the_healthcheck_deadline_passes() -> None:
    clock = ManualClock(start=NOW)
    workers = WorkerHealthManager(clock=clock)
    stuck = worker(completions_last_interval=0, clock=clock)
    workers.register("w")
    workers.on_report(stuck)
    assert workers.workers.get_routing_decision("w") == "evict"
    assert workers.workers.should_evict("w") == (False, "stuck, draining until its healthcheck deadline")
    clock.advance(29)
    workers.on_report(dataclasses.replace(stuck, last_liveness_response=clock.monotonic()))
    assert workers.sweep().evict == ()
    assert workers.sweep().draining == 1
    clock.advance(1)
    [(node_id, reason)] = workers.sweep().evict
    assert node_id == "w"
    assert "healthcheck deadline passed" in reason


def test_a_stuck_manager_or_gate_has_the_base_deadline_as_its_timer() -> None:
    clock = ManualClock(start=NOW)
    tracker: NodeHealthTracker[GateHealthState] = NodeHealthTracker("gate", clock=clock)
    stuck = gate(jobs_forwarded_last_interval=0, jobs_waiting=3, clock=clock)
    tracker.update_state("g", stuck)
    clock.advance(20)
    tracker.update_state("g", dataclasses.replace(stuck, last_liveness_response=clock.monotonic()))
    assert not tracker.should_evict("g").should_evict
    clock.advance(10)
    assert tracker.should_evict("g").should_evict


def test_a_gate_with_work_waiting_and_nothing_forwarded_is_stuck() -> None:
    assert gate(jobs_forwarded_last_interval=0).progress_state == "idle"
    assert gate(jobs_forwarded_last_interval=0, jobs_waiting=1).progress_state == "stuck"
    assert gate(jobs_forwarded_last_interval=0, jobs_waiting=1).get_routing_decision() == "evict"


def test_a_manager_that_leaves_a_backlog_lying_is_not_idle() -> None:
    backlog = {"jobs_accepted_last_interval": 0, "workflows_dispatched_last_interval": 0, "workflows_waiting": 7}
    assert manager(**backlog).progress_state == "stuck"
    assert manager(**backlog, expected_throughput=0.0).progress_state == "normal"  # there is no room: BUSY, not stuck


@pytest.mark.parametrize(("engine", "term", "quorum"), [(1, 1, True), (1, 0, False), (0, 1, False), (0, 0, False)])
def test_quorum_is_an_engine_that_answers_and_a_term_that_is_current(engine: int, term: int, quorum: bool) -> None:
    assert has_quorum(engine_answers=bool(engine), term_is_current=bool(term)) is quorum


@pytest.mark.parametrize("failing", [(True,), (True, True), (True, False)])
def test_a_cluster_of_one_or_two_can_evict(failing: tuple[bool, ...]) -> None:
    assert fleet(*failing).should_evict("n0") == (True, "eviction criteria met")


def test_ten_bad_nodes_of_five_thousand_do_not_hold_evictions() -> None:
    """LESSONS: the brake counted absolute failures."""
    tracker = fleet(*[True] * 10, *[False] * 4_990)
    assert all(tracker.should_evict(f"n{index}").should_evict for index in range(10))


def test_five_of_five_silent_nodes_are_not_evicted() -> None:
    """LESSONS: 5 of 5 silent nodes were all evicted."""
    tracker = fleet(*[True] * 5)
    assert not any(tracker.should_evict(f"n{index}").should_evict for index in range(5))
