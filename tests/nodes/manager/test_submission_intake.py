from __future__ import annotations

import msgspec
from tests.nodes.manager.harness import ManagerGroup, run_group, submission

from tenure.client.transactions import SUBMISSIONS, submit_in
from tenure.engines.contracts import FailureCause, Outgoing
from tenure.jobs.model import JobSubmission
from tenure.jobs.settings import MIN_STATE_BUDGET

SETUP = {"engine_submissions": True}


def test_a_leader_takes_what_came_through_the_engine_before_and_during_its_term() -> None:
    async def play(group: ManagerGroup) -> None:
        early = submit_in(group.engine, "encode", {"path": "a"})
        manager = group.manager("m-1", setup=SETUP)
        await group.until(lambda: early in manager.ledger.book.jobs)
        late = submit_in(group.engine, "encode", {"path": "b"}, queue="films")
        await group.until(lambda: late in manager.ledger.book.jobs)
        assert manager.ledger.book.jobs[late].job.submission.queue == "films"
        await group.until(lambda: group.engine.mailbox(SUBMISSIONS, JobSubmission).approximate_count() == 0)

    run_group(play)


def test_one_that_the_last_leader_accepted_and_did_not_acknowledge_is_one_job() -> None:
    async def play(group: ManagerGroup) -> None:
        manager = group.manager("m-1", setup=SETUP)
        submit_in(group.engine, "encode", {"path": "a"}, job_id="twice")
        submit_in(group.engine, "encode", {"path": "a"}, job_id="twice")
        await group.until(lambda: "twice" in manager.ledger.book.jobs)
        await group.until(lambda: group.engine.mailbox(SUBMISSIONS, JobSubmission).approximate_count() == 0)
        assert group.engine.mailbox(SUBMISSIONS, JobSubmission).dead_letters.count() == 0

    run_group(play)


def test_one_that_cannot_be_accepted_is_a_dead_letter_with_the_reason_and_holds_up_nobody() -> None:
    async def play(group: ManagerGroup) -> None:
        mailbox = group.engine.mailbox(SUBMISSIONS, JobSubmission)
        submit_in(group.engine, "encode", {"path": "a"}, job_id="one")
        submit_in(group.engine, "encode", {"path": "another"}, job_id="one")
        mailbox.send(submission("spy", gate_addr=("10.0.0.9", 8480)))
        submit_in(group.engine, "encode", {"path": "b"}, job_id="two")
        manager = group.manager("m-1", setup=SETUP)
        await group.until(lambda: "two" in manager.ledger.book.jobs)
        await group.until(lambda: mailbox.dead_letters.count() == 2)
        letters = mailbox.dead_letters.list()
        assert {letter.cause for letter in letters} == {FailureCause.REJECTED}
        assert any("only gates set it" in letter.reason for letter in letters)
        assert any("'one'" in letter.reason for letter in letters)
        assert "spy" not in manager.ledger.book.jobs
        assert sum("is refused" in text for text in group.said) == 2

    run_group(play)


def test_one_that_no_port_would_let_in_is_refused_at_once_and_by_itself() -> None:
    """A bad id ended the loop ten times, once the store was asked for ids; a place of arguments was believed."""

    async def play(group: ManagerGroup) -> None:
        mailbox = group.engine.mailbox(SUBMISSIONS, JobSubmission)
        spy = submission("spy")
        spec = msgspec.structs.replace(spy.workflows[0], arguments_at="victim/w/abc")
        manager, _ = group.open("m-1", setup=SETUP)
        await group.until(lambda: manager.leads)
        manager.ledger.book.state.forgotten_early = 1
        bad = [
            submission(""),
            submission("x" * 5_000),
            submission("a\0b"),
            msgspec.structs.replace(spy, workflows=(spec,)),
        ]
        mailbox.send_many([Outgoing(one) for one in (*bad, submission("good"))])
        await group.until(lambda: "good" in manager.ledger.book.jobs)
        assert list(manager.ledger.book.jobs) == ["good"]
        letters = mailbox.dead_letters.list()
        assert {letter.cause for letter in letters} == {FailureCause.REJECTED}
        assert sum("submission.job_id" in letter.reason for letter in letters) == 3
        assert sum("only a leader does that" in letter.reason for letter in letters) == 1
        assert not any("FAILED" in text for text in group.said)

    run_group(play)


def test_one_for_which_there_is_no_room_waits_until_there_is() -> None:
    async def play(group: ManagerGroup) -> None:
        manager = group.manager("m-1", setup=SETUP, state_budget=MIN_STATE_BUDGET)
        for number in range(60):
            submit_in(group.engine, "encode", {"path": "x" * 100_000}, job_id=f"job-{number}")
        mailbox = group.engine.mailbox(SUBMISSIONS, JobSubmission)
        await group.until(lambda: "job-0" in manager.ledger.book.jobs)
        await group.until(lambda: mailbox.depth().delayed > 0)
        assert mailbox.dead_letters.count() == 0
        assert len(manager.ledger.book.jobs) < 60

    run_group(play)
