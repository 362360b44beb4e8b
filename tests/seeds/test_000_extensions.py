"""Document 000, "Adaptive Healthcheck Extensions": its box, its table, its code, its flow; and our rulings on it."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from bench.baselines import document_health as document
from hypothesis import given
from hypothesis import strategies as st

from tenure.clock import ManualClock
from tenure.errors import LimitError, UnknownWorkerError
from tenure.health.deadlines import WorkerHealthManager
from tenure.health.extension import (
    Denial,
    ExtensionTracker,
    HealthcheckExtensionRequest,
    HealthcheckExtensionResponse,
    extension_bound,
)
from tenure.health.node_states import WorkerHealthState


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_000.0, wall=1_700_000_000.0)


@pytest.fixture
def manager(clock: ManualClock) -> WorkerHealthManager:
    manager = WorkerHealthManager(clock=clock)
    manager.register("w")
    return manager


def ask(progress: float, worker_id: str = "w", **more: object) -> HealthcheckExtensionRequest:
    fields: dict[str, object] = {
        "reason": "long_workflow",
        "current_progress": progress,
        "estimated_completion": 1_700_000_100.0,
        "active_workflow_count": 1,
    }
    return HealthcheckExtensionRequest(worker_id, **(fields | more))


def report(clock: ManualClock, *, advancing: int = 1, assigned: int = 1) -> WorkerHealthState:
    return WorkerHealthState("w", clock.monotonic(), 0, True, 1, assigned, 0, 1.0, advancing, clock=clock)


# The grant reduction table


@pytest.mark.parametrize(
    ("number", "grant", "cumulative"),
    [
        (1, 30.0, 30.0),
        (2, 15.0, 45.0),
        (3, 7.5, 52.5),
        (4, 3.75, 56.25),
        # The table rounds the fifth to "1.0s (min)" and 57.25; the formula beside it, max(1, 30/2^4), says 1.875.
        (5, 1.875, 58.125),
    ],
)
def test_the_grant_reduction_table(number: int, grant: float, cumulative: float) -> None:
    tracker = ExtensionTracker(worker_id="w")
    for step in range(1, number):
        tracker.request_extension("long_workflow", step / 10)
    assert tracker.request_extension("long_workflow", number / 10) == (True, grant)
    assert tracker.total_extended == cumulative


def test_the_sixth_request_is_denied() -> None:
    tracker = ExtensionTracker(worker_id="w")
    answers = [tracker.request_extension("long_workflow", step / 10) for step in range(1, 8)]
    assert [answer.granted for answer in answers] == [True] * 5 + [False] * 2
    assert answers[5] == (False, 0.0)
    assert answers[5].reason == "Maximum extensions (5) exceeded"
    assert tracker.total_extended == tracker.bound == extension_bound() == 58.125


def test_grants_converge_to_the_minimum() -> None:
    tracker = ExtensionTracker(worker_id="w", max_extensions=2_000)
    grants = [tracker.request_extension("gc_pause", step / 2_000)[1] for step in range(1, 2_001)]
    assert grants[5:] == [1.0] * 1_995
    assert tracker.total_extended == pytest.approx(tracker.bound) == pytest.approx(58.125 + 1_995)


def test_the_example_of_document_002_part_8_is_a_base_of_15() -> None:
    tracker = ExtensionTracker("w", base_deadline=15.0)
    grants = [tracker.request_extension("long_workflow", step / 10).extension_seconds for step in (1, 2, 3)]
    assert grants == [15.0, 7.5, 3.75]
    assert tracker.total_extended == 26.25


# The code


def test_the_trackers_fields_and_defaults_are_the_documents() -> None:
    ours = list(inspect.signature(ExtensionTracker).parameters.values())
    theirs = list(inspect.signature(document.ExtensionTracker).parameters.values())
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [(p.name, p.default) for p in theirs]


@given(st.lists(st.one_of(st.sampled_from([i / 8 for i in range(9)]), st.none()), max_size=30))
def test_our_tracker_answers_as_the_documents_code_does(script: list[float | None]) -> None:
    ours, theirs = ExtensionTracker("w"), document.ExtensionTracker("w")
    for progress in script:
        if progress is None:
            ours.reset()
            theirs.reset()
        else:
            answer = theirs.request_extension("gc_pause", progress)
            assert ours.request_extension("gc_pause", progress) == answer
    assert (ours.extension_count, ours.last_progress, ours.total_extended) == (
        theirs.extension_count,
        theirs.last_progress,
        theirs.total_extended,
    )


def test_the_answer_unpacks_as_the_document_says_and_carries_the_reason() -> None:
    granted, seconds = answer = ExtensionTracker("w").request_extension(
        reason="resource_contention", current_progress=0.0
    )
    assert (granted, seconds) == (True, 30.0)
    assert answer.reason == "extension 1 of 5 for resource_contention: 30 s"


def test_reset_gives_the_whole_series_again() -> None:
    tracker = ExtensionTracker("w")
    tracker.request_extension("long_workflow", 0.5)
    tracker.reset()
    assert (tracker.extension_count, tracker.last_progress, tracker.total_extended) == (0, 0.0, 0.0)
    assert tracker.request_extension("long_workflow", 0.1) == (True, 30.0)


def test_the_messages_take_the_documents_fields_in_their_order() -> None:
    request = HealthcheckExtensionRequest("w", "long_workflow", 0.3, 1_700_000_100.0, 2)
    assert (request.worker_id, request.reason, request.current_progress) == ("w", "long_workflow", 0.3)
    assert (request.estimated_completion, request.active_workflow_count) == (1_700_000_100.0, 2)
    response = HealthcheckExtensionResponse(False, 0.0, 1_700_000_030.0, 0, "Maximum extensions (5) exceeded")
    assert response.denial_reason == "Maximum extensions (5) exceeded"
    assert HealthcheckExtensionResponse(True, 30.0, 1_700_000_060.0, 4).denial_reason is None


def test_a_request_must_include_reason_estimate_and_progress() -> None:
    required = [field.name for field in dataclasses.fields(HealthcheckExtensionRequest) if required_field(field)]
    assert required == ["worker_id", "reason", "current_progress", "estimated_completion", "active_workflow_count"]
    answered = [field.name for field in dataclasses.fields(HealthcheckExtensionResponse) if required_field(field)]
    assert answered == ["granted", "extension_seconds", "new_deadline", "remaining_extensions"]


def required_field(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


# The complete protocol flow


def test_the_complete_protocol_flow(clock: ManualClock, manager: WorkerHealthManager) -> None:
    start = clock.monotonic()
    assert manager.deadline("w") == start + 30

    clock.advance(10)
    first = manager.handle_extension_request(ask(0.3))
    assert (first.granted, first.extension_seconds, first.remaining_extensions) == (True, 30.0, 4)
    assert manager.deadline("w") == start + 60

    clock.advance(30)
    second = manager.handle_extension_request(ask(0.6))
    assert (second.granted, second.extension_seconds, second.remaining_extensions) == (True, 15.0, 3)
    assert manager.deadline("w") == start + 75

    clock.advance(10)
    third = manager.handle_extension_request(ask(0.6))
    assert (third.granted, third.extension_seconds, third.remaining_extensions) == (False, 0.0, 3)
    assert third.denial_reason == "No progress since last extension (was 0.6, now 0.6)"
    assert manager.deadline("w") == start + 75

    clock.advance(24.9)
    assert manager.expire() == []
    clock.advance(0.1)
    assert manager.expire() == ["w"]
    assert "healthcheck deadline passed" in (manager.suspicion("w") or "")


def test_on_worker_healthy_resets_and_is_harmless_for_an_unknown_worker(
    clock: ManualClock, manager: WorkerHealthManager
) -> None:
    manager.handle_extension_request(ask(0.9))
    manager.on_worker_healthy("w")
    manager.on_worker_healthy("nobody")
    assert manager.extensions("w").extension_count == 0
    assert manager.handle_extension_request(ask(0.1)).extension_seconds == 30.0


# What is denied


def test_denied_no_progress_since_the_last_extension() -> None:
    tracker = ExtensionTracker("w")
    tracker.request_extension("long_workflow", 0.5)
    for progress in (0.5, 0.4, 0.0):
        answer = tracker.request_extension("long_workflow", progress)
        assert answer == (False, 0.0)
        assert answer.denial is Denial.NO_PROGRESS
    assert tracker.request_extension("long_workflow", 0.51).granted


def test_denied_the_node_is_already_marked_suspect(manager: WorkerHealthManager) -> None:
    manager.mark_suspect("w", "gossip lost it")
    answer = manager.handle_extension_request(ask(0.9))
    assert not answer.granted
    assert answer.denial_reason == "Worker is already marked suspect: gossip lost it"
    assert answer.remaining_extensions == 5


def test_denied_past_the_deadline_even_before_anybody_looked(clock: ManualClock, manager: WorkerHealthManager) -> None:
    clock.advance(30)
    answer = manager.handle_extension_request(ask(0.9))
    assert not answer.granted
    assert "already marked suspect: its healthcheck deadline passed" in (answer.denial_reason or "")
    assert manager.expire() == ["w"]  # the shell still learns of it, once
    assert manager.expire() == []


# Rulings


def test_deadlines_leave_as_unix_time(clock: ManualClock, manager: WorkerHealthManager) -> None:
    clock.advance(10)
    assert manager.handle_extension_request(ask(0.3)).new_deadline == pytest.approx(1_700_000_060.0)
    # Denied: as it was.
    assert manager.handle_extension_request(ask(0.3)).new_deadline == pytest.approx(1_700_000_060.0)
    clock.step_wall(3_600)
    assert manager.deadline("w") == 1_060.0


@pytest.mark.parametrize("progress", [float("nan"), float("inf"), -0.01, 1.01, -float("inf"), "0.5", None, True])
def test_progress_that_is_no_fraction_is_refused_everywhere(progress: float) -> None:
    with pytest.raises(LimitError, match=r"^current_progress is .* must be a number from 0 to 1"):
        ask(progress)
    tracker = ExtensionTracker("w")
    with pytest.raises(LimitError):
        tracker.request_extension("long_workflow", progress)
    assert tracker.extension_count == 0


@pytest.mark.parametrize("reason", ["", "because", "LONG_WORKFLOW", None])
def test_an_unknown_reason_is_refused_and_the_known_ones_are_named(reason: str) -> None:
    with pytest.raises(LimitError, match="one of long_workflow, gc_pause, resource_contention"):
        ask(0.5, reason=reason)
    with pytest.raises(LimitError):
        ExtensionTracker("w").request_extension(reason, 0.5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("estimated_completion", float("nan")),
        ("active_workflow_count", -1),
        ("active_workflow_count", 1.5),
        ("progress_counter", -1),
    ],
)
def test_evidence_must_be_numbers_too(field: str, value: object) -> None:
    with pytest.raises(LimitError, match=f"^{field} is"):
        ask(0.5, **{field: value})


def test_an_unknown_worker_is_refused(manager: WorkerHealthManager) -> None:
    with pytest.raises(UnknownWorkerError, match=r"worker 'ghost' is not known here\. Register"):
        manager.handle_extension_request(ask(0.5, "ghost"))


def test_estimate_and_count_are_kept_in_the_evidence(clock: ManualClock, manager: WorkerHealthManager) -> None:
    request = ask(0.4, estimated_completion=1_700_000_555.0, active_workflow_count=7)
    response = manager.handle_extension_request(request)
    assert manager.evidence("w") == ((clock.monotonic(), request, response),)
    for step in range(40):
        manager.handle_extension_request(ask(step / 40))
    assert len(manager.evidence("w")) == 16


def test_absolute_counters_win_over_the_fraction(manager: WorkerHealthManager) -> None:
    assert manager.handle_extension_request(ask(0.9, progress_counter=100)).granted
    # The next workflow began: its fraction is small, the worker's counter went on.
    assert manager.handle_extension_request(ask(0.1, progress_counter=101)).granted
    # And a fraction that rises proves nothing while the counter stands still.
    denied = manager.handle_extension_request(ask(0.8, progress_counter=101))
    assert denied.denial_reason == "No progress since last extension (counter was 101, now 101)"


def test_where_only_one_side_knows_a_counter_the_fraction_decides(manager: WorkerHealthManager) -> None:
    assert manager.handle_extension_request(ask(0.2)).granted
    assert not manager.handle_extension_request(ask(0.2, progress_counter=50)).granted
    assert manager.handle_extension_request(ask(0.3, progress_counter=50)).granted
    assert not manager.handle_extension_request(ask(0.3)).granted


def test_a_warning_comes_one_grant_before_the_last_and_with_the_last(manager: WorkerHealthManager) -> None:
    warnings = [manager.handle_extension_request(ask(step / 10)).warning for step in range(1, 7)]
    assert warnings == [
        None,
        None,
        None,
        "One extension of 1.875 s is left: save your state",
        "This was the last extension: save your state now",
        None,
    ]


def test_each_report_with_progress_moves_the_deadline(clock: ManualClock, manager: WorkerHealthManager) -> None:
    """LESSONS: the deadline was never refreshed, so a worker that once asked was evicted later although healthy."""
    manager.handle_extension_request(ask(0.3))
    for _ in range(100):
        clock.advance(10)
        manager.on_report(report(clock))
        assert manager.deadline("w") >= clock.monotonic() + 30
    assert manager.expire() == []
    assert manager.sweep().evict == ()


def test_a_report_never_takes_back_what_an_extension_gave(clock: ManualClock, manager: WorkerHealthManager) -> None:
    manager.handle_extension_request(ask(0.3))
    clock.advance(5)
    assert manager.on_report(report(clock)) == 1_060.0


def test_a_report_without_progress_moves_nothing(clock: ManualClock, manager: WorkerHealthManager) -> None:
    for _ in range(2):
        clock.advance(10)
        assert manager.on_report(report(clock, advancing=0)) == 1_030.0
    clock.advance(10)
    assert manager.expire() == ["w"]


def test_a_worker_with_nothing_to_do_proves_itself_by_reporting(
    clock: ManualClock, manager: WorkerHealthManager
) -> None:
    for _ in range(20):
        clock.advance(10)
        manager.on_report(report(clock, advancing=0, assigned=0))
    assert manager.expire() == []


def test_extensions_come_back_after_a_full_interval_of_health(clock: ManualClock, manager: WorkerHealthManager) -> None:
    for step in range(1, 6):
        manager.handle_extension_request(ask(step / 10))
    manager.on_report(report(clock))
    clock.advance(29)
    manager.on_report(report(clock))
    assert not manager.handle_extension_request(ask(0.9)).granted
    clock.advance(1)
    manager.on_report(report(clock))
    assert manager.handle_extension_request(ask(0.9)).extension_seconds == 30.0


def test_a_spell_of_bad_health_starts_that_interval_again(clock: ManualClock, manager: WorkerHealthManager) -> None:
    manager.handle_extension_request(ask(0.1))
    for advancing in (1, 0, 1):
        manager.on_report(report(clock, advancing=advancing))
        clock.advance(20)
    manager.on_report(report(clock))
    assert manager.extensions("w").extension_count == 1


def test_a_late_sign_of_progress_ends_the_suspicion(clock: ManualClock, manager: WorkerHealthManager) -> None:
    clock.advance(31)
    assert manager.expire() == ["w"]
    manager.on_report(report(clock, advancing=0))
    assert manager.suspicion("w") is not None
    manager.on_report(report(clock))
    assert manager.suspicion("w") is None
    assert manager.workers.get_routing_decision("w") == "route"
    clock.advance(30)
    assert manager.expire() == ["w"]
