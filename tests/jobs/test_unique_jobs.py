"""Unique jobs: an equal submission gets the job that is there, is refused, or takes its place."""

from __future__ import annotations

from typing import Any

import pytest
from tests.jobs.desk import GATE, Desk, GateDesk, spec, submission

from tenure.errors import ConfigurationError, DuplicateJobError
from tenure.jobs import Decision, JobBook, JobSettings, Outcome
from tenure.jobs.attempt_results import RecordResult
from tenure.jobs.attempts import RecordDispatched, RecordStarted
from tenure.jobs.endings import ArchiveJob, CancelJob, ConfirmCleaned
from tenure.jobs.gate_jobs import GateSubmit
from tenure.jobs.states import JobState
from tenure.jobs.submission import SubmitJob
from tenure.jobs.unique_jobs import RETRY_OF, digest
from tenure.served_workflow import OnDuplicate, Unique


def submit(
    desk: Desk, job_id: str, on: str = "keep", *, path: str = "a", lenient: bool = False, **more: Any
) -> Decision:
    unique = Unique(for_s=60, on_duplicate=OnDuplicate(on), key=more.pop("key", ""))
    job = submission(job_id, spec(arguments={"path": path}), unique=unique, **more)
    return desk.do(SubmitJob(submission=job, lenient=lenient))


def complete(desk: Desk, job_id: str) -> None:
    desk.do(RecordDispatched(job_id=job_id, workflow="w", attempt=1))
    desk.do(RecordStarted(job_id=job_id, workflow="w", attempt=1, worker="x"))
    desk.do(RecordResult(job_id=job_id, workflow="w", attempt=1, worker="x", delivery=1, result=1))


def test_an_equal_submission_gets_the_job_that_is_there() -> None:
    desk = Desk()
    submit(desk, "one")
    kept = submit(desk, "two")
    assert (kept.outcome, kept.job_id, kept.events) == (Outcome.ALREADY, "one", [])
    assert submit(desk, "three", path="b").outcome is Outcome.ACCEPTED
    assert submit(desk, "four", queue="other").outcome is Outcome.ACCEPTED
    complete(desk, "one")
    assert submit(desk, "five").job_id == "one"
    desk.at += 61
    assert submit(desk, "six").outcome is Outcome.ACCEPTED
    assert submit(desk, "seven").job_id == "six"


def test_a_key_makes_jobs_equal_whatever_their_arguments() -> None:
    desk = Desk()
    submit(desk, "one", key="report")
    assert submit(desk, "two", key="report", path="b").job_id == "one"


def test_a_job_that_did_not_do_its_work_stands_for_no_other() -> None:
    desk = Desk()
    submit(desk, "one")
    desk.do(CancelJob(job_id="one"))
    assert submit(desk, "two").outcome is Outcome.ACCEPTED


def test_a_submission_may_ask_to_be_refused() -> None:
    desk = Desk()
    submit(desk, "one", "reject")
    with pytest.raises(DuplicateJobError, match=r"job 'one' is equal and was accepted within the last 60 s"):
        submit(desk, "two", "reject")
    assert submit(desk, "one", "reject").outcome is Outcome.ALREADY  # the same submission, once more


def test_the_newest_takes_the_place_of_one_that_waits_and_runs_beside_one_that_runs() -> None:
    desk = Desk()
    submit(desk, "one", "replace", key="k")
    desk.do(RecordDispatched(job_id="one", workflow="w", attempt=1))
    assert submit(desk, "two", "replace", key="k", path="b").outcome is Outcome.ACCEPTED
    info = desk.book.jobs["one"]
    assert (info.state, info.cleaned) == (JobState.CANCELLED, False)
    assert "replaced by job two" in info.reason
    assert submit(desk, "two", "replace", key="k", path="b").outcome is Outcome.ALREADY
    desk.do(RecordDispatched(job_id="two", workflow="w", attempt=1))
    desk.do(RecordStarted(job_id="two", workflow="w", attempt=1, worker="x"))
    assert submit(desk, "three", "replace", key="k").outcome is Outcome.ACCEPTED
    assert desk.book.jobs["two"].state is JobState.RUNNING


def test_equal_jobs_are_known_to_the_next_leader_and_after_they_were_archived() -> None:
    desk = Desk(settings=JobSettings(archive_after=1.0))
    submit(desk, "one")
    complete(desk, "one")
    desk.do(ConfirmCleaned(job_id="one"))
    desk.at += 10
    desk.do(ArchiveJob(job_id="one"))
    assert "one" in desk.book.state.archive
    assert submit(desk, "two").job_id == "one"
    desk.book = JobBook.restore(desk.book.snapshot(), desk.settings)
    assert submit(desk, "three").job_id == "one"


def test_runs_of_schedules_and_retries_are_no_duplicates() -> None:
    desk = Desk()
    submit(desk, "one")
    assert submit(desk, "two", lenient=True).outcome is Outcome.ACCEPTED
    assert submit(desk, "three", labels={RETRY_OF: "one"}).outcome is Outcome.ACCEPTED


def test_a_gate_says_that_it_cannot_tell_equal_jobs() -> None:
    with pytest.raises(ConfigurationError, match="a gate cannot tell"):
        GateDesk().do(
            GateSubmit(submission=submission("j", unique=Unique(for_s=1), gate_addr=GATE), target_datacenters=("a",))
        )


def test_the_digest_of_other_submissions_is_as_it_was() -> None:
    plain = submission("j")
    assert digest(plain) == digest(submission("j", unique=None))
    assert digest(plain) != digest(submission("j", unique=Unique(for_s=60)))
