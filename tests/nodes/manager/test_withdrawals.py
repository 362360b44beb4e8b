"""Work that was submitted before anybody had registered, in the mailbox that all workflows share: what nobody serves is taken back from there."""

from __future__ import annotations

from typing import Any

from tests.nodes.manager.harness import ManagerGroup, run_group

from tenure.jobs import JobSubmission, WorkflowSpec
from tenure.jobs.catalogue import RegisterWorkflows, offer_digest
from tenure.jobs.submission import SubmitJob
from tenure.jobs.workers import JudgeWorker
from tenure.work.context import Context
from tenure.work.registry import Registry, workflow

LANES = ("default.p0",)


@workflow
def good(ctx: Context) -> None: ...


@workflow
def late(ctx: Context) -> None: ...


async def submitted(node: Any, *names: str) -> None:
    for number, name in enumerate(names):
        job = JobSubmission(job_id=f"{name}-{number}", workflows=(WorkflowSpec(name=name),))
        await node.commit(SubmitJob(submission=job))


async def registers(node: Any, worker: str, *served: Any) -> None:
    workflows = Registry(served).served
    offer = offer_digest(LANES, workflows)
    await node.commit(
        RegisterWorkflows(worker=worker, incarnation=worker, offer=offer, lanes=LANES, workflows=workflows)
    )


def queued(group: ManagerGroup) -> int:
    return group.work.depth().ready


def test_a_typo_before_the_first_deploy_does_not_hold_up_what_is_behind_it() -> None:
    """Each worker left it to the other for five minutes, and everything that was submitted after it waited as long."""

    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        await submitted(node, "lnog", "late", "good")
        await group.until(lambda: queued(group) == 3)
        begun = group.clock.monotonic()
        await registers(node, "w-1", good)
        await group.until(lambda: queued(group) == 1)
        assert group.clock.monotonic() - begun < 3
        book = node.ledger.book
        await group.until(lambda: len(book.parked) == 2)
        assert book.waits_for(book.jobs["lnog-0"], book.jobs["lnog-0"].workflows["lnog"]) == (
            "a worker that serves 'lnog' in queue 'default'"
        )
        claimed = await group.claimed()
        assert claimed.body.job_id == "good-2"
        await registers(node, "w-2", late)  # it was no typo: its worker came later, and gets it where it was
        again = await group.claimed()
        assert (again.body.job_id, again.ticket.generation, again.body.attempt) == ("late-1", 2, 1)
        assert queued(group) == 0

    run_group(story)


def test_one_that_a_worker_holds_for_a_moment_is_looked_for_again() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        await submitted(node, "lnog")
        held = await group.claimed()
        await registers(node, "w-1", good)
        begun = group.clock.monotonic()
        await group.until(lambda: group.clock.monotonic() > begun + 15)
        assert not node.ledger.book.parked
        held.release()
        await group.until(lambda: node.ledger.book.parked, 30)
        assert queued(group) == 0

    run_group(story)


def test_work_of_the_old_form_stays_where_it_is_while_a_worker_of_an_earlier_release_is_there() -> None:
    """Such a worker registers nothing, and may serve anything."""

    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        await node.commit(JudgeWorker(worker="old", verdict="route", reason="well", incarnation="o1"))
        await submitted(node, "lnog")
        await group.until(lambda: queued(group) == 1)
        await registers(node, "w-1", good)
        for _ in range(30):
            group.clock.advance(1)
            await group.until(lambda: True)
        assert queued(group) == 1
        assert not node.ledger.book.parked

    run_group(story)
