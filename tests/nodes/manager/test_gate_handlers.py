"""Where gates are heard in a datacenter: submissions, decisions, questions, probes; on a manual clock."""

from __future__ import annotations

from typing import Any

import pytest
from tests.nodes.manager.harness import GatedManagers, ask, from_gate, tell
from tests.nodes.manager.harness import run_gated as run

from tenure.control.messages.gates import AskDatacenter, DatacenterSaid
from tenure.control.messages.jobs import GetJob
from tenure.control.messages.wire import Problem, Redirect
from tenure.control.messages.workers import WorkerReport
from tenure.health.window import INTERVAL_S
from tenure.jobs.messages import JobGlobalCancel, JobGlobalTimeout, JobProgressReport, JobStatusQuery, JobTimeoutReport
from tenure.jobs.states import JobState


def timeout(job_id: str = "j-1", *, token: int = 0, epoch: int = 1) -> JobGlobalTimeout:
    return JobGlobalTimeout(
        job_id=job_id, reason="global timeout: enough", timed_out_at=0.0, fence_token=token, gate_epoch=epoch
    )


def cancel(job_id: str = "j-1", *, epoch: int = 1) -> JobGlobalCancel:
    return JobGlobalCancel(job_id=job_id, reason="unwanted", cancelled_at=0.0, gate_epoch=epoch)


def test_a_submission_is_answered_with_where_it_stands_however_often_it_comes() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        for _ in range(2):
            said = await tell(manager, from_gate("j-1"), from_gate("j-2"))
            assert isinstance(said, DatacenterSaid)
            assert [(one.job_id, one.status, one.fence_token) for one in said.reports] == [
                ("j-1", JobState.RUNNING, 1),
                ("j-2", JobState.RUNNING, 1),
            ]
            assert said.corrections == ()
        assert sorted(manager.ledger.book.jobs) == ["j-1", "j-2"]

    run(story)


def test_one_that_will_never_run_here_is_answered_as_failed_and_holds_up_no_other() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate("j-1"))
        said = await tell(manager, from_gate("j-1", timeout_seconds=61.0), from_gate("j-2"))
        assert [one.job_id for one in said.reports] == ["j-2"]
        [refused] = said.corrections
        assert (refused.job_id, refused.status, refused.accepted) == ("j-1", JobState.FAILED, False)
        assert refused.reason.startswith("refused: ")
        assert (refused.datacenter, refused.manager_host, refused.manager_port) == ("a", "m-1", 8470)

    run(story)


def test_a_key_that_another_job_has_used_means_that_this_one_never_runs() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate("j-1", idempotency_key="once"))
        said = await tell(manager, from_gate("j-2", idempotency_key="once"))
        assert said.reports == ()
        [answer] = said.corrections
        assert (answer.job_id, answer.status) == ("j-2", JobState.CANCELLED)
        assert list(manager.ledger.book.jobs) == ["j-1"]

    run(story)


@pytest.mark.parametrize(("word", "state"), [(timeout(), JobState.TIMED_OUT), (cancel(), JobState.CANCELLED)])
def test_a_decision_ends_the_job_and_is_answered_the_same_again(word: Any, state: JobState) -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate())
        [first] = (await tell(manager, words=(word,))).corrections
        assert (first.status, first.accepted, first.ended_by_gate) == (state, True, True)
        assert (await ask(manager, GetJob(job_id="j-1"))).state is state
        [again] = (await tell(manager, words=(word,))).corrections
        assert (again.status, again.ended_by_gate) == (state, True)

    run(story)


def test_a_cancel_may_travel_with_its_submission_or_overtake_it() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        said = await tell(manager, from_gate("together"), words=(cancel("together"),))
        assert said.corrections[0].status is JobState.CANCELLED
        [stone] = (await tell(manager, words=(cancel("later"),))).corrections
        assert stone.status is JobState.CANCELLED
        said = await tell(manager, from_gate("later"))
        assert said.reports[0].status is JobState.CANCELLED
        assert group.claim() is None

    run(story)


def test_what_had_ended_before_stays_as_it_ended_and_the_gate_is_told() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate())
        await group.rest()
        group.answer(await group.claimed())
        await group.until(lambda: manager.ledger.book.jobs["j-1"].state.terminal, 10)
        [answer] = (await tell(manager, words=(timeout(),))).corrections
        assert (answer.status, answer.ended_by_gate) == (JobState.COMPLETED, False)
        assert "it had ended before" in answer.reason

    run(story)


def test_a_decision_with_a_dead_leaders_token_is_corrected_and_obeyed_with_the_right_one() -> None:
    """Scenario 3 of document 002."""

    async def story(group: GatedManagers) -> None:
        first = await group.led("m-1")
        await tell(first, from_gate())
        await group.kill("m-1")
        second = await group.led("m-2")
        [stale] = (await tell(second, words=(timeout(token=1),))).corrections
        assert (stale.status.terminal, stale.accepted, stale.fence_token) == (False, False, 2)
        assert "it echoes token 1, and the leader's is 2" in stale.reason
        [obeyed] = (await tell(second, words=(timeout(token=stale.fence_token),))).corrections
        assert (obeyed.status, obeyed.accepted) == (JobState.TIMED_OUT, True)

    run(story)


def test_a_gate_whose_epoch_is_over_is_told_the_one_that_counts() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate(gate_epoch=5))
        for word in (timeout(epoch=4), cancel(epoch=4)):
            [refused] = (await tell(manager, words=(word,))).corrections
            assert (refused.accepted, refused.gate_epoch, refused.status.terminal) == (False, 5, False)
        [obeyed] = (await tell(manager, words=(cancel(epoch=6),))).corrections
        assert (obeyed.accepted, obeyed.gate_epoch) == (True, 6)

    run(story)


def test_a_question_is_answered_and_what_is_asked_about_in_vain_will_not_run() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate())
        known, unknown = (
            await tell(manager, words=(JobStatusQuery(job_id="j-1"), JobStatusQuery(job_id="never")))
        ).corrections
        assert (known.job_id, known.status) == ("j-1", JobState.PENDING)
        # Nobody here ever heard of it, so it shall not run here either, should its submission still be on its way.
        assert (unknown.job_id, unknown.status) == ("never", JobState.CANCELLED)
        assert (await tell(manager, from_gate("never"))).reports[0].status is JobState.CANCELLED
        assert group.claim().body.job_id == "j-1"
        assert group.claim() is None

    run(story)


def test_another_datacenters_mail_is_refused_and_a_standby_sends_gates_on() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led("m-1")
        refused = await tell(manager, from_gate(), datacenter="b")
        assert isinstance(refused, Problem)
        assert "takes this for datacenter 'b', and it is 'a'" in refused.fact
        standby, _ = group.open("m-2")
        await group.until(lambda: standby.ledger.book.epoch == 1)
        elsewhere = await tell(standby, from_gate())
        assert isinstance(elsewhere, Redirect)
        assert elsewhere.address == "m-1:8470"
        assert manager.ledger.book.jobs == {}

    run(story)


def test_a_report_that_time_ran_out_is_the_answer_to_a_submission_that_comes_again() -> None:
    """A gate that lost an answer, or its journal, has it from the next."""

    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate(timeout_seconds=20.0))
        group.works(manager)
        await group.until(lambda: group.gates.said(JobTimeoutReport), 30)
        [report] = (await tell(manager, from_gate(timeout_seconds=20.0))).reports
        assert isinstance(report, JobTimeoutReport)
        assert report.fence_token == 1

    run(story)


# Probes


def test_a_probe_tells_who_leads_and_how_much_room_there_is() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led("m-1")
        free = WorkerReport(worker="w-1", slots=4, free=3, lanes=("default.p0",))
        await ask(manager, free)
        view = await ask(manager, AskDatacenter())
        assert (view.datacenter, view.manager_id, view.leads, view.leader) == ("a", "m-1", True, "m-1:8470")
        assert (view.has_quorum, view.active_worker_count, view.available_capacity) == (True, 1, 3)
        standby, _ = group.open("m-2")
        await group.until(lambda: standby.ledger.book.epoch == 1)
        await group.passes(3)
        view = await ask(standby, AskDatacenter())
        assert (view.leads, view.leader, view.has_quorum) == (False, "m-1:8470", True)
        assert (view.active_worker_count, view.available_capacity) == (0, 0)  # only the leader hears of workers

    run(story)


def test_before_anybody_leads_a_probe_is_answered_all_the_same() -> None:
    async def story(group: GatedManagers) -> None:
        manager, _ = group.open("m-1")
        view = await ask(manager, AskDatacenter())
        assert (view.leads, view.leader, view.has_quorum) == (False, "", False)

    run(story)


def test_work_that_is_accepted_and_not_dispatched_for_an_interval_is_waiting() -> None:
    """Signal 3: a manager that accepts and passes nothing on is stuck; one that has just accepted is not."""

    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        await tell(manager, from_gate("j-1"), from_gate("j-2"))
        await group.passes(1)
        view = await ask(manager, AskDatacenter())
        assert (view.jobs_accepted_last_interval, view.workflows_dispatched_last_interval) == (2, 2)
        assert view.workflows_waiting == 0
        await group.passes(INTERVAL_S + 1)
        view = await ask(manager, AskDatacenter())
        assert (view.jobs_accepted_last_interval, view.workflows_dispatched_last_interval) == (0, 0)

        book = manager.ledger.book
        book.ready[("default", 0)] = {("j-1", "encode"): None}  # as if dispatch hung
        assert (await ask(manager, AskDatacenter())).workflows_waiting == 0
        await group.passes(INTERVAL_S + 1)
        view = await ask(manager, AskDatacenter())
        assert view.workflows_waiting == 1
        assert view.expected_throughput == 1.0

    run(story)


def test_each_term_counts_anew() -> None:
    async def story(group: GatedManagers) -> None:
        first = await group.led("m-1")
        await tell(first, from_gate())
        await group.passes(1)
        assert (await ask(first, AskDatacenter())).jobs_accepted_last_interval == 1
        await group.kill("m-1")
        second = await group.led("m-2")
        assert (await ask(second, AskDatacenter())).jobs_accepted_last_interval == 0

    run(story)


def test_what_is_reported_is_what_a_gate_is_answered() -> None:
    async def story(group: GatedManagers) -> None:
        manager = await group.led()
        [answered] = (await tell(manager, from_gate())).reports
        await group.passes(11)
        reported = group.gates.said(JobProgressReport)[-1]
        same = ("datacenter", "manager_id", "manager_host", "fence_token", "status", "timeout_seconds", "gate_epoch")
        assert [getattr(answered, name) for name in same] == [getattr(reported, name) for name in same]

    run(story)
