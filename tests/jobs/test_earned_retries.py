"""Retries are earned (RULINGS, 20): attempts count since the last new saved work, and `max_restarts` bounds the sum."""

from __future__ import annotations

import pytest
from tests.jobs.desk import Desk, spec

from tenure.backoff import Retry
from tenure.jobs import JobBook
from tenure.jobs.attempt_results import AttemptFailed
from tenure.jobs.decisions import encode_event
from tenure.jobs.outbox import to_dispatch
from tenure.jobs.states import AttemptCause
from tenure.jobs.why import why
from tenure.jobs.workers import EvictWorker

RETRY = Retry(max_attempts=3, delay=1.0, jitter=0.0)


def begun(retry: Retry = RETRY) -> Desk:
    desk = Desk()
    desk.submit("j", spec(retry=retry))
    return desk


def attempt(desk: Desk) -> int:
    return desk.book.job("j").workflows["w"].attempt


def killed(desk: Desk, mark: int | None, *, redelivered: int = 0) -> None:
    desk.run(attempt=attempt(desk))
    desk.fail(attempt=attempt(desk), cause=AttemptCause.CRASH, mark=mark, redelivered=redelivered)
    desk.at += 100.0


def test_fifty_kills_with_progress_between_them_complete() -> None:
    desk = begun()
    for number in range(1, 51):
        killed(desk, mark=number)
        assert desk.state() == "running"
    desk.run(attempt=51)
    desk.result(attempt=51)
    assert desk.state() == "completed"


@pytest.mark.parametrize("mark", [None, 0, 7])
def test_three_kills_without_new_saved_work_end_the_job(mark: int | None) -> None:
    """Also where the same work is saved each time: it starts from there, and gets no further."""
    desk = begun()
    if mark:
        killed(desk, mark)
    for left in (2, 1, 0):
        assert desk.state() == ("running" if mark or left < 2 else "pending")
        killed(desk, mark)
    assert desk.state() == "failed"
    assert attempt(desk) == (4 if mark else 3)


def test_an_attempt_that_saved_something_new_starts_the_count_anew_and_so_does_the_rest_before_the_next() -> None:
    desk = begun()
    killed(desk, 1)
    killed(desk, 1)
    killed(desk, 1)
    assert desk.book.job("j").workflows["w"].spent == 2
    killed(desk, 2)
    workflow = desk.book.job("j").workflows["w"]
    assert (workflow.spent, workflow.not_before - (desk.at - 100.0)) == (0, 1.0)
    assert [order.tries for order in to_dispatch(desk.book, desk.at)] == [3]


def test_deaths_that_only_the_engine_saw_are_charged_unless_work_was_saved() -> None:
    desk = begun()
    killed(desk, 0, redelivered=2)
    assert desk.state() == "failed"
    saved = begun()
    killed(saved, 5, redelivered=2)
    assert (saved.state(), saved.book.job("j").workflows["w"].spent) == ("running", 0)


def test_evictions_are_charged_in_the_same_way() -> None:
    desk = begun()
    for number in range(1, 11):
        desk.run(attempt=attempt(desk), worker="w1")
        desk.do(EvictWorker(worker="w1", reason="silent", marks={"j/w": number}))
    assert (desk.state(), attempt(desk)) == ("running", 11)
    for _ in range(3):
        desk.run(attempt=attempt(desk), worker="w1")
        desk.do(EvictWorker(worker="w1", reason="silent", marks={"j/w": 10}))
    assert desk.state() == "failed"


def test_restarts_are_bounded_whatever_is_saved() -> None:
    desk = begun(Retry(max_attempts=3, max_restarts=5, jitter=0.0))
    for number in range(1, 7):
        assert desk.state() in ("pending", "running")
        killed(desk, mark=number)
    assert (desk.state(), attempt(desk)) == ("failed", 6)
    assert "No further attempt: 5 restarts are the most, whatever was saved" in str(why(desk.book, "j"))
    assert Retry().restarts == 100


def test_why_shows_each_charge() -> None:
    desk = begun()
    killed(desk, 1)
    killed(desk, 1)
    killed(desk, 1)
    killed(desk, 1)
    text = str(why(desk.book, "j"))
    assert "Attempt 2 follows after 1 s: it had saved new work, so none of 3 tries is used" in text
    assert "Attempt 3 follows after 1 s: 1 of 3 tries without new saved work are used" in text
    assert "No further attempt: 3 of 3 tries without new saved work are used" in text


def test_journals_and_snapshots_of_earlier_releases_count_every_attempt() -> None:
    desk = begun()
    desk.run()
    old = AttemptFailed(
        at=1.0,
        job_id="j",
        workflow="w",
        attempt=1,
        cause=AttemptCause.CRASH,
        next_attempt=2,
        redelivered=0,
        evidence={"max_attempts": 3},
    )
    desk.book.replay([encode_event(old)])
    desk.book = JobBook.restore(desk.book.snapshot(), desk.settings)
    assert [order.tries for order in to_dispatch(desk.book, 10.0)] == [2]
    killed(desk, None)
    killed(desk, None)
    assert desk.state() == "failed"
    assert "Attempt 2 of 3 follows at once" in str(why(desk.book, "j"))


def test_the_policy_is_written_as_it_was_where_nothing_new_is_asked_for() -> None:
    desk = begun()
    assert b"max_restarts" not in desk.journal[-1]
    assert b"grace" not in desk.journal[-1]
