"""Schedules and expiry in a manager: fired by whoever leads, once, and shown by everybody."""

from __future__ import annotations

from typing import Any

import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.messages.jobs import GetJob, Submit
from tenure.control.messages.queues import DropSchedule, ListSchedules, ScheduleList, SetSchedule, TriggerSchedule
from tenure.control.messages.wire import Problem, ProblemKind
from tenure.jobs import JobSubmission, Outcome
from tenure.jobs.attempt_results import RecordResult
from tenure.jobs.attempts import RecordDispatched, RecordStarted
from tenure.jobs.state_records import Overlap, Schedule
from tenure.jobs.states import JobState
from tenure.nodes.manager.leader import JobLeadership


def every(seconds: float, name: str = "tick", **options: Any) -> Schedule:
    return Schedule(name=name, job=submission("unused"), every_s=seconds, overlap=Overlap.ALLOW, **options)


async def complete(leadership: JobLeadership, job_id: str, result: Any) -> None:
    info = leadership.ledger.book.jobs[job_id]
    for name, workflow in info.workflows.items():
        base = {"job_id": job_id, "workflow": name, "attempt": workflow.attempt}
        await leadership.commit(RecordDispatched(**base))
        await leadership.commit(RecordStarted(**base, worker="w"))
        await leadership.commit(RecordResult(**base, worker="w", result=result))


def test_instants_fire_over_a_failover_each_once() -> None:
    async def story(group: ManagerGroup) -> None:
        first, _ = group.open("m-1")
        await group.until(lambda: first.leads)
        second, leadership = group.open("m-2")
        done = await ask(first, SetSchedule(schedule=every(10.0)))
        assert done.outcome is Outcome.ACCEPTED
        await group.until(lambda: len(leadership.ledger.book.jobs) >= 2)
        await group.kill("m-1")
        await group.until(lambda: second.leads)
        await group.until(lambda: len(leadership.ledger.book.jobs) >= 5)
        listed = await ask(second, ListSchedules())
        assert isinstance(listed, ScheduleList)
        (view,) = listed.schedules
        jobs = [job_id for job_id in leadership.ledger.book.jobs if job_id.startswith("tick/")]
        numbers = [int(job_id.partition("/")[2]) for job_id in jobs]
        assert numbers == sorted(set(numbers))
        assert view.fired == len(jobs)
        assert view.next_at == view.last_instant + 10.0
        assert view.last_job == jobs[-1]

    run(story)


def test_a_schedule_is_changed_triggered_and_dropped() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, SetSchedule(schedule=every(3_600.0)))
        again = [await ask(manager, TriggerSchedule(name="tick", job_id="by-hand")) for _ in range(2)]
        assert [one.outcome for one in again] == [Outcome.ACCEPTED, Outcome.ALREADY]
        await ask(manager, SetSchedule(schedule=every(3_600.0, paused=True)))
        assert (await ask(manager, ListSchedules())).schedules[0].next_at is None
        await ask(manager, DropSchedule(name="tick"))
        assert (await ask(manager, ListSchedules())).schedules == ()
        gone = await ask(manager, TriggerSchedule(name="tick", job_id="x"))
        assert isinstance(gone, Problem)
        assert gone.kind is ProblemKind.UNKNOWN
        assert list(leadership.ledger.book.jobs) == ["by-hand"]

    run(story)


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"zone": "Mars/Olympus"}, ProblemKind.IMPOSSIBLE), ({"name": "a/b"}, ProblemKind.INVALID)],
)
def test_a_bad_schedule_is_the_senders_problem(options: dict[str, Any], kind: ProblemKind) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        reply = await ask(manager, SetSchedule(schedule=every(60.0, **options)))
        assert isinstance(reply, Problem)
        assert reply.kind is kind
        assert reply.remedy or "must be" in reply.fact
        assert not leadership.ledger.book.state.schedules

    run(story)


def test_results_are_let_go_when_their_time_is_over() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        asked = JobSubmission(job_id="short", workflows=submission("x").workflows, result_ttl=60.0)
        await ask(manager, Submit(submission=asked))
        await ask(manager, Submit(submission=submission("kept")))
        for job_id in ("short", "kept"):
            await complete(leadership, job_id, 42)
        view = await ask(manager, GetJob(job_id="short"))
        assert (view.workflows[0].result, view.results_expired) == (42, False)
        await group.until(lambda: leadership.ledger.book.jobs["short"].results_expired)
        view = await ask(manager, GetJob(job_id="short"))
        assert (view.state, view.workflows[0].result, view.results_expired) == (JobState.COMPLETED, None, True)
        assert view.now - view.ended_at >= 60.0
        assert (await ask(manager, GetJob(job_id="kept"))).workflows[0].result == 42

    run(story)


def test_an_archived_job_keeps_its_result_until_its_time_is_over() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1", archive_after=30.0)
        await group.until(lambda: manager.leads)
        asked = JobSubmission(job_id="j", workflows=submission("x").workflows, result_ttl=120.0)
        await ask(manager, Submit(submission=asked))
        await complete(leadership, "j", {"big": [1, 2, 3]})
        await group.until(lambda: "j" in leadership.ledger.book.state.archive)
        assert (await ask(manager, GetJob(job_id="j"))).workflows[0].result == {"big": [1, 2, 3]}
        ends = group.clock.monotonic() + 150.0
        await group.until(lambda: group.clock.monotonic() >= ends, 200)
        view = await ask(manager, GetJob(job_id="j"))
        assert (view.workflows[0].result, view.results_expired) == (None, True)

    run(story)
