"""Jobs with and without a deadline: where it comes from, and what ends a job that has none."""

from __future__ import annotations

import math

import msgspec
import pytest
from tests.jobs.desk import GATE, Desk, GateDesk, spec, submission

from tenure import workflow
from tenure.errors import ConfigurationError, SubmissionConflictError
from tenure.jobs.deadlines import NEVER, deadline
from tenure.jobs.decisions import Outcome, Rule
from tenure.jobs.gate_decisions import CheckGlobal
from tenure.jobs.gate_exchange import progress_report
from tenure.jobs.gate_jobs import GateSubmit
from tenure.jobs.gate_reports import HearProgress
from tenure.jobs.messages import Identity, JobProgressReport
from tenure.jobs.model import NO_DEADLINE_S, as_recorded
from tenure.jobs.queues import SetQueue
from tenure.jobs.schedules import PutSchedule
from tenure.jobs.state_records import Schedule
from tenure.jobs.submission import FORMER_TIMEOUT_S, SubmitJob
from tenure.jobs.unique_jobs import digest
from tenure.work.job_submission import submission_for

TWO_WEEKS_S = 14 * 86_400
IDENTITY = Identity(datacenter="eu", manager_id="m-1", host="10.0.0.1", port=8700)


@workflow(timeout=60, job_timeout=7_200)
def encode(ctx: object) -> None: ...


def test_a_job_without_a_deadline_runs_for_two_weeks_and_completes() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    for step in range(1, TWO_WEEKS_S // 100):
        desk.at += 100
        desk.advance(steps=step)
        assert desk.check().outcome is Outcome.NOTHING
    desk.result()
    assert desk.state() == "completed"
    assert desk.at > TWO_WEEKS_S - 200


def test_one_that_stands_still_is_found_in_its_threshold() -> None:
    desk = Desk()
    desk.submit()
    desk.run()
    desk.at += TWO_WEEKS_S
    desk.advance(steps=1)
    assert desk.due() == math.nextafter(desk.at + 120, NEVER)
    desk.at += 120.5
    assert desk.check().rule is Rule.STUCK
    assert desk.state() == "timed_out"


def test_one_that_only_waits_in_its_queue_is_never_due() -> None:
    desk = Desk()
    desk.submit()
    assert desk.due() == NEVER


def test_no_deadline_is_a_number_in_records_that_earlier_releases_read_and_infinity_inside() -> None:
    desk = Desk()
    desk.submit(gate_addr=GATE)
    info = desk.book.job("j")
    assert deadline(info.timeout_tracking) == NEVER
    again = type(desk.book).restore(desk.book.snapshot()).job("j")
    assert again.timeout_tracking.timeout_seconds == NO_DEADLINE_S
    assert deadline(again.timeout_tracking) == NEVER
    report = progress_report(info, IDENTITY, desk.at, desk.book.settings)
    assert report.timeout_seconds == NO_DEADLINE_S
    assert msgspec.json.decode(msgspec.json.encode(report), type=JobProgressReport) == report


def test_the_deadline_is_the_submissions_then_the_functions_then_the_queues() -> None:
    assert submission_for(encode, {}, {"timeout": 60.0}, str).timeout_seconds == 60
    assert submission_for(encode, {}, {}, str).timeout_seconds == 7_200
    assert submission_for("encode", {}, {}, str).timeout_seconds is None
    desk = Desk()
    desk.do(SetQueue(queue="default", job_timeout=900.0))
    desk.submit("from-queue")
    desk.submit("own", timeout_seconds=60.0)
    desk.do(SetQueue(queue="default", job_timeout=None))
    desk.submit("none")
    found = [desk.book.job(name).timeout_tracking.timeout_seconds for name in ("from-queue", "own", "none")]
    assert found == [900.0, 60.0, NO_DEADLINE_S]


def test_no_journal_has_a_null_where_earlier_releases_have_a_number() -> None:
    """A datacenter may go back to the release before (RULINGS 13)."""
    desk, gate = Desk(), GateDesk()
    desk.submit("j")
    desk.do(PutSchedule(schedule=Schedule(name="s", job=submission("t"), every_s=60.0)))
    gate.do(GateSubmit(submission=submission("j", gate_addr=GATE), target_datacenters=("eu",)))
    written = [*desk.journal, *gate.journal, desk.book.snapshot(), gate.tracker.snapshot()]
    assert not [data for data in written if b'"timeout_seconds":null' in msgspec.json.encode(data)]
    assert digest(submission("j")) == digest(as_recorded(submission("j")))


def test_the_ladder_has_no_top_rung_without_a_deadline() -> None:
    desk = Desk()
    desk.submit("long", spec(stall=86_400.0))
    assert desk.book.job("long").timeout_tracking.stuck_threshold == 2 * 86_400
    with pytest.raises(ConfigurationError, match=r"stuck_threshold 30 s does not hold") as caught:
        desk.submit("bad", spec(stall=60.0), stuck_threshold=30.0)
    assert "timeout_seconds" not in str(caught.value)


def test_a_repeated_submission_of_an_earlier_release_which_had_an_hour_is_the_same_job() -> None:
    desk = Desk()
    before = submission("j", timeout_seconds=FORMER_TIMEOUT_S)
    desk.do(SubmitJob(submission=before))
    assert desk.do(SubmitJob(submission=submission("j"))).outcome is Outcome.ALREADY
    assert digest(before) != digest(submission("j"))
    with pytest.raises(SubmissionConflictError):
        desk.do(SubmitJob(submission=submission("j", timeout_seconds=60.0)))


def test_a_gate_skips_the_check_of_the_deadline_and_no_other() -> None:
    gate = GateDesk()
    gate.do(GateSubmit(submission=submission("j", gate_addr=GATE), target_datacenters=("eu",)))
    gate.at += TWO_WEEKS_S
    gate.tracker.heard_progress("j", "eu", gate.at)
    assert gate.do(CheckGlobal(job_id="j")).outcome is Outcome.NOTHING
    gate.at += gate.tracker.settings.stuck_threshold + 1
    assert gate.do(CheckGlobal(job_id="j")).rule is Rule.ALL_STUCK


def test_a_gate_that_lost_its_journal_rebuilds_a_job_without_a_deadline() -> None:
    desk, gate = Desk(), GateDesk()
    desk.submit(gate_addr=GATE)
    report = progress_report(desk.book.job("j"), IDENTITY, desk.at, desk.book.settings)
    assert gate.do(HearProgress(report=report)).rule is Rule.REBUILT
    assert gate.tracker.job("j").timeout_seconds == NO_DEADLINE_S
    twin = type(gate.tracker)(gate.tracker.settings)
    twin.replay(gate.journal)
    assert twin.snapshot() == gate.tracker.snapshot()
