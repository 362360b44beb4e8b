"""The engine's clock is set while managers lead: every one of them says so, and no job is charged a second of it."""

from __future__ import annotations

import pytest
from tests.nodes.manager.harness import ManagerGroup, submission
from tests.nodes.manager.harness import run_group as run
from tests.nodes.test_engine_time import SetEngine

from tenure.attempt_data import WaitsFor
from tenure.backoff import Retry
from tenure.jobs import JobSubmission, WorkflowSpec
from tenure.jobs.alarms import AlarmKind
from tenure.jobs.submission import SubmitJob
from tenure.nodes.manager.manager import Manager
from tenure.work.delivery import Cause, WorkFailure, WorkItem, WorkResult


def set_group(group: ManagerGroup) -> SetEngine:
    group.engine = engine = SetEngine(clock=group.clock)
    group.work = engine.mailbox("default.p0", WorkItem, WorkResult)
    return engine


def alarms(manager: Manager) -> list[str]:
    return [alarm.reason for alarm in manager.observer.alarms if alarm.kind is AlarmKind.CLOCK_SET]


def test_a_clock_that_is_set_forward_times_out_no_job_and_every_manager_says_so() -> None:
    async def story(group: ManagerGroup) -> None:
        engine = set_group(group)
        leader, node = group.open("m-1")
        standby, _ = group.open("m-2")
        await group.until(lambda: node.leader)
        await node.commit(SubmitJob(submission=submission("long", timeout_seconds=600)))
        await node.commit(SubmitJob(submission=submission("short", timeout_seconds=60)))
        engine.set_clock(600.0)
        await group.until(lambda: alarms(leader) and alarms(standby), 30)
        assert "set forward by 600 s" in alarms(leader)[0]
        assert {job: str(node.ledger.book.jobs[job].state) for job in ("long", "short")} == dict.fromkeys(
            ("long", "short"), "pending"
        )
        begun = group.clock.monotonic()
        await group.until(lambda: node.ledger.book.jobs["short"].state == "timed_out", 60)
        assert group.clock.monotonic() - begun > 25
        assert str(node.ledger.book.jobs["long"].state) == "pending"

        await group.end()  # both are gone, and one that starts anew tells the same time
        third, again = group.open("m-3")
        await group.until(lambda: again.leader and alarms(third))
        assert str(again.ledger.book.jobs["long"].state) == "pending"
        await group.until(lambda: again.ledger.book.jobs["long"].state == "timed_out", 620)

    run(story)


def test_a_clock_that_is_set_back_holds_no_deadline_up() -> None:
    async def story(group: ManagerGroup) -> None:
        engine = set_group(group)
        leader, node = group.open("m-1")
        await group.until(lambda: node.leader)
        await node.commit(SubmitJob(submission=submission("short", timeout_seconds=60)))
        engine.set_clock(-600.0)
        begun = group.clock.monotonic()
        await group.until(lambda: alarms(leader), 30)
        assert "set back by 600 s" in alarms(leader)[0]
        await group.until(lambda: node.ledger.book.jobs["short"].state == "timed_out", 90)
        assert group.clock.monotonic() - begun == pytest.approx(60, abs=10)

    run(story)


@pytest.mark.parametrize("step", [600.0, -600.0])
def test_work_that_sleeps_wakes_in_time_though_the_engine_stamps_messages_by_its_clock(step: float) -> None:
    async def story(group: ManagerGroup) -> None:
        engine = set_group(group)
        manager, node = group.open("m-1")
        await group.until(lambda: node.leader)
        engine.set_clock(step)
        if step < 0:
            await group.until(lambda: alarms(manager))  # until then it cannot know that the stamp is not of 600 s ago
        await node.commit(SubmitJob(submission=submission("j")))
        message = await group.claimed()
        item = message.body
        asleep = WaitsFor(step="nap", after_s=60.0)
        message.settle(
            WorkResult(
                job_id=item.job_id,
                workflow_id=item.workflow_id,
                workflow=item.workflow,
                attempt=item.attempt,
                fence=message.fence,
                worker="w-1",
                suspended=asleep,
            )
        )
        await group.until(lambda: node.ledger.book.jobs["j"].workflows["encode"].state == "suspended")
        begun = group.clock.monotonic()
        await group.claimed()
        assert group.clock.monotonic() - begun == pytest.approx(60, abs=5)

    run(story)


@pytest.mark.parametrize("clock_was_set", [True, False])
def test_a_delivery_that_ended_with_the_clock_is_charged_to_no_job(clock_was_set: bool) -> None:
    """A worker does not start again what seems to have died with its worker as often as it may. The engine alone saw the delivery end."""

    async def story(group: ManagerGroup) -> None:
        engine = set_group(group)
        _, node = group.open("m-1")
        await group.until(lambda: node.leader)
        once = WorkflowSpec(name="encode", retry=Retry(max_attempts=1, delay=1, jitter=0))
        await node.commit(SubmitJob(submission=JobSubmission(job_id="j", workflows=(once,))))
        message = await group.claimed()
        group.clock.advance(1)
        if clock_was_set:
            engine.set_clock(600.0)
        item = message.body
        message.settle(
            WorkResult(
                job_id=item.job_id,
                workflow_id=item.workflow_id,
                workflow=item.workflow,
                attempt=item.attempt,
                fence=message.fence,
                worker="w-1",
                redelivered=1,
                failure=WorkFailure(cause=Cause.WORKER_DIED, reason="not started again"),
            )
        )
        job = node.ledger.book.jobs["j"]
        if not clock_was_set:
            await group.until(lambda: job.state == "failed", 30)
            return
        again = await group.claimed()
        assert again.body.attempt == 2
        assert job.workflows["encode"].uncharged == 1
        group.answer(again, "made")
        await group.until(lambda: job.state == "completed", 30)

    run(story)
