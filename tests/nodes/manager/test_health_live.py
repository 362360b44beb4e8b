"""Managers and workers as they are, on the memory engine with a manual clock: whole stories of documents 000 and 001."""

from __future__ import annotations

from tests.nodes.manager.harness import ask, submission
from tests.nodes.manager.live_datacenter import Datacenter, run

from tenure.control.messages.jobs import AskWhy, Submit
from tenure.health.signals import RoutingDecision
from tenure.jobs.states import WorkflowState


def test_a_frozen_worker_is_evicted_its_work_issued_elsewhere_and_when_it_wakes_it_comes_back_as_somebody_new() -> None:
    async def story(dc: Datacenter) -> None:
        leadership = await dc.lead("m-1")
        first, second = dc.worker("w-1"), dc.worker("w-2")
        manager = dc.managers["m-1:8470"]
        await ask(manager, Submit(submission=submission()))
        await dc.until(lambda: len(leadership.leader.worker_reports.fleet) == 2)
        workflow = leadership.ledger.book.job("j-1").workflows["encode"]
        await dc.until(lambda: workflow.state is WorkflowState.QUEUED)
        item = dc.claim().body
        first.begin(silent_s=1.0)
        await dc.until(lambda: workflow.state is WorkflowState.RUNNING)
        await dc.kill("w-1")  # as SIGSTOP does: not a word
        await dc.passing(29)
        assert workflow.attempt == 1
        await dc.passing(6)
        assert (workflow.attempt, workflow.excluded) == (2, ["w-1"])
        assert (item.attempt, dc.claim().body.attempt) == (1, 2)
        second.begin(attempt=2, silent_s=1.0)
        await dc.until(lambda: workflow.worker == "w-2")

        dc.resume("w-1")
        await dc.passing(3)
        assert len(first.evicted) == 1
        assert first.running == {}
        assert list(second.running) == ["j-1"]
        await dc.passing(3)
        assert (first.incarnation, first.most) == ("w-1#2", None)
        assert dc.nodes["w-1"].verdict is RoutingDecision.ROUTE
        text = (await ask(manager, AskWhy(job_id="j-1"))).text
        assert "w-1 was evicted" in text

    run(story)


def test_work_that_is_alive_but_long_earns_its_extensions_and_work_that_hangs_loses_its_worker() -> None:
    """Slots without a watchdog of their own (stall 0): there is a step every 65 s, and the deadline is 30 s after proof of progress."""

    async def story(dc: Datacenter) -> None:
        leadership = await dc.lead("m-1")
        cast = dc.worker("w-1")
        manager = dc.managers["m-1:8470"]
        for job_id in ("j-1", "j-2"):
            await ask(manager, Submit(submission=submission(job_id, stuck_threshold=1_000)))
        book = leadership.ledger.book
        cast.begin("j-1")
        drained = 0
        for second in range(200):
            cast.step("j-1", steps=1 + second // 65, silent_s=1.0 + second % 65)
            await dc.passing(1)
            drained += cast.most == 0
        assert (book.job("j-1").workflows["encode"].attempt, cast.evicted) == (1, [])
        text = (await ask(manager, AskWhy(job_id="j-1"))).text
        for grant in ("30 s (grant 1", "15 s (grant 2", "7.5 s (grant 3"):
            assert f"w-1 was granted {grant}" in text
        assert drained > 60  # while nothing moves it takes nothing else
        assert book.state.workers["w-1"].extension_count == 3
        assert book.job("j-1").timeout_tracking.total_extensions_granted == 0.0  # they are the worker's, not the job's
        cast.end("j-1")
        await dc.passing(2)
        assert book.state.workers["w-1"].extension_count == 0

        cast.begin("j-2")
        for second in range(120):  # this one hangs
            if cast.evicted:
                break
            cast.step("j-2", steps=1, silent_s=1.0 + second)
            await dc.passing(1)
        assert len(cast.evicted) == 1
        assert 85 <= second <= 95  # 30 s to be stuck, 30 to its deadline, and the one extension that needs no proof
        assert book.job("j-2").workflows["encode"].attempt == 2
        assert cast.incarnation == "w-1#2"
        text = (await ask(manager, AskWhy(job_id="j-2"))).text
        assert "the verdict on w-1 is now 'drain'" in text
        assert "w-1 was granted 30 s (grant 1" in text

    run(story)


def test_a_new_leader_neither_evicts_at_once_nor_forgets_whom_the_last_one_drained() -> None:
    async def story(dc: Datacenter) -> None:
        leadership = await dc.lead("m-1")
        cast = dc.worker("w-1")
        await dc.until(lambda: len(leadership.leader.worker_reports.fleet) == 1)
        await dc.passing(2)
        successor, following = dc.open("m-2")
        dc.managers["m-2:8470"] = successor
        await dc.passing(3)
        dc.managers.pop("m-1:8470")
        await dc.kill("m-1")
        await dc.until(lambda: successor.leads)
        taken_over = dc.clock.boottime()
        await dc.until(lambda: dc.nodes["w-1"].obedience.epoch == 2)
        assert dc.clock.boottime() - taken_over < 10
        await dc.passing(60)
        assert (cast.evicted, cast.most) == ([], None)
        assert following.ledger.book.state.workers["w-1"].incarnation == "w-1#1"

    run(story)
