from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory import kept_bytes

from tenure.errors import LimitError
from tenure.health.node_states import ManagerHealthState, WorkerHealthState
from tenure.health.placement import classify_datacenter
from tenure.health.window import CompletionRate, EventWindow, FlowWindow, ProgressWindow


def test_an_event_counts_for_one_interval_and_then_as_history() -> None:
    window = EventWindow(interval_s=30.0, history=2)
    window.record(100.0, 5)
    assert (window.last_interval(100.0), window.before(100.0)) == (5, 0)
    assert (window.last_interval(126.0), window.before(126.0)) == (5, 0)
    assert (window.last_interval(130.0), window.before(130.0)) == (0, 5)
    assert (window.last_interval(186.0), window.before(186.0)) == (0, 5)
    assert (window.last_interval(190.0), window.before(190.0)) == (0, 0)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 3)), max_size=200))
def test_a_window_counts_what_a_list_would_count_to_a_tenth_of_the_interval(events: list[tuple[float, int]]) -> None:
    window, seen, now = EventWindow(30.0, history=0), list[tuple[float, int]](), 1_000.0
    for wait, amount in events:
        now += wait
        window.record(now, amount)
        seen.append((now, amount))
        at_least = sum(amount for at, amount in seen if now - at < 27.0)
        at_most = sum(amount for at, amount in seen if now - at < 30.0)
        assert at_least <= window.last_interval(now) <= at_most


def test_a_window_keeps_no_more_than_one_number_for_each_tenth_of_its_interval() -> None:
    def filled() -> EventWindow:
        window = EventWindow(30.0, history=0)
        for number in range(10_000):
            window.record(1_000.0 + number, 1)
        return window

    assert kept_bytes(filled) < 5_000


def test_the_expected_rate_is_what_the_fleet_did_before_the_last_interval() -> None:
    rate = CompletionRate(interval_s=30.0, history=10)
    assert rate.expected(0.0) == 0.0  # no evidence: nothing is expected, nothing is called slow
    for second in range(0, 300, 10):
        for _ in range(4):  # four workers with 2 workflows each, and each workflow takes 20 s
            rate.observe(float(second), assigned=2, over_s=10.0, completions=1)
    assert rate.expected(300.0) == pytest.approx(1.5)  # 30 s / 20 s


def test_a_slow_worker_is_measured_against_its_peers_and_not_against_itself() -> None:
    rate = CompletionRate()
    for second in range(0, 300, 10):
        for worker in range(10):
            rate.observe(float(second), assigned=1, over_s=10.0, completions=0 if worker == 0 and second else 1)
    expected = rate.expected(300.0)
    slow = WorkerHealthState("w0", 300.0, 0, True, 1, 10, 2, expected)
    peer = WorkerHealthState("w1", 300.0, 0, True, 1, 10, 30, expected)
    assert (slow.progress_state, peer.progress_state) == ("degraded", "normal")


def test_a_long_workflow_advances_while_its_counter_rises() -> None:
    window = ProgressWindow(30.0)
    window.begin("job/a#1", 0.0)
    for second in range(0, 3_600, 20):
        window.step("job/a#1", second + 1, float(second))
        assert window.counts(float(second)).advancing == 1
    assert window.counts(3_580.0 + 29.9).advancing == 1
    assert window.counts(3_580.0 + 30.0).advancing == 0
    window.step("job/a#1", 3_581, 3_700.0)  # the same value again proves nothing
    assert window.counts(3_700.0).advancing == 0


def test_work_is_not_stuck_as_it_starts() -> None:
    window = ProgressWindow(30.0)
    window.begin("a", 1_000.0)
    assert window.counts(1_000.0) == (1, 0, 1, 0, 0)
    assert window.counts(1_030.0) == (1, 0, 0, 0, 0)


def test_allowed_silence_counts_as_silence_until_its_end_and_never_as_progress() -> None:
    window = ProgressWindow(30.0)
    window.begin("a", 0.0)
    window.allow_silence("a", 900.0)
    window.allow_silence("ghost", 900.0)
    assert window.counts(29.0)[2:] == (1, 0, 0)  # it advances: that it may be silent says nothing
    assert window.counts(30.0)[2:] == window.counts(899.0)[2:] == (0, 0, 1)
    assert window.counts(900.0)[2:] == (0, 0, 0)


def test_the_counter_never_falls_when_one_attempt_ends_and_the_next_begins() -> None:
    window, last = ProgressWindow(30.0), 0
    for attempt in range(20):
        window.begin(f"a#{attempt}", float(attempt))
        for step in (3, 7, 5):  # a report that was overtaken
            window.step(f"a#{attempt}", step, float(attempt))
            assert window.counts(float(attempt)).counter >= last
            last = window.counts(float(attempt)).counter
        window.end(f"a#{attempt}", float(attempt), completed=True)
        window.end(f"a#{attempt}", float(attempt), completed=True)
    assert window.counts(20.0) == (0, 20, 0, 140, 0)


def test_only_what_completed_counts_as_a_completion() -> None:
    window = ProgressWindow(30.0)
    for attempt, completed in [("a", True), ("b", False)]:
        window.begin(attempt, 0.0)
        window.end(attempt, 1.0, completed=completed)
    assert window.counts(1.0).completions_last_interval == 1


def test_a_new_leader_that_hears_of_an_attempt_in_the_middle_counts_it() -> None:
    window = ProgressWindow(30.0)
    window.step("a", 500, 10.0)
    assert window.counts(10.0) == (1, 0, 1, 500, 0)


def test_a_counter_must_be_a_whole_number() -> None:
    with pytest.raises(LimitError, match=r"^counter is"):
        ProgressWindow().step("a", float("nan"), 0.0)


def test_work_is_expected_to_move_once_it_has_waited_an_interval_with_room() -> None:
    flow = FlowWindow(30.0)
    flow.arrive(0.0, 10)
    assert flow.measure(10.0, room=10) == (10, 0, 0.0, 0)  # it has just come
    assert flow.measure(40.0, room=10) == (0, 0, 10.0, 10)
    assert flow.measure(40.0, room=4) == (0, 0, 4.0, 4)
    assert flow.measure(40.0) == (0, 0, 10.0, 10)
    flow.leave(41.0, 7)
    assert flow.measure(41.0, room=5) == (0, 7, 10.0, 3)
    assert flow.waiting == 3


def test_work_accepted_by_a_predecessor_may_leave_without_having_arrived() -> None:
    flow = FlowWindow(30.0)
    flow.leave(0.0, 5)
    assert flow.waiting == 0
    assert flow.measure(0.0).left_last_interval == 5


@pytest.mark.parametrize(("room", "progress", "health"), [(0, "normal", "BUSY"), (8, "stuck", "DEGRADED")])
def test_a_full_datacenter_is_busy_and_one_that_lets_work_lie_is_degraded(
    room: int, progress: str, health: str
) -> None:
    """LESSONS: a full datacenter was classed UNHEALTHY."""
    flow = FlowWindow(30.0)
    flow.arrive(0.0, 50)
    measured = flow.measure(60.0, room=room)
    manager = ManagerHealthState(
        "m",
        "dc",
        60.0,
        0,
        True,
        True,
        active_worker_count=8,
        jobs_accepted_last_interval=measured.arrived_last_interval,
        workflows_dispatched_last_interval=measured.left_last_interval,
        expected_throughput=measured.expected,
        workflows_waiting=flow.waiting,
    )
    assert manager.progress_state == progress
    assert classify_datacenter([manager], room, now=60.0).health == health
