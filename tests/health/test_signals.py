from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import LimitError
from tenure.health.node_states import GateHealthState, ManagerHealthState, WorkerHealthState
from tenure.health.signals import HealthConfig, NodeHealthState, ProgressState, classify

NOW = 1_000.0
WORKER = WorkerHealthState("w", NOW, 0, True, 2, 4, 4, 1.0)
MANAGER = ManagerHealthState("m", "dc", NOW, 0, True, True, 3, 5, 10, 10.0)
GATE = GateHealthState("g", NOW, 0, True, 2, "healthy", 10, 3, 10.0)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (
            WORKER,
            "answers, takes work, progress normal: of 4 workflows 0 advance, 4 completed in the interval (4 expected)",
        ),
        (dataclasses.replace(WORKER, workflows_assigned=0), "answers, takes work, idle"),
        (dataclasses.replace(WORKER, workflows_assigned=0, available_capacity=0), "answers, has no free slot, idle"),
        (dataclasses.replace(WORKER, last_liveness_response=960.0), "no answer for 40.0 s (limit 30 s)"),
        (dataclasses.replace(WORKER, consecutive_liveness_failures=3), "missed 3 probes in a row (limit 3)"),
        (
            dataclasses.replace(WORKER, completions_last_interval=0),
            "answers, but nothing moves: progress stuck: of 4 workflows 0 advance, 0 completed in the interval (4 expected)",
        ),
        (
            dataclasses.replace(MANAGER, has_quorum=False, jobs_accepted_last_interval=0),
            "answers, has no quorum (its engine does not answer, or no term is current), idle",
        ),
        (
            dataclasses.replace(MANAGER, active_worker_count=0, workflows_dispatched_last_interval=4),
            "answers, has no workers, progress slow: 5 jobs accepted, 4 workflows dispatched in the interval (10 expected), "
            "0 waiting",
        ),
        (
            dataclasses.replace(MANAGER, accepting_jobs=False, jobs_accepted_last_interval=0),
            "answers, does not accept jobs, idle",
        ),
        (
            dataclasses.replace(GATE, overload_state="stressed", jobs_forwarded_last_interval=0),
            "answers, is stressed, idle",
        ),
        (
            dataclasses.replace(GATE, connected_dc_count=0, jobs_forwarded_last_interval=1),
            "answers, reaches no datacenter, progress degraded: 1 jobs forwarded in the interval (10 expected), 0 waiting",
        ),
    ],
)
def test_the_reason_says_in_words_what_is_wrong(state: NodeHealthState, reason: str) -> None:
    assert state.assess_at(NOW).reason == reason


@pytest.mark.parametrize(
    ("state", "field", "value"),
    [
        (WORKER, "last_liveness_response", float("nan")),
        (WORKER, "consecutive_liveness_failures", -1),
        (WORKER, "available_capacity", -1),
        (WORKER, "workflows_assigned", 1.5),
        (WORKER, "completions_last_interval", None),
        (WORKER, "expected_completion_rate", float("nan")),
        (WORKER, "expected_completion_rate", -0.1),
        (WORKER, "workflows_advancing", -1),
        (MANAGER, "active_worker_count", -1),
        (MANAGER, "expected_throughput", float("inf")),
        (MANAGER, "workflows_waiting", -1),
        (GATE, "connected_dc_count", -1),
        (GATE, "overload_state", "fine"),
        (GATE, "jobs_waiting", "3"),
        (GATE, "expected_forward_rate", float("nan")),
    ],
)
def test_a_signal_that_is_no_number_is_refused_by_name(state: NodeHealthState, field: str, value: object) -> None:
    with pytest.raises(LimitError, match=f"^{field} is"):
        dataclasses.replace(state, **{field: value})


def test_each_kind_of_node_may_have_its_own_thresholds() -> None:
    patient = HealthConfig(liveness_timeout_s=60.0, max_liveness_failures=10, normal_share=0.5, slow_share=0.1)
    silent = dataclasses.replace(
        MANAGER, last_liveness_response=NOW - 59, consecutive_liveness_failures=9, workflows_dispatched_last_interval=5
    )
    assert not silent.liveness_at(NOW)
    silent = dataclasses.replace(silent, config=patient)
    assert silent.liveness_at(NOW)
    assert silent.progress_state == "normal"
    assert dataclasses.replace(silent, workflows_dispatched_last_interval=1).progress_state == "slow"


@pytest.mark.parametrize(
    "wrong",
    [
        {"liveness_timeout_s": -1.0},
        {"max_liveness_failures": 0},
        {"normal_share": float("nan")},
        {"slow_share": 0.9},
    ],
)
def test_thresholds_that_contradict_themselves_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(LimitError):
        HealthConfig(**wrong)


def test_the_clock_is_no_part_of_a_states_value() -> None:
    assert dataclasses.replace(WORKER, clock=None) == WORKER
    assert "clock" not in repr(WORKER)


# Worse signals never give a better class, and the same signals give the same answer

PROGRESS = [ProgressState.STUCK, ProgressState.DEGRADED, ProgressState.SLOW, ProgressState.NORMAL]


@given(st.booleans(), st.booleans(), st.integers(0, 3), st.booleans(), st.booleans(), st.integers(0, 3))
def test_worse_signals_never_give_a_better_class(
    alive: bool, ready: bool, progress: int, worse_alive: bool, worse_ready: bool, worse_progress: int
) -> None:
    better = classify(alive, ready, PROGRESS[progress])
    worse = classify(alive and worse_alive, ready and worse_ready, PROGRESS[min(progress, worse_progress)])
    assert worse <= better


def test_idle_is_as_good_as_normal() -> None:
    for alive in (True, False):
        for ready in (True, False):
            assert classify(alive, ready, "idle") is classify(alive, ready, "normal")


COUNT = st.integers(0, 10)
WORKERS = st.builds(
    WorkerHealthState,
    st.just("w"),
    st.floats(NOW - 60, NOW),
    st.integers(0, 5),
    st.booleans(),
    COUNT,
    COUNT,
    COUNT,
    st.floats(0, 20),
    COUNT,
)


@given(WORKERS, st.data())
def test_a_worker_that_reports_worse_is_never_classed_better(state: WorkerHealthState, data: st.DataObject) -> None:
    worse = dataclasses.replace(
        state,
        last_liveness_response=state.last_liveness_response - data.draw(st.floats(0, 40)),
        consecutive_liveness_failures=state.consecutive_liveness_failures + data.draw(COUNT),
        accepting_work=state.accepting_work and data.draw(st.booleans()),
        available_capacity=data.draw(st.integers(0, state.available_capacity)),
        completions_last_interval=data.draw(st.integers(0, state.completions_last_interval)),
        workflows_advancing=data.draw(st.integers(0, state.workflows_advancing)),
    )
    later = NOW + data.draw(st.floats(0, 60))
    assert worse.class_at(NOW) <= state.class_at(NOW)
    assert state.class_at(later) <= state.class_at(NOW)


@given(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10), st.floats(0, 20), st.integers(0, 10))
def test_a_manager_or_gate_that_moves_less_is_never_classed_better(
    arrived: int, moved: int, less: int, expected: float, waiting: int
) -> None:
    less = min(moved, less)
    manager = dataclasses.replace(
        MANAGER, jobs_accepted_last_interval=arrived, workflows_waiting=waiting, expected_throughput=expected
    )
    assert dataclasses.replace(manager, workflows_dispatched_last_interval=less).class_at(NOW) <= dataclasses.replace(
        manager, workflows_dispatched_last_interval=moved
    ).class_at(NOW)
    if waiting:  # without work waiting, a gate that forwards nothing is idle
        gate = dataclasses.replace(GATE, jobs_waiting=waiting, expected_forward_rate=expected)
        assert dataclasses.replace(gate, jobs_forwarded_last_interval=less).class_at(NOW) <= dataclasses.replace(
            gate, jobs_forwarded_last_interval=moved
        ).class_at(NOW)


@given(WORKERS)
def test_the_same_signals_give_the_same_answer(state: WorkerHealthState) -> None:
    again = dataclasses.replace(state)
    assert again == state
    assert again.assess_at(NOW) == state.assess_at(NOW)
    assert state.class_at(NOW) == classify(state.liveness_at(NOW), state.readiness, state.progress_state)
