"""The time left on every grant, as a leader shows it, on the memory engine with a manual clock."""

from __future__ import annotations

import asyncio

from tests.nodes.manager.harness import ManagerGroup, ask, passing, report, runs, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.messages.jobs import Cancel, GetJob, ListJobs, Submit
from tenure.control.messages.nodes import ListNodes
from tenure.control.messages.wire import Grant, GrantKind
from tenure.nodes.grant_views import soonest


def lefts(grants: tuple[Grant, ...], now: float) -> dict[str, float]:
    return {grant.kind.value: round(grant.until - now, 3) for grant in grants}


def test_a_job_that_runs_shows_every_grant_and_each_counts_down() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission(timeout_seconds=600.0, stuck_threshold=90.0)))
        await ask(manager, report(runs(lease_s=40.0, stall_s=30.0, silent_s=2.0, note="frame 7")))
        view = await ask(manager, GetJob(job_id="j-1"))
        assert lefts(view.grants, view.now) == {"stuck": 90.0, "deadline": 600.0}
        assert lefts(view.workflows[0].grants, view.now) == {"lease": 40.0, "stall": 28.0, "healthcheck": 30.0}
        assert view.workflows[0].note == "frame 7"
        await passing(group, 5)
        view = await ask(manager, GetJob(job_id="j-1"))
        assert lefts(view.workflows[0].grants, view.now) == {"lease": 35.0, "stall": 23.0, "healthcheck": 25.0}
        row = (await ask(manager, ListJobs())).jobs[0]
        assert lefts(row.grants, view.now) == {
            "lease": 35.0,
            "stall": 23.0,
            "healthcheck": 25.0,
            "stuck": 85.0,
            "deadline": 595.0,
        }

    run(story)


def test_a_worker_shows_what_it_runs_and_until_when_it_must_prove_itself() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await ask(manager, report(runs(stall_s=30.0, fraction=0.5)))
        nodes = await ask(manager, ListNodes(attempts=True))
        (worker,) = nodes.workers
        assert [(one.job_id, one.fraction) for one in worker.attempts] == [("j-1", 0.5)]
        assert lefts(worker.grants, nodes.now) == {"healthcheck": 30.0}
        assert lefts(worker.attempts[0].grants, nodes.now) == {"stall": 30.0}
        assert (await ask(manager, ListNodes())).workers[0].attempts == ()

    run(story)


def test_what_waits_has_a_deadline_and_what_has_ended_has_nothing() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission(timeout_seconds=600.0)))
        row = (await ask(manager, ListJobs())).jobs[0]
        assert [grant.kind for grant in row.grants] == [GrantKind.DEADLINE]
        await ask(manager, Cancel(job_id="j-1"))
        view = await ask(manager, GetJob(job_id="j-1"))
        assert (view.grants, view.workflows[0].grants) == ((), ())
        assert (await ask(manager, ListJobs())).jobs[0].grants == ()

    run(story)


def test_a_standby_shows_the_deadline_and_guesses_nothing_else() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        standby, leadership = group.open("m-2")
        await ask(manager, Submit(submission=submission(timeout_seconds=600.0)))
        await ask(manager, report(runs(stall_s=30.0)))
        await group.until(lambda: "j-1" in leadership.ledger.book.jobs)
        for _ in range(50):
            await asyncio.sleep(0)
        view = await ask(standby, GetJob(job_id="j-1"))
        assert [grant.kind for grant in view.grants] == [GrantKind.DEADLINE]
        assert view.workflows[0].grants == ()

    run(story)


def test_of_each_kind_the_first_to_run_out_is_shown() -> None:
    lease, sooner = (Grant(kind=GrantKind.LEASE, until=until) for until in (9.0, 4.0))
    deadline = Grant(kind=GrantKind.DEADLINE, until=1.0)
    assert soonest([deadline, lease, sooner]) == (sooner, deadline)
