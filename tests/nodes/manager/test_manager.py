"""What a manager answers: as a leader, as a standby, and while it is deposed. On the memory engine, with a manual clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.messages.jobs import AskWhy, Cancel, Done, GetJob, JobList, JobView, ListJobs, Submit, WhyReply
from tenure.control.messages.queues import ChangeQueue, ListQueues
from tenure.control.messages.wire import AskLeader, LeaderView, Problem, ProblemKind, Redirect
from tenure.engines.contracts import Term
from tenure.engines.memory.engine import MemoryElection
from tenure.errors import DeposedError, EngineUnavailableError
from tenure.jobs import JobSubmission, Outcome
from tenure.jobs.states import JobState
from tenure.nodes.manager.ledger import JOURNAL, ResultIntake


def test_a_leader_takes_a_submission_once_and_shows_it() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        first = await ask(manager, Submit(submission=submission()))
        again = await ask(manager, Submit(submission=submission()))
        assert (first.outcome, again.outcome) == (Outcome.ACCEPTED, Outcome.ALREADY)
        view = await ask(manager, GetJob(job_id="j-1"))
        assert isinstance(view, JobView)
        assert (view.state, view.deadline, len(view.workflows)) == (JobState.PENDING, None, 1)
        listed = await ask(manager, ListJobs())
        assert isinstance(listed, JobList)
        assert [row.job_id for row in listed.jobs] == ["j-1"]
        assert (await ask(manager, ListJobs(state=JobState.FAILED))).known == 0
        told = await ask(manager, AskWhy(job_id="j-1"))
        assert isinstance(told, WhyReply)
        assert "submitted with" in told.text

    run(story)


def test_a_manager_refuses_what_is_for_another_datacenter_than_the_one_it_was_given() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1", setup={"datacenter": "eu"})
        refused = await ask(manager, ListQueues(datacenter="us"))
        assert isinstance(refused, Problem)
        assert "is for datacenter 'us', and this is a manager of 'eu'" in refused.fact
        assert "for datacenter" not in str(await ask(manager, ListQueues(datacenter="eu")))

    run(story)


@pytest.mark.parametrize("moment", range(1, 9))
def test_what_was_written_down_is_done_also_for_a_client_that_hung_up_meanwhile(moment: int) -> None:
    """Its dispatch waited for the next look, five seconds later, and for no other reason (decision 0182)."""

    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        for _ in range(200):  # until its leader rests
            await asyncio.sleep(0)
        asking = asyncio.create_task(ask(manager, Submit(submission=submission())))
        for _ in range(moment):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        for _ in range(200):  # in no time: the clock stands still
            await asyncio.sleep(0)
        sent = group.engine.mailbox("default.p0").approximate_count()
        assert sent == len((await ask(manager, ListJobs())).jobs)

    run(story)


def test_a_standby_answers_reads_and_sends_writes_to_the_leader() -> None:
    async def story(group: ManagerGroup) -> None:
        leader, _ = group.open("m-1")
        await group.until(lambda: leader.leads)
        standby, _ = group.open("m-2")
        await ask(leader, Submit(submission=submission()))
        redirect = Redirect(address="m-1:8470", epoch=1)
        for request in (Submit(submission=submission("j-2")), Cancel(job_id="j-1")):
            await group.until(lambda: standby.leadership.ledger.book.epoch == 1)
            assert await ask(standby, request) == redirect
        await group.until(lambda: "j-1" in standby.leadership.ledger.book.jobs)
        assert isinstance(await ask(standby, GetJob(job_id="j-1")), JobView)
        # It may not have read so far: the leader's word counts.
        assert await ask(standby, GetJob(job_id="nobody")) == redirect
        assert (await ask(leader, GetJob(job_id="nobody"))).kind is ProblemKind.UNKNOWN
        view = await ask(standby, AskLeader())
        assert isinstance(view, LeaderView)
        assert (view.address, view.leads) == ("m-1:8470", False)

    run(story)


def test_while_nobody_leads_a_write_is_to_be_tried_again() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        answer = await ask(manager, Submit(submission=submission()))
        assert isinstance(answer, Problem)
        assert (answer.kind, answer.retryable) == (ProblemKind.UNAVAILABLE, True)

    run(story)


def test_waiting_for_a_job_ends_with_the_job_or_with_the_time() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        waiting = asyncio.create_task(ask(manager, GetJob(job_id="j-1", wait_s=5)))
        began = group.clock.boottime()
        await group.until(waiting.done)
        assert not waiting.result().ended
        assert 5 <= group.clock.boottime() - began < 6
        waiting = asyncio.create_task(ask(manager, GetJob(job_id="j-1", wait_s=30)))
        await group.until(lambda: group.work.depth().ready)
        group.answer(group.claim(), 42)
        began = group.clock.boottime()
        await group.until(waiting.done)
        assert (waiting.result().state, waiting.result().workflows[0].result) == (JobState.COMPLETED, 42)
        assert group.clock.boottime() - began < 5

    run(story)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (Submit(submission=JobSubmission(job_id="empty", workflows=())), ProblemKind.INVALID),
        (Submit(submission=submission("j-1", timeout_seconds=7)), ProblemKind.CONFLICT),
        (GetJob(job_id="j-1", wait_s=31), ProblemKind.INVALID),
        (GetJob(job_id="j-1", wait_s=float("nan")), ProblemKind.INVALID),
        (ListJobs(limit=0), ProblemKind.INVALID),
        (AskWhy(job_id="nobody"), ProblemKind.UNKNOWN),
    ],
)
def test_what_is_wrong_with_a_request_is_told_to_its_sender(request_: Any, kind: ProblemKind) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        answer = await ask(manager, request_)
        assert isinstance(answer, Problem)
        assert (answer.kind, answer.retryable) == (kind, False)

    run(story)


def test_nobody_is_shown_a_decision_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        journal = leadership.ledger.journal
        broken, append = [True], type(journal).append

        def refuse(self: Any, *args: Any, **options: Any) -> int:
            if broken:
                raise EngineUnavailableError("the disk is away")
            return append(self, *args, **options)

        monkeypatch.setattr(type(journal), "append", refuse)
        submitting = asyncio.create_task(ask(manager, Submit(submission=submission())))
        await group.until(lambda: "j-1" in leadership.ledger.book.jobs)
        reading = asyncio.create_task(ask(manager, GetJob(job_id="j-1")))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not reading.done()
        assert not submitting.done()
        broken.clear()
        await group.until(lambda: reading.done() and submitting.done(), seconds=5)
        assert isinstance(reading.result(), JobView)
        assert isinstance(submitting.result(), Done)

    run(story)


def test_a_leader_that_was_overtaken_refuses_what_it_was_asked_and_shows_nothing_of_it() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        journal = group.engine.journal(JOURNAL)
        head = journal.head()
        entry = journal.read(head.seq - 1)[0]
        journal.append([entry.events[0]], epoch=leadership.epoch + 1, expect=head.seq, append_id="other")
        refused = await ask(manager, Submit(submission=submission()))
        assert isinstance(refused, Problem)
        assert refused.retryable
        assert not isinstance(await ask(manager, GetJob(job_id="j-1")), JobView)

    run(story)


def test_a_result_that_is_too_large_for_the_journal_comes_back_whole() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await group.until(lambda: group.work.depth().ready)
        group.answer(group.claim(), "x" * 400_000)
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        view = await ask(manager, GetJob(job_id="j-1"))
        assert view.workflows[0].result == "x" * 400_000
        assert group.engine.journal(JOURNAL).head().seq < 100

    run(story)


def test_submissions_that_do_not_fit_into_one_append_are_written_in_several() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        big = {"text": "x" * 80_000}
        answers = await asyncio.gather(
            *(
                ask(
                    manager,
                    Submit(
                        submission=JobSubmission(
                            job_id=f"j-{n}",
                            workflows=tuple(
                                type(submission().workflows[0])(name=f"w{w}", arguments=big) for w in range(3)
                            ),
                        )
                    ),
                )
                for n in range(4)
            )
        )
        assert [answer.outcome for answer in answers] == [Outcome.ACCEPTED] * 4
        assert manager.leads

    run(story)


def test_an_archived_job_is_still_shown_and_explained() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1", archive_after=10)
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await ask(manager, Cancel(job_id="j-1", reason="the user said so"))
        await group.until(lambda: "j-1" in leadership.ledger.book.state.archive)
        view = await ask(manager, GetJob(job_id="j-1", wait_s=10))
        assert (view.state, view.reason) == (JobState.CANCELLED, "the user said so")
        assert "the user said so" in (await ask(manager, AskWhy(job_id="j-1"))).text

    run(story)


def test_an_archived_job_is_removed_when_its_time_is_over_and_a_queue_may_have_its_own() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1", archive_after=10, keep_archive=1_000)
        await group.until(lambda: manager.leads)
        await ask(manager, ChangeQueue(queue="audited", keep_archive=100_000.0))
        for name, queue in (("j-1", "default"), ("j-2", "audited")):
            await ask(manager, Submit(submission=submission(name, queue=queue)))
            await ask(manager, Cancel(job_id=name))
        await group.until(lambda: len(leadership.ledger.book.state.archive) == 2)
        assert (await ask(manager, GetJob(job_id="j-1"))).state is JobState.CANCELLED
        group.clock.advance(2_000.0)
        gone = await ask(manager, GetJob(job_id="j-1"))
        assert isinstance(gone, Problem)
        assert (gone.fact, "--keep-archive" in gone.remedy) == ("there is no job 'j-1'", True)
        assert (await ask(manager, GetJob(job_id="j-2"))).state is JobState.CANCELLED

    run(story)


def test_a_leader_that_was_deposed_follows_with_a_new_book_and_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(group: ManagerGroup) -> None:
        first, leadership = group.open("m-1")
        await group.until(lambda: first.leads)
        assert leadership.leader is not None
        failing, led, take = leadership.leader.results, leadership.ledger, ResultIntake.take

        async def fail(self: ResultIntake, wait_s: float) -> int:
            if self is failing:
                raise DeposedError("another has written")
            return await take(self, wait_s)

        monkeypatch.setattr(ResultIntake, "take", fail)
        second, _ = group.open("m-2")
        await group.until(lambda: leadership.ledger is not led, seconds=60)
        campaign = MemoryElection.campaign

        def refused(self: MemoryElection, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
            return None if candidate == leadership.name else campaign(self, candidate, ttl, above=above)

        monkeypatch.setattr(MemoryElection, "campaign", refused)  # the other one shall lead
        await group.until(lambda: second.leads, seconds=60)
        assert (await ask(second, Submit(submission=submission()))).outcome is Outcome.ACCEPTED
        await group.until(lambda: "j-1" in leadership.ledger.book.jobs, seconds=60)
        assert isinstance(await ask(first, GetJob(job_id="j-1")), JobView)

    run(story)
