"""Which worker ran which attempt, from when to when: the data of the timeline on a job's page."""

from __future__ import annotations

from tests.jobs.desk import Desk, spec

from tenure.backoff import Retry
from tenure.jobs.states import AttemptCause
from tenure.jobs.why import why
from tenure.jobs.why_answer import AttemptRun


def runs(desk: Desk) -> list[tuple[object, ...]]:
    def told(one: AttemptRun) -> tuple[object, ...]:
        return (one.attempt, one.delivery, one.worker, one.started_at, one.ended_at, one.outcome)

    return [told(one) for one in why(desk.book, "j").runs]


def test_a_run_that_failed_and_the_one_that_goes_on_are_told_with_their_workers_and_times() -> None:
    desk = Desk()
    desk.submit("j", spec("w", retry=Retry(max_attempts=3, delay=1, jitter=0)))
    desk.run(worker="w1")
    desk.at = 20
    desk.fail(worker="w1", cause=AttemptCause.STALL, error="stall: no beat", evidence={"cause": "stall"})
    desk.at = 30
    desk.run(worker="w2", attempt=2)
    assert runs(desk) == [(1, 1, "w1", 0.0, 20, "stall"), (2, 1, "w2", 30, None, "")]
    desk.at = 40
    desk.result(worker="w2", attempt=2, result=1)
    assert runs(desk)[1] == (2, 1, "w2", 30, 40, "completed")


def test_a_delivery_that_lost_its_lease_ends_where_the_next_one_starts() -> None:
    desk = Desk()
    desk.submit("j", spec("w"))
    desk.run(worker="w1")
    desk.at = 75
    desk.advance(1, worker="w2", delivery=2)
    assert runs(desk) == [(1, 1, "w1", 0.0, 75, "lost its lease"), (1, 2, "w2", 75, None, "")]


def test_work_that_ended_before_its_first_report_began_as_long_ago_as_it_took() -> None:
    desk = Desk()
    desk.submit("j", spec("w", retry=Retry(max_attempts=1)))
    desk.at = 10
    desk.fail(worker="w1", error="exception: no", evidence={"cause": "exception", "seconds": 0.5})
    assert runs(desk) == [(1, 1, "w1", 9.5, 10, "exception")]


def test_a_job_that_ends_takes_its_runs_along() -> None:
    desk = Desk()
    desk.submit("j", spec("w"), timeout_seconds=300.0)
    desk.run(worker="w1")
    desk.at = desk.due()
    desk.check()
    assert runs(desk) == [(1, 1, "w1", 0.0, desk.at, "ended with its job")]
