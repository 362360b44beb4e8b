"""Seconds of work that each queue has left."""

from __future__ import annotations

import pytest
from tests.jobs.desk import Desk, spec

from tenure.jobs.attempts import RecordDispatched, RecordStarted
from tenure.jobs.learned_rates import FEWEST
from tenure.jobs.queues import SetQueue
from tenure.jobs.work_left import MOST_LOOKED_AT, UNKNOWN_S, TimeLeft, work_left

SLOW, QUICK = spec(version="1"), spec(version="2")


def silent(job_id: str, workflow: str) -> float | None:
    return None


def learned(*, slow_s: float = 600.0, quick_s: float = 2.0) -> Desk:
    """A book that knows how long both take, and holds nothing that waits or runs."""
    desk = Desk(at=100.0)
    for workflow, seconds in ((SLOW, slow_s), (QUICK, quick_s)):
        for number in range(4 * FEWEST):
            name = f"{workflow.version}-{number}"
            desk.submit(name, workflow)
            desk.run(name)
            desk.at += seconds
            desk.result(name)
    return desk


def dispatch(desk: Desk, name: str) -> None:
    desk.do(RecordDispatched(job_id=name, workflow="w", attempt=1))


def left(desk: Desk, says: TimeLeft = silent) -> dict[str, float]:
    return {queue: seconds for queue, seconds in work_left(desk.book, desk.at, says).items() if seconds}


def test_nothing_is_left_when_nothing_is_open() -> None:
    assert left(learned()) == {}


def test_ten_quick_jobs_are_less_work_than_one_slow_one() -> None:
    quick, slow = learned(), learned()
    for number in range(10):
        quick.submit(f"a-{number}", QUICK)
        dispatch(quick, f"a-{number}")
    slow.submit("b", SLOW)
    dispatch(slow, "b")
    assert left(quick)["default"] == pytest.approx(20.0, rel=0.05)
    assert left(slow)["default"] == pytest.approx(600.0, rel=0.05)


def test_work_that_runs_counts_with_what_it_has_left_and_never_as_idle() -> None:
    desk = learned()
    desk.submit("b", SLOW)
    desk.run("b")
    desk.at += 500.0
    assert left(desk)["default"] == pytest.approx(100.0, rel=0.1)
    assert left(desk, lambda job, workflow: 33.0) == {"default": 33.0}
    desk.at += 5_000.0  # it has outlived all runs before it
    assert left(desk)["default"] == pytest.approx(5_500.0)


def test_work_of_which_nothing_is_known_counts_as_a_minute_until_it_lasts_longer() -> None:
    desk = Desk(at=100.0)
    desk.submit("a", SLOW)
    dispatch(desk, "a")
    assert left(desk) == {"default": UNKNOWN_S}
    desk.do(RecordStarted(job_id="a", workflow="w", attempt=1, worker="w1"))
    desk.at += 45.0
    assert left(desk) == {"default": 15.0}
    desk.at += 1_000.0
    assert left(desk) == {"default": 1_045.0}


def test_the_first_of_a_long_queue_stand_for_the_rest() -> None:
    desk = learned()
    for number in range(MOST_LOOKED_AT + 500):
        desk.submit(f"a-{number}", QUICK)
        dispatch(desk, f"a-{number}")
    assert left(desk)["default"] == pytest.approx(2.0 * (MOST_LOOKED_AT + 500), rel=0.05)


def test_a_paused_queue_needs_no_more_workers() -> None:
    desk = learned()
    desk.submit("b", SLOW)
    dispatch(desk, "b")
    desk.do(SetQueue(queue="default", paused=True, by="operator"))
    assert left(desk) == {}
