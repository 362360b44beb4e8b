"""What a leader does outside waits for the journal, and no deadline counts before the results that were there."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from tests.nodes.manager.harness import ManagerGroup, submission
from tests.nodes.manager.harness import run_group as run

from tenure.attempt_data import WaitsFor
from tenure.control.messages.workers import WorkerReport
from tenure.engines.memory.journal import MemoryJournal
from tenure.errors import DeposedError, EngineUnavailableError, LimitError
from tenure.jobs.attempts import RecordStarted
from tenure.jobs.endings import CancelJob
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.submission import SubmitJob
from tenure.jobs.waits import RecordSuspended
from tenure.jobs.workers import EvictWorker
from tenure.nodes.manager.ledger import RESULTS


class _SlowJournal:
    """A journal whose appends fail until it is let go; all else is the real one's."""

    def __init__(self, inner: MemoryJournal) -> None:
        self._inner, self.away = inner, False

    def append(self, *args: Any, **options: Any) -> int:
        if self.away:
            raise EngineUnavailableError("the journal is away")
        return self._inner.append(*args, **options)

    def append_locked(self, *args: Any) -> int:
        """The append of a step that also sends or acknowledges."""
        if self.away:
            raise EngineUnavailableError("the journal is away")
        return self._inner.append_locked(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_nothing_is_sent_and_nothing_revoked_before_its_decision_is_durable() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        journal = _SlowJournal(node.ledger.journal)  # type: ignore[arg-type]
        node.ledger.journal = journal  # type: ignore[assignment]
        await node.commit(SubmitJob(submission=submission("known")))
        # Not only sent, but recorded as sent: the leader has nothing under way.
        await group.until(lambda: node.ledger.book.job("known").workflows["encode"].state is WorkflowState.QUEUED)
        for _ in range(100):
            await asyncio.sleep(0)
        journal.away = True
        waiting = [
            asyncio.create_task(node.commit(SubmitJob(submission=submission("new")))),
            asyncio.create_task(node.commit(CancelJob(job_id="known"))),
        ]
        assert node.leader is not None
        for _ in range(12):
            node.leader.wake()  # it looks for what is due, again and again
            for _ in range(10):
                await asyncio.sleep(0)
            group.clock.advance(0.25)
        queued = [message.key for message in group.work.receive(10, 0)]
        assert queued == ["known/encode"], "the journal knows of neither, so the engine must not"
        journal.away = False
        await group.until(lambda: all(task.done() for task in waiting))
        await group.until(lambda: (found := group.claim()) and found.key == "new/encode")
        assert group.claim() is None

    run(story)


def test_a_result_that_a_dead_leader_had_taken_still_wins_over_the_deadline() -> None:
    async def story(group: ManagerGroup) -> None:
        first = group.manager("m-1")
        await group.until(lambda: first.leader)
        await first.commit(SubmitJob(submission=submission(timeout_seconds=12, stuck_threshold=11)))
        await group.until(lambda: group.work.depth().ready == 1)
        message = group.claim()
        await group.kill("m-1")
        group.answer(message, 42)
        # It took the result and died before it could write it down.
        assert group.engine.mailbox(RESULTS).receive(1, 20)
        group.clock.advance(11)
        second = group.manager("m-2")
        await group.until(lambda: second.leader)
        await group.until(lambda: second.ledger.book.job("j-1").state.terminal)
        assert second.ledger.book.job("j-1").state is JobState.COMPLETED

    run(story)


def test_a_message_carries_its_stall_and_whom_it_excludes_unless_that_would_strand_it() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        assert node.leader is not None
        spec = msgspec.structs.replace(submission().workflows[0], stall=7.0)
        for job_id, others in (("alone", 0), ("among-others", 1)):
            for name in ("w-1", "w-2")[: 1 + others]:
                report = WorkerReport(
                    worker=name, incarnation=f"{name}-{job_id}", slots=1, free=1, lanes=("default.p0",)
                )
                await node.leader.worker_reports.report(report)
            await node.commit(SubmitJob(submission=msgspec.structs.replace(submission(job_id), workflows=(spec,))))
            await group.until(lambda: group.work.depth().ready == 1)
            first = group.claim()
            assert (first.body.stall_s, first.body.excluded) == (7.0, ())
            await node.commit(RecordStarted(job_id=job_id, workflow="encode", attempt=1, worker="w-1"))
            await node.commit(EvictWorker(worker="w-1", reason="silent"))
            await group.until(lambda: group.work.depth().ready == 1)
            second = group.claim()
            assert (second.body.attempt, second.body.excluded) == (2, ("w-1",) if others else ())
            second.acknowledge()

    run(story)


def test_many_commands_are_one_append_and_one_that_is_wrong_spoils_no_other() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        before = node.ledger.seq
        good, wrong = submission("good"), submission("wrong", timeout_seconds=-1)
        outcomes = await node.commit_all([SubmitJob(submission=one) for one in (good, wrong, submission("other"))])
        assert [isinstance(outcome, LimitError) for outcome in outcomes] == [False, True, False]
        entries = node.ledger.journal.read(before)
        assert len([entry for entry in entries if b"JobSubmitted" in entry.events[0]]) == 1
        assert {"good", "other"} <= set(node.ledger.book.jobs)
        await group.until(lambda: group.work.depth().ready == 2)

    run(story)


def test_a_sleeper_whose_time_has_come_does_not_wait_until_a_crowd_of_ended_jobs_is_cleaned() -> None:
    crowd = 60

    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        await node.commit(SubmitJob(submission=submission("sleeper")))
        await group.until(lambda: group.claim())
        await node.commit(RecordStarted(job_id="sleeper", workflow="encode", attempt=1, worker="w", delivery=1))
        waits = WaitsFor(step="sleep sleep #1", after_s=30.0)
        slept = RecordSuspended(job_id="sleeper", workflow="encode", attempt=1, worker="w", delivery=1, waits=waits)
        assert (await node.commit(slept)).events
        await node.commit_all([SubmitJob(submission=submission(f"j-{number}")) for number in range(crowd)])
        leader = node.leader
        assert leader is not None
        withdraw = leader.revoke_job

        async def slowly(job_id: str) -> None:
            group.clock.advance(1.0)
            await withdraw(job_id)

        leader.revoke_job = slowly  # type: ignore[method-assign]
        before = node.ledger.seq
        await node.commit_all([CancelJob(job_id=f"j-{number}") for number in range(crowd)])
        await group.until(lambda: not (node.ledger.book.uncleaned or node.ledger.writing))
        kinds = [msgspec.json.decode(one)["type"] for entry in node.ledger.journal.read(before) for one in entry.events]
        cleaned_before = kinds[: kinds.index("Woken")].count("JobCleaned")
        assert cleaned_before < crowd, "it was due after 30 s, and each job takes one"
        assert kinds.count("JobCleaned") == crowd

    run(story)


def test_commands_that_wait_when_the_lead_is_lost_are_all_refused() -> None:
    async def story(group: ManagerGroup) -> None:
        node = group.manager("m-1")
        await group.until(lambda: node.leader)
        journal = _SlowJournal(node.ledger.journal)  # type: ignore[arg-type]
        node.ledger.journal = journal  # type: ignore[assignment]
        journal.away = True
        ledger = node.ledger
        waiting = asyncio.create_task(node.commit_all([SubmitJob(submission=submission(name)) for name in "ab"]))
        for _ in range(10):
            await asyncio.sleep(0)
        ledger.step_down("somebody else leads")
        journal.away = False
        await group.until(waiting.done)
        assert all(isinstance(outcome, DeposedError) for outcome in waiting.result())

    run(story)
