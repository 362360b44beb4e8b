"""What an operator decides about a queue: pauses, limits, rates."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.desk import Desk

from tenure.errors import LimitError
from tenure.jobs import JobBook, Outcome
from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.outbox import next_dispatch_at, to_dispatch
from tenure.jobs.queues import QueueRecord, SetQueue, note_dispatch, opens_at, room


def send_all(desk: Desk) -> int:
    """As a leader does: dispatch what may go now, and record it."""
    orders = to_dispatch(desk.book, desk.at)
    for order in orders:
        desk.do(RecordDispatched(job_id=order.job_id, workflow=order.workflow, attempt=order.attempt))
    return len(orders)


def test_what_a_command_leaves_open_stays_as_it_is() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", max_running=3, rate=2.0))
    desk.do(SetQueue(queue="q", paused=True))
    record = desk.book.state.queues["q"]
    assert (record.paused, record.max_running, record.rate) == (True, 3, 2.0)
    desk.do(SetQueue(queue="q", max_running=None))
    record = desk.book.state.queues["q"]
    assert (record.paused, record.max_running, record.rate) == (True, None, 2.0)
    assert desk.do(SetQueue(queue="q", paused=True)).outcome is Outcome.ALREADY


@pytest.mark.parametrize(
    ("field", "value"), [("rate", 0.0), ("rate", -1.0), ("rate", math.nan), ("rate", math.inf), ("burst", 0)]
)
def test_a_limit_that_means_nothing_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(LimitError, match=field):
        Desk().do(SetQueue(queue="q", **{field: value}))


def test_a_rate_lets_a_burst_through_and_then_one_at_a_time() -> None:
    desk = Desk()
    for number in range(6):
        desk.submit(f"j{number}")
    desk.do(SetQueue(queue="default", rate=0.5, burst=2))
    assert send_all(desk) == 2
    assert send_all(desk) == 0
    begun = desk.at
    assert next_dispatch_at(desk.book, desk.at) == begun + 2.0
    desk.at = begun + 2.0
    assert (send_all(desk), send_all(desk)) == (1, 0)
    desk.at = begun + 4.0
    assert send_all(desk) == 1


def test_a_rate_goes_on_over_a_change_of_leader_and_of_the_rate() -> None:
    desk = Desk()
    for number in range(3):
        desk.submit(f"j{number}")
    desk.do(SetQueue(queue="default", rate=0.1))
    assert send_all(desk) == 1
    desk.book = JobBook.restore(desk.book.snapshot(), desk.book.settings)
    desk.do(TakeLead(epoch=desk.book.epoch + 1, leader="m2"))
    assert send_all(desk) == 0
    desk.do(SetQueue(queue="default", rate=1.0))
    assert send_all(desk) == 0  # what was sent is paid for at the old rate
    desk.at += 10.0
    assert send_all(desk) == 1


def test_a_full_queue_does_not_wake_the_leader_for_its_rate() -> None:
    desk = Desk()
    desk.submit("a")
    desk.submit("b")
    desk.do(SetQueue(queue="default", rate=10.0, max_running=1))
    assert send_all(desk) == 1
    desk.at += 60.0
    assert send_all(desk) == 0
    assert next_dispatch_at(desk.book, desk.at) == math.inf


@given(
    rate=st.floats(0.01, 1_000.0),
    burst=st.integers(1, 50),
    waits=st.lists(st.floats(0.0, 30.0), min_size=1, max_size=40),
)
def test_no_window_ever_holds_more_than_its_rate_and_one_burst(rate: float, burst: int, waits: list[float]) -> None:
    record, now, sent = QueueRecord(rate=rate, burst=burst), 1_763_000_000.0, []
    for wait in waits:
        now += wait
        for _ in range(room(record, 0, now)):
            note_dispatch(record, now)
            sent.append(now)
        assert room(record, 0, now) == 0
        opens = opens_at(record, now)
        if opens < math.inf:
            assert room(record, 0, opens) >= 1
    # For all i <= j: j - i + 1 <= burst + (sent[j] - sent[i]) * rate, in one pass.
    least = math.inf
    for index, at in enumerate(sent):
        owed = index - (at - sent[0]) * rate
        least = min(least, owed)
        assert owed + 1 - least <= burst + 0.01 * (index + 1)
