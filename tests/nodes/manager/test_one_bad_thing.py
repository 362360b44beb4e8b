"""One bad thing fails alone: a command, a job, a result, a schedule, a snapshot. The leader leads on, and so does the next one after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.nodes.manager.harness import ManagerGroup, ask, submission
from tests.nodes.manager.harness import run_group as run

from tenure.control.messages.jobs import AskWhy, Cancel, Done, Submit
from tenure.control.messages.queues import ListSchedules
from tenure.control.messages.wire import Problem
from tenure.engines.memory.journal import MemoryJournal
from tenure.engines.memory.mailbox import MemoryMailbox
from tenure.errors import EngineReadOnlyError, LimitError, ProductFailedError
from tenure.jobs import JobBook, JobSubmission
from tenure.jobs.alarms import AlarmKind
from tenure.jobs.decisions import Command, Event, Rule, encode_event
from tenure.jobs.endings import CancelJob, JobEnded
from tenure.jobs.queues import QueueChanged
from tenure.jobs.schedules import ScheduleSet
from tenure.jobs.state_records import Schedule
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.submission import JobSubmitted, SubmitJob
from tenure.jobs.topics import DECIDE, FOLD
from tenure.nodes.manager import ledger as result_intake
from tenure.nodes.manager.leader import JobLeadership
from tenure.nodes.manager.ledger import JOURNAL, RESULTS
from tenure.nodes.manager.result_commands import command_for
from tenure.work.delivery import WorkItem, WorkResult

AT = 1_700_000_000.0


def journal_of(group: ManagerGroup, *events: Event) -> None:
    """What an older version left in the journal."""
    journal = group.engine.journal(JOURNAL)
    journal.append([encode_event(event) for event in events], epoch=1, expect=journal.head().seq, append_id="old")


def submitted(one: JobSubmission) -> JobSubmitted:
    return JobSubmitted(at=AT, job_id=one.job_id, submission=one, digest=one.job_id)


def folded(group: ManagerGroup) -> bytes:
    """The state that the journal leads to."""
    journal, book = group.engine.journal(JOURNAL), JobBook()
    snapshot = journal.latest_snapshot()
    if snapshot is not None:
        book = JobBook.restore(snapshot.state)
    for entry in journal.read(snapshot.seq if snapshot else 0):
        book.replay(entry.events)
    return book.snapshot()


async def completes(group: ManagerGroup, leadership: JobLeadership, job_id: str) -> None:
    """An ordinary job is accepted, dispatched, and completed."""
    await leadership.commit(SubmitJob(submission=submission(job_id)))
    message = await group.claimed()
    assert message.body.job_id == job_id
    group.answer(message)
    await group.until(lambda: leadership.ledger.book.job(job_id).state is JobState.COMPLETED)


def test_a_command_on_which_decide_raises_is_refused_and_deposes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("a bug of ours")

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        ledger = leadership.ledger
        monkeypatch.setitem(DECIDE, CancelJob, broken)  # type: ignore[misc]
        outcomes = await leadership.commit_all(
            [SubmitJob(submission=submission("good")), CancelJob(job_id="x"), SubmitJob(submission=submission("fine"))]
        )
        assert [isinstance(one, ProductFailedError) for one in outcomes] == [False, True, False]
        reply = await ask(manager, Cancel(job_id="x"))
        assert isinstance(reply, Problem)
        assert "Tenure itself failed while deciding a CancelJob: KeyError" in reply.fact
        assert any("Traceback" in line and "a bug of ours" in line for line in group.said)
        assert leadership.ledger is ledger
        assert manager.leads
        manager.observer.look()
        assert [one.kind for one in manager.observer.alarms] == [AlarmKind.PRODUCT_FAILED]

    run(story)


def test_a_command_whose_events_are_too_large_is_refused_with_its_size_and_deposes_nobody() -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        ledger, before = leadership.ledger, leadership.ledger.seq
        large = CancelJob(job_id="x", reason="r" * 700_000)
        outcomes = await leadership.commit_all([SubmitJob(submission=submission("good")), large])
        assert isinstance(outcomes[1], LimitError)
        assert "what a CancelJob would write is 700," in str(outcomes[1])
        assert "at most 458,752 bytes" in str(outcomes[1])
        assert not isinstance(outcomes[0], Exception)
        assert leadership.ledger is ledger
        assert manager.leads
        await completes(group, leadership, "good")
        assert "x" not in leadership.ledger.book.state.tombstones
        assert ledger.seq > before

    run(story)


def test_where_the_fold_raises_nothing_is_written_and_the_book_is_built_anew_in_the_same_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = FOLD[JobEnded]

    def half(book: JobBook, event: JobEnded) -> None:
        book.job(event.job_id).reason = "half changed"
        book.job("kept").reason = "this one too"
        raise ValueError("in the midst of it")

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        for job_id in ("bad", "kept"):
            await leadership.commit(SubmitJob(submission=submission(job_id)))
        await group.until(lambda: len(leadership.ledger.book.queued.get(("default", 0), ())) == 2)
        epoch, ledger = leadership.epoch, leadership.ledger
        monkeypatch.setitem(FOLD, JobEnded, half)  # type: ignore[misc]
        good = SubmitJob(submission=submission("good"))
        outcomes = await leadership.commit_all(
            [good, CancelJob(job_id="bad"), SubmitJob(submission=submission("late"))]
        )
        assert [isinstance(one, ProductFailedError) for one in outcomes] == [False, True, False]
        monkeypatch.setitem(FOLD, JobEnded, sound)  # type: ignore[misc]
        assert (leadership.ledger, leadership.epoch, manager.leads) == (ledger, epoch, True)
        assert ledger.book.job("bad").reason == ledger.book.job("kept").reason == ""
        assert {"good", "late"} <= set(ledger.book.jobs)
        await group.until(lambda: not ledger.writing)
        assert ledger.book.snapshot() == folded(group)
        assert (await ask(manager, Cancel(job_id="bad"))).outcome == "accepted"

    run(story)


def test_of_a_batch_that_the_engine_does_not_take_only_the_bad_command_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = MemoryJournal.append

    def picky(self: MemoryJournal, events: Any, **options: Any) -> int:
        if any(b'"job_id":"bad"' in event for event in events):
            raise LimitError("events", "something", "what this engine takes")
        return append(self, events, **options)

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        ledger = leadership.ledger
        monkeypatch.setattr(MemoryJournal, "append", picky)
        commands: list[Command] = [SubmitJob(submission=submission(one)) for one in ("good", "bad", "fine")]
        outcomes = await leadership.commit_all(commands)
        assert [isinstance(one, LimitError) for one in outcomes] == [False, True, False]
        assert leadership.ledger is ledger
        assert manager.leads
        assert set(ledger.book.jobs) == {"good", "fine"}

    run(story)


def test_a_job_of_an_old_journal_that_cannot_be_dispatched_fails_alone_and_says_so_also_after_a_restart() -> None:
    async def story(group: ManagerGroup) -> None:
        poison = submission("poison", queue="my queue")
        journal_of(group, submitted(poison), submitted(submission("honest")))
        manager, leadership = group.open("m-1", archive_after=10)
        await group.until(lambda: "poison" in leadership.ledger.book.ended)
        info = leadership.ledger.book.job("poison")
        assert info.state is JobState.FAILED
        assert "Tenure itself failed on it while dispatching it: LimitError" in info.reason
        (ended,) = [one for one in leadership.ledger.book.history("poison") if isinstance(one, JobEnded)]
        assert ended.rule is Rule.PRODUCT_FAILED
        assert "Traceback" in ended.evidence["traceback"]
        told = (await ask(manager, AskWhy(job_id="poison"))).text
        assert "The job ended: failed. Tenure itself failed on it while dispatching it" in told.replace(
            "the job", "The job"
        )
        assert (await group.claimed()).body.job_id == "honest"
        await group.until(lambda: "poison" in leadership.ledger.book.state.archive)
        await group.kill("m-1")
        again, next_one = group.open("m-2")
        await group.until(lambda: again.leads)
        await completes(group, next_one, "later")

    run(story)


def test_a_queue_of_an_old_journal_with_a_rate_that_has_no_inverse_holds_its_jobs_and_nothing_else() -> None:
    async def story(group: ManagerGroup) -> None:
        slow = [submission(f"slow-{number}", queue="slow") for number in range(3)]
        changed = QueueChanged(at=AT, queue="slow", rate=5e-324, burst=1)
        journal_of(group, changed, *map(submitted, slow))
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        for number in range(3):
            await completes(group, leadership, f"j-{number}")
        states = [leadership.ledger.book.job(one.job_id).workflows["encode"].state for one in slow]
        assert states == [WorkflowState.QUEUED, WorkflowState.PENDING, WorkflowState.PENDING]
        await group.kill("m-1")
        again, _ = group.open("m-2")
        await group.until(lambda: again.leads)

    run(story)


def test_a_result_that_cannot_be_recorded_is_a_dead_letter_and_holds_up_no_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(message: Any, *more: Any) -> Any:
        if message.body is not None and message.body.job_id == "bad":
            raise RecursionError("a bug of ours")
        return command_for(message, *more)

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        monkeypatch.setattr(result_intake, "command_for", broken)
        for job_id in ("bad", "good"):
            await leadership.commit(SubmitJob(submission=submission(job_id)))
        for _ in range(2):
            group.answer(await group.claimed())
        book = leadership.ledger.book
        await group.until(lambda: book.job("bad").state.terminal and book.job("good").state.terminal)
        assert (book.job("bad").state, book.job("good").state) == (JobState.FAILED, JobState.COMPLETED)
        results = group.engine.mailbox(RESULTS, WorkResult, WorkItem)
        await group.until(results.dead_letters.list)
        (letter,) = results.dead_letters.list()
        assert "RecursionError: a bug of ours" in letter.reason
        await leadership.commit(SubmitJob(submission=submission("short", timeout_seconds=5.0)))
        await group.until(lambda: book.job("short").state is JobState.TIMED_OUT, seconds=60)

    run(story)


def test_a_schedule_that_raises_is_paused_and_says_why_and_the_others_fire() -> None:
    async def story(group: ManagerGroup) -> None:
        bad = Schedule(name="bad", job=submission("t"), cron="what is this")
        worse = Schedule(name="worse", job=submission("t", queue=""), every_s=5.0)
        good = Schedule(name="good", job=submission("t"), every_s=5.0)
        journal_of(group, *(ScheduleSet(at=group.engine.now(), schedule=one) for one in (bad, worse, good)))
        manager, leadership = group.open("m-1")
        await group.until(lambda: leadership.ledger.seq and leadership.ledger.book.state.schedules["good"].fired)
        await group.until(lambda: leadership.ledger.book.state.schedules["bad"].schedule.paused)
        shown = {one.schedule.name: one for one in (await ask(manager, ListSchedules())).schedules}
        assert shown["bad"].schedule.paused
        assert "cron" in shown["bad"].problem
        assert not shown["good"].problem
        await group.kill("m-1")
        again, _ = group.open("m-2")
        await group.until(lambda: again.leads)

    run(story)


def test_a_state_that_is_too_large_for_a_snapshot_is_an_alarm_and_the_leader_leads_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def refuse(self: MemoryJournal, state: bytes, seq: int, *, epoch: int) -> None:
        tried.append(seq)
        raise LimitError("snapshot", "70,000,000 bytes", "at most 67,108,864 bytes")

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1", setup={"snapshot_every": 10})
        await group.until(lambda: manager.leads)
        ledger = leadership.ledger
        monkeypatch.setattr(MemoryJournal, "snapshot", refuse)
        for number in range(12):
            await completes(group, leadership, f"j-{number}")
            for _ in range(30):
                group.clock.advance(0.25)
                await asyncio.sleep(0)
        assert 1 < len(tried) < 8, "it is tried again, and not at every look: to encode it costs much"
        assert ledger.state_bytes > 1_000
        ledger.state_bytes = 70_000_000
        manager.observer.look()
        (alarm,) = manager.observer.alarms
        assert (alarm.kind, "66.8 MiB" in alarm.reason) == (AlarmKind.STATE_TOO_LARGE, True)
        assert leadership.ledger is ledger
        assert manager.leads

    run(story)


def test_a_standby_whose_engine_refuses_it_says_so_and_stands_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(group: ManagerGroup) -> None:
        head, refused = MemoryJournal.head, [True]

        def refuse(self: MemoryJournal) -> Any:
            if refused[0]:
                raise EngineReadOnlyError("this engine may only be read")
            return head(self)

        monkeypatch.setattr(MemoryJournal, "head", refuse)
        manager, leadership = group.open("m-1")
        await group.until(lambda: leadership.failures.alarms())
        for _ in range(200):
            group.clock.advance(0.25)
        assert not group.tasks["m-1"].done()
        refused[0] = False
        await group.until(lambda: manager.leads)

    run(story)


def test_a_job_that_cannot_even_be_failed_is_left_alone_until_the_next_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    send = MemoryMailbox.send_many

    def picky(self: Any, messages: Any) -> Any:
        if any(one.key.startswith("bad/") for one in messages):
            raise OverflowError("a bug of ours")
        return send(self, messages)

    sound = FOLD[JobEnded]

    def broken(book: JobBook, event: JobEnded) -> None:
        if event.job_id == "bad":
            raise AssertionError("nor can it be failed")
        sound(book, event)

    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        monkeypatch.setattr(MemoryMailbox, "send_many", picky)
        monkeypatch.setitem(FOLD, JobEnded, broken)  # type: ignore[misc]
        await leadership.commit(SubmitJob(submission=submission("bad")))
        await completes(group, leadership, "good")
        assert leadership.leader is not None
        assert list(leadership.leader.strikes.aside) == ["bad"]
        assert any("left alone until another leader takes over" in line for line in group.said)
        monkeypatch.setattr(MemoryMailbox, "send_many", send)
        monkeypatch.setitem(FOLD, JobEnded, sound)  # type: ignore[misc]
        await group.kill("m-1")
        again, next_one = group.open("m-2")
        await group.until(lambda: again.leads)
        assert (await group.claimed()).body.job_id == "bad"
        assert next_one.leader is not None
        assert not next_one.leader.strikes.aside

    run(story)


def test_an_append_of_which_nobody_knows_the_writers_fate_ends_the_term_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(group: ManagerGroup) -> None:
        manager, leadership = group.open("m-1")
        await group.until(lambda: manager.leads)
        ledger = leadership.ledger

        async def broken() -> None:
            raise MemoryError("the writer itself")

        monkeypatch.setattr(ledger, "_write", broken)
        reply = await ask(manager, Submit(submission=submission("j-1")))
        assert isinstance(reply, Problem)
        assert reply.retryable
        await group.until(lambda: leadership.ledger is not ledger and manager.leads)
        assert isinstance(await ask(manager, Submit(submission=submission("j-1"))), Done)

    run(story)
