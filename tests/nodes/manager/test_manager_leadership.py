"""Managers on one memory engine, with a manual clock: a leader leads, is deposed, and another goes on where it was."""

from __future__ import annotations

import asyncio

import pytest
from tests.nodes.manager.harness import ManagerGroup, submission
from tests.nodes.manager.harness import run_group as run

from tenure.errors import ConfigurationError, DeposedError
from tenure.jobs import JobSubmission, Outcome
from tenure.jobs.endings import CancelJob
from tenure.jobs.states import JobState
from tenure.jobs.submission import SubmitJob
from tenure.nodes.manager.ledger import JOURNAL, RESULTS
from tenure.work.delivery import Cause, WorkFailure


def test_a_submitted_job_is_dispatched_and_its_result_recorded_once() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        assert (await node.commit(SubmitJob(submission=submission()))).outcome is Outcome.ACCEPTED
        assert (await node.commit(SubmitJob(submission=submission()))).outcome is Outcome.ALREADY
        await group.until(lambda: group.work.depth().ready == 1)
        message = group.claim()
        assert (message.key, message.generation, message.reply_to) == ("j-1/encode", 1, RESULTS)
        group.answer(message, 42)
        await group.until(lambda: node.ledger.book.job("j-1").state is JobState.COMPLETED)
        await group.until(lambda: group.engine.mailbox(RESULTS).approximate_count() == 0)
        assert group.claim() is None

    run(story)


def test_a_failed_attempt_is_issued_again_under_the_next_generation() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        await node.commit(SubmitJob(submission=submission()))
        await group.until(lambda: group.work.depth().ready)
        group.answer(group.claim(), failure=WorkFailure(cause=Cause.STALL, reason="no beat"))
        await group.until(lambda: group.work.depth().ready)
        message = group.claim()
        assert message.generation == 2
        group.answer(message, failure=WorkFailure(cause=Cause.EXCEPTION, reason="ValueError"))
        await group.until(lambda: node.ledger.book.job("j-1").state is JobState.FAILED)

    run(story)


def test_a_cancelled_job_is_revoked_whether_it_is_queued_or_runs() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        await node.commit(SubmitJob(submission=submission("queued")))
        await node.commit(SubmitJob(submission=submission("running")))
        await group.until(lambda: group.work.depth().ready == 2)
        messages = [group.claim(), group.claim()]
        running = next(message for message in messages if message.body.job_id == "running")
        next(message for message in messages if message.body.job_id == "queued").release()
        for job_id in ("queued", "running", "unknown"):
            await node.commit(CancelJob(job_id=job_id, reason="the user said so"))
        await group.until(lambda: group.work.approximate_count() == 0)
        with pytest.raises(Exception, match="expired"):
            running.extend_visibility(60)
        # A cancel that overtook its submission is a tombstone.
        await node.commit(SubmitJob(submission=submission("unknown")))
        await group.until(lambda: not node.ledger.book.uncleaned)
        assert group.claim() is None
        assert node.ledger.book.job("unknown").state is JobState.CANCELLED

    run(story)


def test_a_standby_follows_and_takes_over_with_every_deadline_where_it_was() -> None:
    async def story(group: ManagerGroup) -> None:
        first = group.manager("m-1")
        await group.until(lambda: first.leader)
        second = group.manager("m-2")
        await first.commit(SubmitJob(submission=submission(timeout_seconds=100)))
        await group.until(lambda: "j-1" in second.ledger.book.jobs)
        assert second.leader is None
        with pytest.raises(DeposedError):
            await second.commit(CancelJob(job_id="j-1"))
        began = group.engine.now()
        await group.kill("m-1")
        await group.until(lambda: second.leader, seconds=20)
        assert second.epoch > first.epoch
        await group.until(lambda: second.ledger.book.job("j-1").state is JobState.TIMED_OUT, seconds=150)
        assert 95 <= group.engine.now() - began <= 106

    run(story)


def test_work_that_ended_in_time_while_nobody_led_is_completed_and_not_timed_out() -> None:
    async def story(group: ManagerGroup) -> None:
        first = group.manager("m-1")
        await group.until(lambda: first.leader)
        await first.commit(SubmitJob(submission=submission(timeout_seconds=60)))
        await group.until(lambda: group.work.depth().ready)
        message = group.claim()
        await group.kill("m-1")
        group.clock.advance(50)
        group.answer(message, "in time")
        group.clock.advance(250)
        second = group.manager("m-2")
        await group.until(lambda: second.leader)
        await group.until(lambda: second.ledger.book.job("j-1").state.terminal)
        assert second.ledger.book.job("j-1").state is JobState.COMPLETED

    run(story)


def test_a_leader_that_was_overtaken_commits_nothing_more_and_starts_over_as_a_standby() -> None:
    async def story(group: ManagerGroup) -> None:
        first = group.manager("m-1")
        await group.until(lambda: first.leader)
        epoch = first.epoch
        journal = group.engine.journal(JOURNAL)
        head = journal.head()
        # Somebody with a higher epoch has written meanwhile.
        entry = journal.read(head.seq - 1)[0]
        journal.append([entry.events[0]], epoch=epoch + 1, expect=head.seq, append_id="other")
        with pytest.raises(DeposedError):
            await first.commit(SubmitJob(submission=submission()))
        await group.until(lambda: first.epoch > epoch + 1, seconds=60)
        assert "j-1" not in first.ledger.book.jobs

    run(story)


def test_bad_input_is_told_to_its_sender_and_harms_nobody_else() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        answers = await asyncio.gather(
            node.commit(SubmitJob(submission=JobSubmission(job_id="empty", workflows=()))),
            node.commit(SubmitJob(submission=submission("good"))),
            return_exceptions=True,
        )
        assert isinstance(answers[0], ConfigurationError)
        assert not isinstance(answers[1], BaseException)
        assert list(node.ledger.book.jobs) == ["good"]

    run(story)


def test_a_new_manager_starts_from_the_snapshot() -> None:
    async def story(group: ManagerGroup) -> None:
        first = group.manager("m-1", setup={"snapshot_every": 5})
        await group.until(lambda: first.leader)
        for n in range(20):
            await first.commit(SubmitJob(submission=submission(f"j-{n}")))
        journal = group.engine.journal(JOURNAL)
        await group.until(lambda: (found := journal.latest_snapshot()) and found.seq >= 20)
        second = group.manager("m-2")
        await group.until(lambda: len(second.ledger.book.jobs) == 20)
        await group.until(lambda: second.ledger.book.snapshot() == first.ledger.book.snapshot())

    run(story)


@pytest.mark.parametrize("turns", range(10))
def test_a_leader_that_is_told_to_stop_while_its_renewal_is_answered_stops(turns: int) -> None:
    """In Python 3.11 `wait_for` loses a cancellation that comes together with the answer: the node would renew for ever."""

    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        awake = asyncio.get_running_loop().create_future()

        def renew() -> None:
            awake.set_result(None)  # first, so that in each turn of the loop we come before the renewal
            group.clock.advance(10 / 3)

        asyncio.get_running_loop().call_soon(renew)
        await awake
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(group.kill("m-1"), 5)
        assert group.engine.election("manager").current() is None

    run(story)
