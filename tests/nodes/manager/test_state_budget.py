"""A leader and the budget of its state: finished jobs make room in time, and what does not fit is refused with a remedy."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from tests.nodes.manager.harness import ManagerGroup, ask, run_group
from tests.nodes.manager.harness import run_group as run
from tests.nodes.manager.harness import submission as small
from tests.soak import sized

from tenure.control.messages.jobs import Cancel, GetJob, JobView, Submit, SubmitMany
from tenure.control.messages.wire import Problem, ProblemKind
from tenure.control.messages.workers import WorkerReport
from tenure.engines.contracts import MAX_SNAPSHOT_BYTES
from tenure.jobs import JobSubmission
from tenure.jobs import budget as b
from tenure.jobs.alarms import AlarmKind
from tenure.jobs.budget import claimed
from tenure.jobs.schedules import PutSchedule
from tenure.jobs.settings import MAX_STATE_BUDGET, MIN_STATE_BUDGET
from tenure.jobs.state_records import Schedule
from tenure.jobs.states import JobState
from tenure.jobs.submission import SubmitJob
from tenure.nodes.manager.manager import Manager
from tenure.nodes.stored_values import ARCHIVE

COMPLETED = sized("completed jobs within an hour of virtual time", short=4_000, long=40_000)
"""Within an hour. The short run has a tenth of the budget, so that as much of it is used."""


def test_more_jobs_an_hour_than_fit_into_the_state_are_served_and_none_is_refused() -> None:
    """26,700 completed jobs in an hour were the end of a datacenter: each stayed in the state for an hour."""
    budget = MAX_STATE_BUDGET * COMPLETED // 40_000

    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1", state_budget=budget)
        await group.until(lambda: node.leader)
        begun, largest, batch = group.clock.monotonic(), 0, 200
        book = node.ledger.book
        for first in range(0, COMPLETED, batch):
            jobs = [small(f"encode-{number:016}") for number in range(first, first + batch)]
            outcomes = await node.commit_all([SubmitJob(submission=job) for job in jobs])
            assert {getattr(outcome, "outcome", outcome) for outcome in outcomes} == {"accepted"}
            await group.until(lambda: group.work.depth().ready == batch)
            for message in group.work.receive(batch, 60):
                group.answer(message, {"frames": 5_000})
            await group.until(lambda: len(book.jobs) == len(book.ended))
            largest = max(largest, claimed(book))
            while group.clock.monotonic() < begun + 3_600 * (first + batch) / COMPLETED:
                group.clock.advance(2.5)  # the leader renews its term meanwhile
                for _ in range(20):
                    await asyncio.sleep(0)
        assert group.clock.monotonic() - begun < 3_700
        assert largest < budget
        assert len(node.ledger.book.snapshot()) < budget
        known = len(node.ledger.book.jobs) + len(node.ledger.book.state.archive)
        assert known == COMPLETED, "every id is remembered"
        assert len(group.engine.store(ARCHIVE).list("")) > 0
        assert node.epoch == 1, group.said

    run(story)


def large(job_id: str, size: int = 20_000) -> JobSubmission:
    spec = msgspec.structs.replace(small().workflows[0], arguments={"a": "x" * size})
    return JobSubmission(job_id=job_id, workflows=(spec,))


async def fill(manager: Manager) -> int:
    for number in range(1_000):
        answer = await ask(manager, Submit(submission=large(f"j-{number}")))
        if isinstance(answer, Problem):
            assert (answer.kind, answer.retryable) == (ProblemKind.TOO_MANY, True)
            assert answer.retry_after_s >= 1
            assert "--keep-finished" in answer.remedy
            return number
    raise AssertionError("the budget was not reached")


def test_a_full_leader_says_so_to_clients_operators_and_schedules_and_goes_on_leading() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1", state_budget=MIN_STATE_BUDGET)
        await group.until(lambda: manager.leads)
        template = Schedule(name="nightly", cron="* * * * *", job=large("t"))
        await leadership.commit(PutSchedule(schedule=template))
        count = await fill(manager)
        many = await ask(manager, SubmitMany(submissions=(large("j-0"), large("new-1"), large("new-2"))))
        assert [one.problem for one in many.jobs] == [None, ProblemKind.TOO_MANY, ProblemKind.TOO_MANY]
        await group.until(lambda: manager.observer.alarms)
        assert AlarmKind.NEARLY_FULL in [alarm.kind for alarm in manager.observer.alarms]
        await group.until(lambda: any("schedule 'nightly' waits for room" in text for text in group.said))
        assert manager.leads
        for number in range(count):
            assert (await ask(manager, Cancel(job_id=f"j-{number}"))).outcome == "accepted"
        # The schedule's instant had stayed due.
        await group.until(lambda: leadership.ledger.book.state.schedules["nightly"].fired)
        assert (await ask(manager, Submit(submission=large("after")))).outcome == "accepted"
        assert "j-0" in leadership.ledger.book.state.archive, "it made room before its hour was over"
        archived = await ask(manager, GetJob(job_id="j-0"))
        assert isinstance(archived, JobView)
        assert archived.state is JobState.CANCELLED

    run_group(story)


def test_a_result_with_an_integer_beyond_64_bits_is_kept_whole_and_snapshots_go_on() -> None:
    """`math.factorial(21)` as a result ended every manager at its next snapshot."""

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        await ask(manager, Submit(submission=small()))
        group.answer(await group.claimed(), {"n": [2**64, -(2**70)]})
        await group.until(lambda: leadership.ledger.book.job("j-1").state.terminal)
        leadership.ledger.book.snapshot()
        view = await ask(manager, GetJob(job_id="j-1"))
        assert view.workflows[0].result == {"n": [2**64, -(2**70)]}

    run_group(story)


def test_a_state_that_cannot_be_saved_does_not_end_its_leader(monkeypatch: Any) -> None:
    """As a state that an older release let grow. Nothing is lost: the journal has it all."""

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1", setup={"snapshot_every": 1})
        await group.until(lambda: manager.leads)
        ledger = leadership.ledger
        monkeypatch.setattr(type(ledger.book), "snapshot", lambda self: b"\x80" + b"x" * MAX_SNAPSHOT_BYTES)
        await ask(manager, Submit(submission=small()))
        await group.until(lambda: any("the state cannot be saved" in text for text in group.said))
        group.answer(await group.claimed(), 1)
        await group.until(lambda: ledger.book.job("j-1").state is JobState.COMPLETED)
        assert manager.leads
        monkeypatch.undo()

    run_group(story)


def test_workers_without_end_are_refused_and_known_ones_still_heard() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, _ = group.open("m-1")
        await group.until(lambda: manager.leads)
        names = [f"w-{number}" for number in range(12)]
        reports = [WorkerReport(worker=name, incarnation=name, slots=1, free=1, lanes=()) for name in names]
        most = 10
        before, b.MAX_WORKERS = b.MAX_WORKERS, most
        try:
            answers = [await ask(manager, report) for report in reports]
            again = await ask(manager, msgspec.structs.replace(reports[0], number=2))
        finally:
            b.MAX_WORKERS = before
        kinds = [answer.kind if isinstance(answer, Problem) else "heard" for answer in answers]
        assert kinds == ["heard"] * most + [ProblemKind.TOO_MANY] * 2
        assert not isinstance(again, Problem)

    run_group(story)
