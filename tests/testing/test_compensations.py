"""`ctx.compensate`: run in reverse order, once, when a job does not complete; over crashes, retries, suspensions and changes of the leader."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Permanent, workflow
from tenure.errors import ArgumentsError, ConfigurationError, NodeRefusedError
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.testing import TestDatacenter

CALLED: list[Any] = []
BROKEN: set[str] = set()


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    CALLED.clear()
    BROKEN.clear()


def undo(what: str, times: int = 1) -> None:
    if what in BROKEN:
        raise OSError(f"{what} cannot be undone now")
    CALLED.append((what, times))


async def undo_later(what: str) -> None:
    CALLED.append((what, "async"))


class Order:
    """A class that a worker can look into."""

    @staticmethod
    def give_back(what: str) -> None:
        CALLED.append((what, "method"))


@workflow(max_attempts=1)
def buys(ctx: Any, ends: str = "fails") -> str:
    ctx.step("book", str)
    ctx.compensate(undo, "flight")
    ctx.compensate(undo, "hotel", times=2)
    ctx.compensate(Order.give_back, "car")
    if ends == "waits":
        ctx.wait_event("go")
    if ends == "completes":
        return "bought"
    raise Permanent("no money")


def test_compensations_of_a_job_that_fails_run_in_reverse_order_in_a_job_of_their_own(
    tenure_dc: TestDatacenter,
) -> None:
    job = tenure_dc.submit(buys)
    tenure_dc.advance(seconds=30)
    assert CALLED == [("car", "method"), ("hotel", 2), ("flight", 1)]
    undone = tenure_dc.job(f"{job.id}~undo")
    assert undone.state == "completed"
    assert undone.labels["tenure.undo_of"] == job.id
    why = job.why()
    assert f"buys has compensations: job {job.id}~undo runs them" in why
    assert f"its compensations were run by job {job.id}~undo" in why


def test_a_job_that_completes_undoes_nothing_and_leaves_nothing_in_the_store(tenure_dc: TestDatacenter) -> None:
    assert tenure_dc.submit(buys, ends="completes").wait() == "bought"
    tenure_dc.advance(minutes=1)
    assert CALLED == []
    assert tenure_dc.engine.store("compensations").list() == []


def test_compensations_run_when_a_job_is_cancelled_while_it_is_suspended_and_their_store_is_empty_then(
    tenure_dc: TestDatacenter,
) -> None:
    job = tenure_dc.submit(buys, ends="waits")
    tenure_dc.advance(minutes=30)
    assert CALLED == []
    job.cancel(reason="we stay at home")
    tenure_dc.advance(seconds=30)
    assert [what for what, _ in CALLED] == ["car", "hotel", "flight"]
    tenure_dc.advance(seconds=30)
    assert tenure_dc.engine.store("compensations").list() == []


def test_compensations_run_when_a_jobs_deadline_passes(tenure_dc: TestDatacenter) -> None:
    job = tenure_dc.submit(buys, ends="waits", timeout=600, grace=0)
    tenure_dc.advance(minutes=15)
    assert job.state == "timed_out"
    assert len(CALLED) == 3


def test_one_that_fails_is_tried_again_and_those_that_were_run_are_not(tenure_dc: TestDatacenter) -> None:
    BROKEN.add("hotel")
    job = tenure_dc.submit(buys)
    tenure_dc.advance(seconds=20)
    assert CALLED == [("car", "method")]
    BROKEN.clear()
    tenure_dc.advance(minutes=10)
    assert CALLED == [("car", "method"), ("hotel", 2), ("flight", 1)]
    assert tenure_dc.job(f"{job.id}~undo").state == "completed"


def test_one_that_fails_for_good_is_an_alarm_until_a_retry_has_run_the_rest_of_them(tenure_dc: TestDatacenter) -> None:
    BROKEN.add("hotel")
    job = tenure_dc.submit(buys)
    tenure_dc.advance(minutes=25)
    assert f"its compensations were not all run: job {job.id}~undo failed" in job.why()
    [alarm] = [one for one in tenure_dc.manager.observer.alarms if one.kind == "compensation_failed"]
    assert f"tenure retry {job.id}~undo" in alarm.remedy
    tenure_dc.advance(minutes=70)  # it is not archived while somebody has to look after it
    assert [one.kind for one in tenure_dc.manager.observer.alarms] == ["compensation_failed"]
    BROKEN.clear()
    again = tenure_dc.retry(f"{job.id}~undo")
    tenure_dc.advance(minutes=1)
    assert tenure_dc.job(again).state == "completed"
    assert CALLED == [("car", "method"), ("hotel", 2), ("flight", 1)]
    assert tenure_dc.manager.observer.alarms == ()


def test_an_attempt_that_runs_again_registers_nothing_twice_and_another_argument_is_another_compensation(
    tenure_dc: TestDatacenter,
) -> None:
    @workflow(max_attempts=3)
    def tries(ctx: Any) -> None:
        for number in range(2):
            ctx.compensate(undo, f"part {number}")
        ctx.compensate(undo, f"of attempt {ctx.attempt}", key="attempt")
        raise RuntimeError("no")

    tenure_dc.submit(tries)
    tenure_dc.advance(minutes=5)
    said = [what for what, _ in CALLED]
    assert said == ["of attempt 3", "of attempt 2", "of attempt 1", "part 1", "part 0"]


def test_compensations_run_after_the_worker_died_without_a_word_and_the_leader_changed(
    tenure_dc: TestDatacenter,
) -> None:
    @workflow(max_attempts=1)
    def hangs(ctx: Any) -> None:
        ctx.compensate(undo, "it")
        ctx.sleep(600)

    tenure_dc.submit(hangs)
    tenure_dc.advance(seconds=5)
    tenure_dc.crash_worker()
    tenure_dc.crash_manager()
    tenure_dc.advance(hours=1)
    assert CALLED == [("it", 1)]


def test_compensations_of_an_async_workflow_may_be_async(tenure_dc: TestDatacenter) -> None:
    @workflow(max_attempts=1)
    async def books(ctx: Any) -> None:
        await ctx.compensate(undo, "plain")
        await ctx.compensate(undo_later, "later")
        raise Permanent("no")

    tenure_dc.submit(books)
    tenure_dc.advance(seconds=30)
    assert CALLED == [("later", "async"), ("plain", 1)]


def test_what_came_later_in_a_job_of_several_workflows_is_undone_first(tenure_dc: TestDatacenter) -> None:
    @workflow
    def first(ctx: Any) -> int:
        ctx.compensate(undo, "first")
        return 1

    @workflow(max_attempts=1)
    def second(ctx: Any) -> None:
        ctx.compensate(undo, "second")
        raise Permanent("no")

    tenure_dc.serve(first, second)
    specs = WorkflowSpec(name="first"), WorkflowSpec(name="second", after=("first",))
    tenure_dc.submit_job(JobSubmission(job_id="trip", workflows=specs, park=True))
    tenure_dc.advance(minutes=1)
    assert [what for what, _ in CALLED] == ["second", "first"]
    # What was undone is not taken over by a retry.
    again = tenure_dc.retry("trip")
    tenure_dc.advance(minutes=1)
    assert [what for what, _ in CALLED] == ["second", "first", "second", "first"]
    assert tenure_dc.job(again).state == "failed"


def test_an_id_that_is_kept_for_compensations_is_refused(tenure_dc: TestDatacenter) -> None:
    with pytest.raises((ConfigurationError, NodeRefusedError), match="kept for the compensations"):
        tenure_dc.submit(buys, job_id="mine~undo")


def test_what_another_process_cannot_call_is_refused_where_it_is_registered(tenure_dc: TestDatacenter) -> None:
    said: list[str] = []

    @workflow
    def tells(ctx: Any) -> None:
        for wrong in (lambda: None, undo_later):
            try:
                ctx.compensate(wrong)
            except ArgumentsError as error:
                said.append(str(error))
        try:
            ctx.compensate(undo, nothing="fits")
        except ArgumentsError as error:
            said.append(str(error))

    tenure_dc.submit(tells).wait()
    assert "cannot be found by its name" in said[0]
    assert "is async, and its workflow is not" in said[1]
    assert "cannot be called so later" in said[2]
    tenure_dc.advance(minutes=1)
    assert CALLED == []
