"""The newest reports of workers: attempts are found by job, and only those of reports that still count."""

from __future__ import annotations

from tenure.control.messages.workers import AttemptReport, WorkerReport
from tenure.nodes.manager.reported_attempts import ReportedAttempts


def report(start: str, *jobs: str, number: int = 1, worker: str = "w") -> WorkerReport:
    attempts = tuple(AttemptReport(job_id=job, workflow="encode", attempt=1, delivery=1, steps=number) for job in jobs)
    return WorkerReport(worker=worker, incarnation=start, attempts=attempts, number=number)


def test_a_newer_report_replaces_the_attempts_of_the_older_one() -> None:
    reported = ReportedAttempts()
    reported.remember(report("s-1", "a", "b"), 1.0)
    reported.remember(report("s-1", "b", number=2), 2.0)
    assert reported.attempt("a", "encode") is None
    assert reported.starts_of_job("a") == []
    found = reported.attempt("b", "encode")
    assert found is not None
    assert (found.start, found.attempt.steps) == ("s-1", 2)
    heard = reported.report("s-1")
    assert heard is not None
    assert heard.at == 2.0


def test_a_report_that_was_overtaken_on_its_way_says_nothing_new() -> None:
    reported = ReportedAttempts()
    reported.remember(report("s-1", "b", number=2), 2.0)
    reported.remember(report("s-1", "a", number=1), 3.0)
    assert [one.number for one in reported.reports()] == [2]
    assert reported.attempt("a", "encode") is None


def test_two_starts_of_one_worker_do_not_hide_each_other_and_the_last_to_report_an_attempt_runs_it() -> None:
    reported = ReportedAttempts()
    reported.remember(report("s-1", "a", "b"), 1.0)
    reported.remember(report("s-2", "b"), 2.0)
    assert reported.starts_of_worker("w") == reported.starts_of_job("b") == ["s-1", "s-2"]
    reported.forget("s-1")
    found = reported.attempt("b", "encode")
    assert found is not None
    assert found.start == "s-2"
    assert reported.starts_of_job("b") == ["s-2"]
    assert reported.attempt("a", "encode") is None
    reported.forget("s-2")
    reported.forget("s-2")
    assert reported.attempt("b", "encode") is None
    reported.remember(report("s-3", "a"), 3.0)
    assert {worker: len(runs) for worker, runs in reported.running().items()} == {"w": 1}
