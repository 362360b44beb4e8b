"""Reports of workers and the leader's directives, on the memory engine with a manual clock."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, passing, report, runs, submission
from tests.nodes.manager.harness import run_group as run

from tenure.beat.record import BeatReading, Occupant, Phase
from tenure.control.messages.jobs import AskWhy, Cancel, GetJob, Submit
from tenure.control.messages.wire import Problem, Redirect
from tenure.control.messages.workers import AttemptReport, ExtendDeadline, WorkerDirective, WorkerReport
from tenure.engines.contracts import Ticket
from tenure.health.extension import HealthcheckExtensionRequest
from tenure.health.signals import RoutingDecision
from tenure.jobs.catalogue import offer_digest
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.states import JobState, WorkflowState
from tenure.nodes.manager.ledger import RESULTS
from tenure.nodes.slot_runner import attempt_report
from tenure.nodes.worker.directives import Obedience
from tenure.served_workflow import ServedWorkflow
from tenure.work.delivery import WorkItem, WorkResult


def test_what_a_worker_runs_is_recorded_as_started_and_its_progress_shown() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        directive = await ask(manager, report(runs(fraction=0.25)))
        assert (directive.epoch, directive.cancels, directive.left_s) == (leadership.epoch, (), 30.0)
        assert (directive.verdict, directive.incarnation, directive.peers) == (RoutingDecision.ROUTE, "w-1", 0)
        seq = leadership.ledger.seq
        await ask(manager, report(runs(steps=9, fraction=0.5)))
        view = (await ask(manager, GetJob(job_id="j-1"))).workflows[0]
        assert (view.state, view.worker, view.steps, view.fraction) == (WorkflowState.RUNNING, "w-1", 9, 0.5)
        assert leadership.ledger.seq == seq  # shown at once, journaled now and then

    run(story)


def test_what_is_said_of_an_attempt_that_another_worker_holds_is_neither_counted_nor_shown() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        await ask(manager, report(runs(steps=1, fraction=0.25)))
        forged = runs(steps=2**53 - 1, fraction=1.0, note="forged")
        told = await ask(manager, WorkerReport(worker="evil", attempts=(forged,), wait_s=5.0))
        assert [one.reason for one in told.cancels] == ["another worker holds this delivery"]
        view = (await ask(manager, GetJob(job_id="j-1"))).workflows[0]
        assert (view.worker, view.steps, view.fraction, view.note) == ("w-1", 1, 0.25, "")
        await ask(manager, report(runs(steps=2, fraction=0.5)))
        view = (await ask(manager, GetJob(job_id="j-1"))).workflows[0]
        assert (view.worker, view.steps, view.fraction, view.note) == ("w-1", 2, 0.5, "")
        assert manager.worker_reports.watch.steps("j-1", "encode") == 2

    run(story)


@pytest.mark.parametrize(
    "forged", [{"steps": 2**62}, {"steps": -1}, {"fraction": 1e308}, {"fraction": -0.1}, {"delivery": 2**62}]
)
def test_numbers_that_no_worker_can_have_are_refused(forged: dict[str, Any]) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        refused = await ask(manager, report(msgspec.structs.replace(runs(), **forged)))
        assert isinstance(refused, Problem)
        assert next(iter(forged)) in refused.fact

    run(story)


def test_a_worker_is_told_neither_who_has_its_name_nor_may_it_leave_or_ask_for_time_in_its_stead() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        first = WorkerReport(worker="w-1", incarnation="w-1#secret", lanes=("default.p0",))
        await ask(manager, first)
        for forged in ("w-1#guess", ""):
            said = WorkerReport(worker="w-1", incarnation=forged, lanes=("default.p0",))
            told = await ask(manager, said)
            assert told.verdict is RoutingDecision.DRAIN
            assert "another worker named w-1" in told.reason
            assert "secret" not in str(told)
            await ask(manager, msgspec.structs.replace(said, leaving=True))
            asked = HealthcheckExtensionRequest(
                worker_id="w-1",
                reason="gc_pause",
                current_progress=0.5,
                estimated_completion=1.0,
                active_workflow_count=1,
            )
            refused = await ask(manager, ExtendDeadline(request=asked, incarnation=forged))
            assert isinstance(refused, Problem)
            assert "secret" not in str(refused)
        assert [one.name for one in manager.workers()] == ["w-1"]
        assert (await ask(manager, first)).verdict is RoutingDecision.ROUTE

    run(story)


def test_a_late_report_of_a_worker_that_left_does_not_open_the_door() -> None:
    """The worker was in the fleet again, without a catalogue: for 30 s every name was taken, and what was parked was sent to nobody."""

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        served, lanes = (ServedWorkflow(name="encode", version="1"),), ("default.p0",)
        offer = {"lanes": lanes, "serves": offer_digest(lanes, served), "workflows": served}
        for name in ("stays", "leaves"):
            await ask(manager, WorkerReport(worker=name, incarnation=f"{name}#1", number=1, **offer))
        last = WorkerReport(worker="leaves", incarnation="leaves#1", number=3, leaving=True, **offer)
        await ask(manager, last)
        told = await ask(manager, WorkerReport(worker="leaves", incarnation="leaves#1", number=2, **offer))
        assert (told.verdict, told.serves) == (RoutingDecision.DRAIN, None)
        state = leadership.ledger.book.state
        assert (list(state.workers), list(state.registered)) == (["stays"], ["stays"])
        refused = await ask(
            manager, Submit(submission=JobSubmission(job_id="typo", workflows=(WorkflowSpec(name="encodd"),)))
        )
        assert isinstance(refused, Problem)
        assert "Did you mean 'encode'?" in refused.remedy

    run(story)


def test_a_verdict_on_a_worker_that_left_before_it_was_written_leaves_no_record() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        reports = manager.worker_reports
        for name in ("w-1", "w-2"):
            await ask(manager, WorkerReport(worker=name, incarnation=f"{name}#1", number=1))
        said = [
            WorkerReport(worker=name, incarnation=f"{name}#1", number=2, accepting=False) for name in ("w-1", "w-2")
        ]
        verdicts = [command for one in said for command in reports.fleet.hear(one, 0.0)]
        assert [command.worker for command in verdicts] == ["w-1", "w-2"]
        leaving = asyncio.create_task(ask(manager, msgspec.structs.replace(said[1], number=3, leaving=True)))
        await reports.carry_out(verdicts, said[0])  # the first is written while the second worker leaves
        await leaving
        assert list(leadership.ledger.book.state.workers) == ["w-1"]

    run(story)


def test_a_result_that_nobody_who_holds_the_work_sent_is_refused_and_the_true_one_counts() -> None:
    """Whoever could write to the engine completed a job: fence [0, 0], worker `evil` (issue 24)."""

    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        message = await group.claimed()
        await ask(manager, report(runs()))
        results = group.engine.mailbox(RESULTS, WorkResult, WorkItem)
        forged = WorkResult(
            job_id="j-1",
            workflow_id="encode",
            workflow="encode",
            attempt=1,
            fence=(0, 0),
            worker="evil",
            result=msgspec.Raw(b'"forged"'),
        )
        for fence, worker in [((0, 0), "evil"), ((0, 0), "w-1"), ((2, 1), "w-1"), ((1, 0), "w-1"), ((1, 1), "evil")]:
            results.send(msgspec.structs.replace(forged, fence=fence, worker=worker))
        await group.until(lambda: not results.approximate_count())
        assert (await ask(manager, GetJob(job_id="j-1"))).state is JobState.RUNNING
        group.answer(message, "true")
        await group.until(lambda: manager.jobs.has_ended("j-1"))
        view = await ask(manager, GetJob(job_id="j-1"))
        assert (view.state, view.workflows[0].result) == (JobState.COMPLETED, "true")
        refused = [one for one in (await ask(manager, AskWhy(job_id="j-1"))).text.splitlines() if "evil" in one]
        assert refused

    run(story)


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_verdict_counts_also_when_the_worker_hung_up_while_it_was_written_down(moment: int) -> None:
    """It was taken for told, and nobody was told: a worker that was drained for a moment stayed so for good (decision 0182)."""

    def says(number: int, *, accepting: bool) -> WorkerReport:
        return WorkerReport(worker="w-1", lanes=("default.p0",), accepting=accepting, number=number)

    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        assert (await ask(manager, says(1, accepting=True))).verdict is RoutingDecision.ROUTE
        assert (await ask(manager, says(2, accepting=False))).verdict is RoutingDecision.DRAIN
        asking = asyncio.create_task(ask(manager, says(3, accepting=True)))
        for _ in range(moment):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (await ask(manager, says(4, accepting=True))).verdict is RoutingDecision.ROUTE

    run(story)


def test_a_worker_that_was_alone_hears_at_once_that_another_has_come() -> None:
    """Else it would fail for good what only the other has: another version of a workflow."""

    def says(worker: str, wait_s: float = 0.0) -> WorkerReport:
        route = RoutingDecision.ROUTE
        return WorkerReport(worker=worker, lanes=("default.p0",), wait_s=wait_s, verdict=route)

    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        assert (await ask(manager, says("w-1"))).peers == 0
        held = asyncio.create_task(ask(manager, says("w-1", wait_s=20)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not held.done()
        assert (await ask(manager, says("w-2"))).peers == 1
        for _ in range(100):  # in no time: `wait_s` is not over
            await asyncio.sleep(0)
        assert held.done()
        assert held.result().peers == 1

    run(story)


def test_a_cancel_answers_the_report_that_is_held_and_none_of_another_job_does() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        for job_id in ("j-1", "j-2"):
            await ask(manager, Submit(submission=submission(job_id)))
        held = asyncio.create_task(ask(manager, report(runs(), wait_s=20)))
        for _ in range(100):
            await asyncio.sleep(0)
        await ask(manager, Cancel(job_id="j-2"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not held.done()
        await ask(manager, Cancel(job_id="j-1", reason="enough"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert held.done()
        [unwanted] = held.result().cancels
        assert (unwanted.job_id, unwanted.workflow, unwanted.attempt) == ("j-1", "encode", 1)
        assert "enough" in unwanted.reason
        # A directive is the whole desired state: one that was lost comes again.
        assert (await ask(manager, report(runs()))).cancels == (unwanted,)

    run(story)


def test_an_attempt_that_was_replaced_or_never_known_is_unwanted() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission()))
        directive = await ask(manager, report(runs(attempt=2), runs("nobody"), runs()))
        assert [(one.job_id, one.attempt) for one in directive.cancels] == [("j-1", 2), ("nobody", 1)]

    run(story)


def test_a_job_is_stuck_when_its_steps_stand_still_and_not_before() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission(stuck_threshold=30)))
        state = lambda: leadership.ledger.book.job("j-1").state  # noqa: E731
        for n in range(1, 13):
            await ask(manager, report(runs(steps=n)))
            await passing(group, 10)
        assert state() is JobState.RUNNING
        began = group.clock.boottime()
        while state() is JobState.RUNNING and group.clock.boottime() < began + 100:
            await ask(manager, report(runs(steps=12, silent_s=10 + group.clock.boottime() - began)))
            await passing(group, 1)
        assert state() is JobState.TIMED_OUT
        assert 19 <= group.clock.boottime() - began <= 23

    run(story)


@pytest.mark.parametrize(
    ("threshold", "explicit", "ended"),
    # 120 s is also what would be derived: it was asked for, so it stands.
    [(None, False, False), (130.0, False, True), (120.0, False, True), (None, True, True)],
)
def test_a_threshold_that_was_derived_gives_way_to_the_workflows_own_stall_and_an_explicit_one_does_not(
    threshold: float | None, explicit: bool, ended: bool
) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1", stuck_threshold=120.0, stuck_is_explicit=explicit)
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=submission(stuck_threshold=threshold)))
        for n in range(15):
            await ask(manager, report(runs(steps=1, silent_s=10.0 * n, stall_s=300)))
            await passing(group, 10)
        assert (leadership.ledger.book.job("j-1").state is JobState.TIMED_OUT) is ended

    run(story)


def test_a_standby_sends_a_worker_to_the_leader_and_the_end_of_a_term_lets_go_of_those_who_are_held() -> None:
    async def story(group: ManagerGroup) -> None:
        leader, leadership = group.open("m-1")
        await group.until(lambda: leader.leads)
        standby, following = group.open("m-2")
        await ask(leader, Submit(submission=submission()))
        await group.until(lambda: following.ledger.book.epoch)
        assert await ask(standby, report(runs())) == Redirect(address="m-1:8470", epoch=leadership.epoch)
        held = asyncio.create_task(ask(leader, report(runs(), wait_s=30)))
        for _ in range(100):
            await asyncio.sleep(0)
        began = group.clock.boottime()
        await group.kill("m-1")
        await group.until(held.done)
        assert isinstance(held.result(), (Redirect, Problem))
        assert group.clock.boottime() - began < 2

    run(story)


def test_the_word_of_a_deposed_leader_is_refused() -> None:
    obedience = Obedience()
    assert obedience.heard(WorkerDirective(epoch=3))
    assert obedience.heard(WorkerDirective(epoch=3))
    assert obedience.heard(WorkerDirective(epoch=5))
    assert not obedience.heard(WorkerDirective(epoch=4))
    assert (obedience.epoch, obedience.refused) == (5, 1)


def reading(**changes: Any) -> BeatReading:
    ticket = Ticket(id="m", receipt_handle="r", delivery_count=2, enqueued_at=0, lease_until=100)
    occupant = Occupant(
        ticket=ticket, job="j", workflow="f", attempt=3, queue="q", stall_s=30, managed=True, workflow_id="w"
    )
    fields: dict[str, Any] = {
        "phase": Phase.RUNNING,
        "beat_at": 90.0,
        "steps": 7,
        "progress": float("nan"),
        "silent_until": 0.0,
        "pid": 1,
        "active": False,
        "serial": 1,
        "occupant": occupant,
    }
    return BeatReading(**{**fields, **changes})


def test_a_record_becomes_a_report_of_what_runs_for_a_leader() -> None:
    found = attempt_report(reading(), 100.0)
    assert found == AttemptReport(
        job_id="j", workflow="w", attempt=3, delivery=2, steps=7, fraction=None, silent_s=10.0, stall_s=30, quiet_s=20.0
    )
    declared = attempt_report(reading(silent_until=200.0, progress=0.5), 100.0)
    assert declared is not None
    # Its stall clock starts anew where the declared silence ends.
    assert (declared.silent_s, declared.fraction, declared.quiet_s) == (0.0, 0.5, 130.0)
    late = attempt_report(reading(beat_at=50.0), 100.0)
    assert late is not None
    assert late.quiet_s == 0.0
    assert attempt_report(reading(phase=Phase.CLAIMED), 100.0) is None
    assert attempt_report(reading(occupant=None), 100.0) is None
