from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec
from tests.jobs.random_commands import JOBS, commands, follow, three_flows, waiting_commands

from tenure.backoff import Retry
from tenure.errors import EngineVersionError, IllegalTransitionError, StaleEpochError, TenureError
from tenure.jobs import JobBook, JobSettings, WorkflowState
from tenure.jobs.attempt_results import WorkflowCompleted
from tenure.jobs.attempts import Dispatched
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.decisions import Command, Event, encode_event
from tenure.jobs.endings import CancelJob, JobEnded
from tenure.jobs.timeout import CheckJob
from tenure.jobs.topics import decode_event


def check_invariants(book: JobBook) -> None:
    """What must hold after every event, counted anew from the state alone."""
    queued: dict[str, int] = {}
    on_worker: dict[str, set[tuple[str, str]]] = {}
    pending = set()
    sleeping: dict[tuple[str, str], float] = {}
    on_job: dict[str, set[tuple[str, str]]] = {}
    for job_id, info in book.jobs.items():
        states = [workflow.state for workflow in info.workflows.values()]
        assert info.open_workflows == sum(not state.terminal for state in states)
        assert info.running_workflows == states.count(WorkflowState.RUNNING)
        assert info.waiting_workflows == states.count(WorkflowState.WAITING)
        assert info.completed_workflows == states.count(WorkflowState.COMPLETED)
        assert info.failed_workflows == states.count(WorkflowState.FAILED)
        assert info.state.terminal == (info.open_workflows == 0), (info.state, states)
        assert info.state.terminal == (job_id in book.ended)
        assert (not info.cleaned) == (job_id in book.uncleaned)
        assert (not info.state.terminal and info.timeout_tracking.pause is not None) == (job_id in book.paused)
        assert 0 <= info.timeout_tracking.total_extensions_granted <= 58.125
        for name, workflow in info.workflows.items():
            assert 1 <= workflow.attempt - workflow.uncharged <= workflow.spec.retry.max_attempts
            assert workflow.stop is None or workflow.state is WorkflowState.RUNNING
            if workflow.state in (WorkflowState.QUEUED, WorkflowState.RUNNING):
                queued["default"] = queued.get("default", 0) + 1
            if workflow.state is WorkflowState.RUNNING:
                on_worker.setdefault(workflow.worker, set()).add((job_id, name))
            if workflow.state is WorkflowState.PENDING and job_id not in book.paused:
                pending.add((job_id, name))
            if workflow.state is WorkflowState.SUSPENDED:
                assert workflow.waits is not None
                assert (workflow.worker, workflow.delivery) == ("", 0)
                assert not info.state.terminal
                if workflow.wakes_at:
                    sleeping[(job_id, name)] = workflow.wakes_at
                for child in workflow.waits.jobs:
                    on_job.setdefault(child, set()).add((job_id, name))
                    assert not book.job(child).state.terminal, "it waits for what has ended"
                assert workflow.waits.jobs or workflow.wakes_at or workflow.waits.event, "it waits for nothing"
                said = sum(one.name == workflow.waits.event for one in info.signals)
                assert not workflow.waits.event or said <= workflow.waits.seen, "its signal is there"
    assert {job_id: set(keys) for job_id, keys in book.waits.on_job.items()} == on_job
    assert sorted(book.waits.sleeping.pop_due(float("inf"))) == sorted(sleeping)
    for key, at in sleeping.items():
        book.waits.sleeping.set(key, at)
    assert {worker: set(keys) for worker, keys in book.on_worker.items()} == on_worker
    assert book.in_queue.get("default", 0) == queued.get("default", 0)
    book.wake(float("inf"))
    assert {key for lane in book.ready.values() for key in lane} == pending


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.one_of(commands, waiting_commands), st.sampled_from((0, 1, 31, 150))), max_size=60),
    st.integers(0, 60),
)
def test_replay_and_any_snapshot_on_the_way_give_the_same_state_byte_for_byte(
    steps: list[tuple[Command, int]], cut: int
) -> None:
    desk = Desk(settings=JobSettings(archive_after=100, history_limit=12, max_remembered=1))
    follow(desk, [(three_flows(job_id), 0) for job_id in JOBS] + steps)
    whole = desk.book.snapshot()

    replayed = JobBook(desk.settings)
    replayed.replay(desk.journal)
    assert replayed.snapshot() == whole

    half = JobBook(desk.settings)
    half.replay(desk.journal[:cut])
    resumed = JobBook.restore(half.snapshot(), desk.settings)
    resumed.replay(desk.journal[cut:])
    assert resumed.snapshot() == whole
    check_invariants(desk.book)
    check_invariants(resumed)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(commands, st.sampled_from((0, 1, 31, 150))), max_size=60))
def test_no_job_ends_twice_and_no_decision_breaks_the_fold(steps: list[tuple[Command, int]]) -> None:
    desk = Desk(settings=JobSettings(archive_after=1e5))
    follow(desk, [(three_flows(job_id), 0) for job_id in JOBS] + steps)
    ended = [event.job_id for event in map(decode_event, desk.journal) if isinstance(event, JobEnded)]
    assert len(ended) == len(set(ended))
    done = [
        (event.job_id, event.workflow)
        for event in map(decode_event, desk.journal)
        if isinstance(event, WorkflowCompleted)
    ]
    assert len(done) == len(set(done))


def test_an_event_survives_its_encoding() -> None:
    desk = Desk()
    desk.submit("j", spec(arguments={"x": [1, 2.5, "ü", None]}), labels={"team": "a"})
    for encoded in desk.journal:
        assert encode_event(decode_event(encoded)) == encoded


def test_a_foreign_event_is_an_error_and_not_a_shrug() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_event(b'{"type":"Unheard","at":1}')
    with pytest.raises(EngineVersionError, match="cannot fold a Event"):
        JobBook().apply(Event(at=1.0))


def test_a_snapshot_of_a_newer_version_or_of_something_else_is_refused() -> None:
    book = JobBook()
    book.state.version = 99
    with pytest.raises(EngineVersionError, match="has version 99"):
        JobBook.restore(book.snapshot())
    with pytest.raises(EngineVersionError, match="cannot be read"):
        JobBook.restore(b"garbage")


def test_the_fold_refuses_a_second_end_whoever_wrote_it() -> None:
    desk = Desk()
    desk.submit()
    desk.do(CancelJob(job_id="j"))
    with pytest.raises(IllegalTransitionError, match="from cancelled to completed"):
        desk.book.apply(JobEnded(at=1.0, job_id="j", state="completed", reason=""))  # type: ignore[arg-type]


def test_a_leader_of_an_old_epoch_cannot_take_over() -> None:
    desk = Desk()
    desk.elect("m2")
    with pytest.raises(StaleEpochError, match="append with epoch 1 refused: epoch 2 has written"):
        desk.do(TakeLead(epoch=1, leader="m1"))


def test_history_is_bounded_keeps_the_beginning_and_counts_what_it_left_out() -> None:
    desk = Desk(settings=JobSettings(history_limit=10))
    desk.submit("j", spec(retry=Retry(max_attempts=50, delay=0)))
    for attempt in range(1, 50):
        desk.run(attempt=attempt)
        desk.fail(attempt=attempt)
    info = desk.book.job("j")
    assert len(info.history) == 10
    assert info.elided == 3 * 49 - 10
    assert isinstance(desk.book.history("j")[0], Dispatched)


def test_a_run_of_progress_is_one_line_of_history() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    for round_ in range(1, 40):
        desk.at += 30.0
        desk.advance(round_)
    kept = [type(event).__name__ for event in desk.book.history("j")]
    assert kept == ["Dispatched", "WorkflowStarted", "ProgressRecorded"]
    assert desk.book.history("j")[-1].steps == 39  # type: ignore[union-attr]


def test_every_error_of_a_command_is_one_that_users_can_meet() -> None:
    with pytest.raises(TenureError):
        Desk().do(CheckJob(job_id="nobody"))
