"""Suspended work as the leader's state has it: which version goes on with it, and what wakes it."""

from __future__ import annotations

from typing import Any

from tests.jobs.desk import Desk, spec

from tenure.attempt_data import WaitsFor
from tenure.jobs.alarms import waiting_long
from tenure.jobs.book import JobBook
from tenure.jobs.catalogue import RegisterWorkflows, offer_digest
from tenure.jobs.outbox import to_dispatch
from tenure.jobs.states import WorkflowState
from tenure.jobs.waits import RecordSuspended, SendSignal, WakeSleeper, to_wake
from tenure.served_workflow import ServedWorkflow


def offer(desk: Desk, worker: str, *workflows: ServedWorkflow) -> None:
    lanes = ("default.p0",)
    desk.do(
        RegisterWorkflows(
            by=worker,
            worker=worker,
            incarnation="i1",
            offer=offer_digest(lanes, workflows),
            lanes=lanes,
            workflows=workflows,
        )
    )


def version(number: str, *earlier: str) -> ServedWorkflow:
    return ServedWorkflow(name="w", version=number, compatible_with=earlier)


def suspend(desk: Desk, waits: WaitsFor, **options: Any) -> None:
    decision = desk.do(
        RecordSuspended(job_id="j", workflow="w", attempt=1, worker="w1", delivery=1, waits=waits, **options)
    )
    assert decision.events, decision


def sleeper(desk: Desk) -> None:
    """A job that version 1 suspended for an hour."""
    offer(desk, "w1", version("1"))
    desk.submit("j", spec())
    [order] = to_dispatch(desk.book, desk.at)
    assert order.version == ""
    desk.run()
    suspend(desk, WaitsFor(step="sleep sleep #1", after_s=3600), version="1")


def test_suspended_work_goes_to_the_mailbox_of_its_version_which_a_compatible_one_drains() -> None:
    desk = Desk()
    sleeper(desk)
    offer(desk, "w1", version("2"))
    desk.at += 3600
    [key] = to_wake(desk.book, desk.at)
    desk.do(WakeSleeper(job_id=key[0], workflow=key[1]))
    assert to_dispatch(desk.book, desk.at) == []
    assert list(desk.book.parked) == [("default", 0, "w", "1")]
    offer(desk, "w2", version("3", "1"))
    [order] = to_dispatch(desk.book, desk.at)
    assert (order.version, order.mailbox, order.generation) == ("1", "default.p0/w/1", 2)


def test_work_that_fits_no_version_wakes_with_the_next_offer_and_keeps_that_its_time_had_come() -> None:
    desk = Desk()
    sleeper(desk)
    desk.at += 3600
    desk.do(WakeSleeper(job_id="j", workflow="w"))
    desk.run(delivery=1)
    suspend(desk, WaitsFor(step="sleep sleep #1", version="1", misfit="step 'a' was removed"), version="1")
    [workflow] = desk.book.jobs["j"].workflows.values()
    assert (workflow.state, workflow.woken_by_time) == (WorkflowState.SUSPENDED, True)
    assert to_wake(desk.book, desk.at + 86_400) == []
    restored = JobBook.restore(desk.book.snapshot())
    assert to_wake(restored, desk.at) == [("j", "w")], (
        "a registration that the last leader did not follow up is not lost"
    )
    offer(desk, "w2", version("3", "1"))
    assert to_wake(desk.book, desk.at) == [("j", "w")]
    desk.do(WakeSleeper(job_id="j", workflow="w"))
    assert (workflow.state, workflow.woken_by_time) == (WorkflowState.PENDING, True)
    assert desk.book.waits.on_version == {}


def test_work_that_waits_for_a_week_with_no_time_that_ends_it_raises_an_alarm() -> None:
    desk = Desk()
    offer(desk, "w1", version("1"))
    desk.submit("j", spec())
    desk.run()
    suspend(desk, WaitsFor(step="event approved #1", event="approved"), version="1")
    desk.at += 8 * 86_400
    [alarm] = waiting_long(desk.book, desk.at)
    assert "the first: 'w' of job j, for 8 days, waits for signal 'approved'" in alarm.reason
    assert waiting_long(JobBook.restore(desk.book.snapshot()), desk.at) == [alarm]
    desk.do(SendSignal(job_id="j", name="approved", signal_id="1"))
    assert waiting_long(desk.book, desk.at) == []
    assert desk.book.waits.untimed == {}
