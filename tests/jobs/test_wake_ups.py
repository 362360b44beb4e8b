"""Suspended work in the book: who holds it, what wakes it, and what each of these is worth when it comes early, late or twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec
from tests.jobs.random_commands import JOBS, follow, three_flows, waiting_commands
from tests.jobs.test_book import check_invariants

from tenure.attempt_data import WaitsFor
from tenure.jobs import JobBook, JobSettings, WorkflowState
from tenure.jobs.decisions import Command, Decision, Outcome
from tenure.jobs.endings import CancelJob
from tenure.jobs.outbox import to_dispatch
from tenure.jobs.waits import RecordSuspended, SendSignal, WakeSleeper, to_wake
from tenure.jobs.workers import EvictWorker


def suspend(desk: Desk, job_id: str = "j", *, worker: str = "w1", delivery: int = 1, **waits: object) -> Decision:
    wait = WaitsFor(step="wait", **waits)  # type: ignore[arg-type]
    return desk.do(
        RecordSuspended(job_id=job_id, workflow="w", attempt=1, worker=worker, delivery=delivery, waits=wait)
    )


def state(desk: Desk, job_id: str = "j") -> WorkflowState:
    return desk.book.job(job_id).workflows["w"].state


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(waiting_commands, st.sampled_from((0, 1, 31, 150))), max_size=50))
def test_whatever_comes_in_whatever_order_nobody_waits_for_what_is_there(steps: list[tuple[Command, int]]) -> None:
    desk = Desk(settings=JobSettings(archive_after=1e5))
    follow(desk, [(three_flows(job_id), 0) for job_id in JOBS] + steps)
    check_invariants(desk.book)
    check_invariants(JobBook.restore(desk.book.snapshot(), desk.settings))


def test_a_worker_whose_work_was_suspended_does_not_hold_it_any_more_and_is_evicted_without_it() -> None:
    """It stayed in the index of the worker. When that worker was evicted after the work had completed elsewhere, the fold of the
    eviction failed each time, and nothing of that worker was ever issued anew."""
    desk = Desk()
    for job_id in ("j", "other"):
        desk.submit(job_id)
        desk.run(job_id, worker="w1")
    suspend(desk, event="go")
    assert set(desk.book.on_worker["w1"]) == {("other", "w")}
    desk.do(SendSignal(job_id="j", name="go", signal_id="1"))
    desk.run(worker="w2")
    desk.result(worker="w2", delivery=1)
    decision = desk.do(EvictWorker(worker="w1", reason="silent"))
    assert [type(event).__name__ for event in decision.events] == ["WorkerEvicted", "AttemptFailed"]
    assert desk.state("j") == "completed"
    assert state(desk, "other") is WorkflowState.PENDING


def test_a_signal_between_the_word_of_the_slot_and_the_journaled_suspended_wakes_the_work() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    desk.do(SendSignal(job_id="j", name="go", signal_id="1"))  # the slot, which has seen none, suspends by now
    suspend(desk, event="go", seen=0)
    assert state(desk) is WorkflowState.PENDING


def test_a_child_that_ended_before_its_parent_waits_wakes_it_and_so_does_one_that_ends_later() -> None:
    desk = Desk()
    for job_id in ("j", "one", "two"):
        desk.submit(job_id)
        desk.run(job_id)
    desk.result("one")
    suspend(desk, jobs=("one", "two"))
    assert desk.book.job("j").workflows["w"].waits.jobs == ("two",)  # type: ignore[union-attr]
    desk.result("two")
    assert state(desk) is WorkflowState.PENDING
    desk.run()
    suspend(desk, jobs=("one", "two"))
    assert state(desk) is WorkflowState.PENDING


def test_a_timer_fires_once_and_not_before_its_time_and_not_after_a_signal_has_come() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    suspend(desk, event="go", after_s=100.0)
    assert to_wake(desk.book, 99.0) == []
    desk.at = 50.0
    desk.do(SendSignal(job_id="j", name="go", signal_id="1"))
    desk.at = 150.0
    assert to_wake(desk.book, desk.at) == []
    assert desk.do(WakeSleeper(job_id="j", workflow="w")).outcome is Outcome.NOTHING
    assert not desk.book.job("j").workflows["w"].woken_by_time


def test_a_suspension_that_comes_twice_or_from_a_worker_that_lost_the_work_counts_for_nothing() -> None:
    desk = Desk()
    desk.submit()
    desk.run(worker="w1")
    suspend(desk, event="go")
    assert suspend(desk, event="go").outcome is Outcome.REFUSED
    desk.do(SendSignal(job_id="j", name="go", signal_id="1"))
    desk.run(worker="w2")
    assert suspend(desk, event="later").outcome is Outcome.REFUSED
    assert state(desk) is WorkflowState.RUNNING


@pytest.mark.parametrize("pieces", [1, 3])
def test_more_sleepers_than_one_look_takes_are_woken_by_the_next(pieces: int) -> None:
    desk = Desk()
    for number in range(10 * pieces):
        desk.submit(f"j{number}", spec())
        desk.run(f"j{number}")
        suspend(desk, f"j{number}", after_s=10.0)
    desk.at = 10.0
    for _ in range(pieces):
        due = to_wake(desk.book, desk.at, limit=10)
        assert len(due) == 10
        for job_id, workflow in due:
            assert desk.do(WakeSleeper(job_id=job_id, workflow=workflow)).events
    assert to_wake(desk.book, desk.at, limit=10) == []
    assert len(to_dispatch(desk.book, desk.at)) == 10 * pieces


def test_a_cancel_ends_what_waits_and_leaves_nothing_in_the_indexes() -> None:
    desk = Desk()
    for job_id in ("j", "child"):
        desk.submit(job_id)
        desk.run(job_id)
    suspend(desk, jobs=("child",), after_s=5.0)
    desk.do(CancelJob(job_id="j"))
    assert desk.book.waits.on_job == {}
    assert to_wake(desk.book, 100.0) == []
    desk.result("child")
    assert desk.state() == "cancelled"
