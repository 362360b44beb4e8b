from __future__ import annotations

from tests.changed import changed

from tenure.backoff import Retry
from tenure.health.outage import Met, OutageSettings
from tenure.jobs import JobBook, decide
from tenure.jobs.attempt_results import RecordFailure
from tenure.jobs.attempts import RecordDispatched, RecordStarted
from tenure.jobs.decisions import Command, Outcome
from tenure.jobs.model import JobSubmission, WorkflowSpec
from tenure.jobs.outages import (
    EndOutage,
    HoldDependency,
    MoveOutage,
    OutagePhase,
    OutageRecord,
    Seen,
    hold_of,
    next_step,
)
from tenure.jobs.states import AttemptCause, JobState, WorkflowState
from tenure.jobs.submission import SubmitJob
from tenure.jobs.why import why

SETTINGS = OutageSettings(probe_after_s=10.0, rate=4.0)


def commit(book: JobBook, command: Command, now: float) -> Outcome:
    decision = decide(book, command, now)
    book.apply_all(decision.events)
    return decision.outcome


def running(book: JobBook, job: str, now: float, *, max_attempts: int = 2) -> None:
    spec = WorkflowSpec(name="w", retry=Retry(max_attempts=max_attempts))
    commit(book, SubmitJob(submission=JobSubmission(job_id=job, workflows=(spec,))), now)
    start(book, job, 1, now)


def start(book: JobBook, job: str, attempt: int, now: float) -> None:
    commit(book, RecordDispatched(job_id=job, workflow="w", attempt=attempt), now)
    commit(book, RecordStarted(job_id=job, workflow="w", attempt=attempt, worker="a"), now)


def fail(book: JobBook, job: str, attempt: int, now: float, on: str = "s3") -> None:
    command = RecordFailure(
        job_id=job, workflow="w", attempt=attempt, cause=AttemptCause.ERROR, worker="a", waits_on=on
    )
    commit(book, command, now)


def hold(name: str = "s3", **given: object) -> HoldDependency:
    return HoldDependency(by="leader", name=name, most_s=3_600.0, rate=4.0, reason="3 of 3 fail", **given)


def test_an_attempt_that_fails_on_what_is_down_is_not_charged_and_rests_until_it_is_back() -> None:
    book = JobBook()
    running(book, "j", 0.0, max_attempts=1)
    commit(book, hold(), 10.0)
    fail(book, "j", 1, 20.0)
    workflow = book.jobs["j"].workflows["w"]
    assert (workflow.state, workflow.attempt, workflow.uncharged) == (WorkflowState.PENDING, 2, 1)
    assert workflow.not_before == 3_610.0
    commit(book, EndOutage(name="s3", reason="it is back"), 100.0)
    assert (workflow.not_before, workflow.held_on) == (100.0, "")
    start(book, "j", 2, 101.0)
    fail(book, "j", 2, 102.0, on="")
    assert book.jobs["j"].state is JobState.FAILED, "a failure of its own counts as ever"


def test_an_attempt_that_failed_just_before_the_outage_was_seen_is_not_charged_either() -> None:
    book = JobBook()
    running(book, "j", 0.0)
    fail(book, "j", 1, 5.0)
    workflow = book.jobs["j"].workflows["w"]
    assert workflow.not_before >= 10.0, "it rests, so that others can be looked at"
    commit(book, hold(), 8.0)
    assert (workflow.uncharged, workflow.not_before) == (1, 3_608.0)


def test_a_failure_on_something_that_is_not_down_is_charged() -> None:
    book = JobBook()
    running(book, "j", 0.0, max_attempts=1)
    commit(book, hold("gcs"), 1.0)
    fail(book, "j", 1, 5.0)
    assert book.jobs["j"].state is JobState.FAILED


def test_attempts_that_rest_are_sent_at_the_set_rate_when_the_outage_is_over() -> None:
    book = JobBook()
    for number in range(9):
        running(book, f"j{number}", 0.0)
    commit(book, hold(), 1.0)
    for number in range(9):
        fail(book, f"j{number}", 1, 2.0)
    commit(book, EndOutage(name="s3"), 50.0)
    due = sorted(info.workflows["w"].not_before for info in book.jobs.values())
    assert due == [50.0 + number / 4.0 for number in range(9)]


def test_a_book_that_was_restored_knows_what_is_held() -> None:
    book = JobBook()
    commit(book, hold(), 1.0)
    commit(book, MoveOutage(name="s3", phase=OutagePhase.PROBING), 11.0)
    restored = JobBook.restore(book.snapshot())
    assert restored.state.outages["s3"].phase is OutagePhase.PROBING
    assert commit(restored, hold(), 12.0) is Outcome.ALREADY


def test_why_tells_a_job_that_what_it_waits_for_is_down() -> None:
    book = JobBook()
    running(book, "j", 0.0)
    commit(book, hold(jobs=("j",)), 1.0)
    fail(book, "j", 1, 2.0)
    told = str(why(book, "j"))
    assert "s3, which it waits for, is down: 3 of 3 fail" in told
    assert "s3 is down, so it is not charged, and rests until that is back" in told


def met(successes: int = 0, failures: int = 0) -> Met:
    found = Met()
    for _ in range(failures):
        found.note(success=False)
    for _ in range(successes):
        found.note(success=True)
    return found


def test_an_outage_is_probed_then_released_and_then_over() -> None:
    record = OutageRecord(since=0.0, until=3_600.0)
    seen = Seen(("a", "b"), 2, 5, met())
    assert next_step("s3", record, seen, 9.0, SETTINGS) is None
    step = next_step("s3", record, seen, 10.0, SETTINGS)
    assert isinstance(step, MoveOutage)
    assert step.phase is OutagePhase.PROBING
    record.phase, record.changed_at = OutagePhase.PROBING, 10.0
    assert next_step("s3", record, changed(seen, met=met(1, 5)), 20.0, SETTINGS) is None
    step = next_step("s3", record, changed(seen, met=met(2, 5)), 20.0, SETTINGS)
    assert isinstance(step, MoveOutage)
    assert (step.phase, step.workers) == (OutagePhase.RELEASING, ("a", "b"))
    record.phase, record.changed_at = OutagePhase.RELEASING, 20.0
    assert next_step("s3", record, seen, 25.0, SETTINGS) is None
    assert isinstance(next_step("s3", record, changed(seen, held=0), 25.0, SETTINGS), EndOutage)


def test_a_release_that_fails_again_is_held_again() -> None:
    record = OutageRecord(since=0.0, until=3_600.0, phase=OutagePhase.RELEASING, changed_at=20.0)
    step = next_step("s3", record, Seen(("a",), 1, 5, met(1, 3)), 30.0, SETTINGS)
    assert isinstance(step, MoveOutage)
    assert step.phase is OutagePhase.HELD


def test_a_hold_ends_at_its_maximum_whatever_is_down() -> None:
    record = OutageRecord(since=0.0, until=3_600.0)
    step = next_step("s3", record, Seen(("a",), 1, 5, met(0, 9)), 3_600.0, SETTINGS)
    assert isinstance(step, EndOutage)
    assert "the longest time" in step.reason


def test_the_rate_of_a_release_holds_over_all_workers() -> None:
    record = OutageRecord(
        since=0.0, until=3_600.0, phase=OutagePhase.RELEASING, changed_at=10.0, rate=4.0, workers=("a", "b", "c")
    )
    for now in (10.0, 10.3, 11.0, 12.5, 40.0):
        assert sum(hold_of(record, worker, now).released for worker in "abc") == int(4.0 * (now - 10.0))
    assert hold_of(record, "new", 11.0).released == 1, "as much as the one with the least"
