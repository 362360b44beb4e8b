"""Keys of work: they take turns by weight, have limits, and a new leader goes on with what is under way."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec, submission

from tenure.errors import LimitError, OutOfBoundsError
from tenure.jobs import JobBook
from tenure.jobs.attempt_results import RecordResult
from tenure.jobs.attempts import RecordDispatched, RecordStarted
from tenure.jobs.endings import CancelJob
from tenure.jobs.fair_lanes import FairLane, busiest_keys
from tenure.jobs.outbox import to_dispatch
from tenure.jobs.queues import SetQueue
from tenure.jobs.submission import SubmitJob
from tenure.jobs.why import why
from tenure.served_workflow import KeyLimit


def put(desk: Desk, tenant: str, count: int, **more: object) -> None:
    have = len(desk.book.jobs)
    for number in range(count):
        one = spec("w", arguments={"tenant": tenant}, **more)
        desk.do(SubmitJob(submission=submission(f"{tenant}{have + number}", one, queue="q")))


def send(desk: Desk, *, slots: int = 2) -> list[str]:
    """Dispatches what may go, as a leader does, and returns whose it was."""
    sent = []
    while orders := to_dispatch(desk.book, desk.at, slots=lambda queue: slots):
        for order in orders:
            desk.do(RecordDispatched(job_id=order.job_id, workflow=order.workflow, attempt=order.attempt))
            sent.append(order.arguments["tenant"])
    return sent


def finish(desk: Desk, count: int = 1) -> list[str]:
    """Ends the oldest dispatched work, and returns whose it was."""
    done = []
    for job_id, name in [key for waiting in desk.book.queued.values() for key in waiting][:count]:
        desk.do(RecordStarted(job_id=job_id, workflow=name, attempt=1, worker="w"))
        desk.do(RecordResult(job_id=job_id, workflow=name, attempt=1, worker="w", delivery=1, result=None))
        done.append(job_id.rstrip("0123456789"))
    return done


def test_the_last_of_ten_jobs_of_b_is_done_before_the_fiftieth_of_the_ten_thousand_of_a() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant"))
    put(desk, "a", 10_000)
    send(desk)
    put(desk, "b", 10)
    done: list[str] = []
    while done.count("b") < 10:
        done += finish(desk)
        send(desk)
    assert done.count("a") < 20


def test_a_queue_without_keys_is_sent_whole_and_one_with_keys_in_a_short_window() -> None:
    desk = Desk()
    put(desk, "a", 50)
    assert len(send(desk)) == 50
    keyed = Desk()
    keyed.do(SetQueue(queue="q", concurrency_key="args.tenant"))
    put(keyed, "a", 50)
    assert len(send(keyed, slots=3)) == 6
    assert len(send(keyed, slots=0)) == 0
    finish(keyed)
    assert send(keyed, slots=3) == ["a"]


def test_weights_are_turns() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant", weights={"a": 3}))
    put(desk, "a", 400)
    put(desk, "b", 400)
    put(desk, "c", 400)
    sent = Counter(send(desk, slots=50))
    assert sent == {"a": 60, "b": 20, "c": 20}


def test_who_comes_piece_by_piece_gains_nothing() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant"))
    put(desk, "b", 100)
    sent = send(desk, slots=1)
    for _ in range(40):
        if sent.count("a") == sum(key[0].startswith("a") for key in desk.book.jobs):
            put(desk, "a", 1)  # the next one of A comes the moment that the last one went
        finish(desk)
        sent += send(desk, slots=1)
    assert abs(sent[4:].count("a") - sent[4:].count("b")) <= 2


def test_no_more_of_a_key_are_under_way_than_may_be_also_under_the_next_leader() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant", max_per_key=2))
    put(desk, "a", 10)
    put(desk, "b", 1)
    assert Counter(send(desk, slots=10)) == {"a": 2, "b": 1}
    assert "2 are under way in queue 'q', and 2 may be" in why(desk.book, "a5").answer
    desk.book = JobBook.restore(desk.book.snapshot(), desk.settings)
    desk.elect("m2")
    assert send(desk, slots=10) == []
    assert busiest_keys(desk.book, "q") == [("a", 2, 8), ("b", 1, 0)]
    finish(desk)
    assert send(desk, slots=10) == ["a"]
    desk.do(SetQueue(queue="q", max_per_key=4))
    assert send(desk, slots=10) == ["a", "a"]
    desk.do(SetQueue(queue="q", max_per_key=None))
    assert len(send(desk, slots=10)) == 5


def test_priorities_of_one_queue_share_the_limit_of_a_key() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant", max_per_key=2))
    for number in range(12):
        one = spec("w", arguments={"tenant": "a"})
        desk.do(SubmitJob(submission=submission(f"a{number}", one, queue="q", priority=number % 3)))
    assert send(desk, slots=10) == ["a", "a"]
    finish(desk)
    assert send(desk, slots=10) == ["a"]


def test_work_that_could_not_be_sent_leaves_its_room_to_the_same_key_of_another_priority() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant", max_per_key=1))
    for number in range(2):
        one = spec("w", arguments={"tenant": "a"})
        desk.do(SubmitJob(submission=submission(f"a{number}", one, queue="q", priority=number)))
    assert [order.job_id for order in to_dispatch(desk.book, desk.at)] == ["a1"]
    desk.do(CancelJob(job_id="a1"))  # before it was recorded as sent: no attempt of the key ends
    assert [order.job_id for order in to_dispatch(desk.book, desk.at)] == ["a0"]


def test_each_job_of_a_key_is_held_to_its_own_limit() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant"))
    put(desk, "a", 1)
    put(desk, "a", 4, concurrency=KeyLimit(key="args.tenant", most=2))
    assert send(desk, slots=10) == ["a", "a"]  # the first has no limit, and the one behind it makes two
    finish(desk)
    assert send(desk, slots=10) == ["a"]


def test_a_key_is_read_anew_when_the_queue_changes() -> None:
    desk = Desk()
    put(desk, "a", 30)
    send(desk)
    put(desk, "a", 10)
    put(desk, "b", 10)
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant", max_per_key=32))
    assert desk.book.turns.load == {("q", "a"): 30}
    assert Counter(send(desk, slots=18)) == {"a": 2, "b": 4}
    desk.do(SetQueue(queue="q", concurrency_key=""))
    assert (desk.book.turns.load, desk.book.turns.lanes) == ({}, {})
    assert len(send(desk)) == 14


def test_a_function_or_a_submission_may_have_the_key_itself() -> None:
    desk = Desk()
    put(desk, "a", 5, concurrency=KeyLimit(key="args.tenant", most=1))
    put(desk, "b", 5, concurrency=KeyLimit(key="args.tenant", most=1))
    assert Counter(send(desk)) == {"a": 1, "b": 1}
    put(desk, "n", 3)  # work without a key shares one turn
    assert send(desk, slots=10) == ["n"] * 3


@pytest.mark.parametrize(
    ("expression", "arguments", "labels", "key"),
    [
        ("args.tenant", {"tenant": 7}, {}, "7"),
        ("args.user.id", {"user": {"id": "x"}}, {}, "x"),
        ("args.user.id", {"user": 3}, {}, ""),
        ("args.user", {"user": {"b": 1, "a": 2}}, {}, '{"a":2,"b":1}'),
        ("labels.customer", {}, {"customer": "c"}, "c"),
        ("labels.customer", {}, {}, ""),
    ],
)
def test_keys_are_read_off_arguments_and_labels(expression: str, arguments: dict, labels: dict, key: str) -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key=expression))
    desk.do(SubmitJob(submission=submission("j", spec(arguments=arguments), queue="q", labels=labels)))
    to_dispatch(desk.book, desk.at, limit=0)
    assert busiest_keys(desk.book, "q") == [(key, 0, 1)]


@pytest.mark.parametrize("expression", ["tenant", "args", "args.", "labels", "args.a b", "env.X"])
def test_an_expression_that_names_no_key_is_refused(expression: str) -> None:
    with pytest.raises((LimitError, OutOfBoundsError), match=r"concurrency_key.*args\.tenant or labels\.customer"):
        Desk().do(SetQueue(queue="q", concurrency_key=expression))


def test_the_turn_of_work_that_is_cancelled_goes_to_the_next() -> None:
    desk = Desk()
    desk.do(SetQueue(queue="q", concurrency_key="args.tenant", max_per_key=1))
    put(desk, "a", 3)
    assert send(desk) == ["a"]
    desk.do(CancelJob(job_id="a1"))
    assert send(desk) == []
    desk.do(CancelJob(job_id="a0"))
    assert send(desk) == ["a"]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5)), min_size=1, max_size=60),
    st.integers(1, 30),
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 4)),
)
def test_a_pick_takes_nothing_out_and_what_is_sent_follows_the_weights(
    works: list[tuple[str, int]], most: int, weights: dict[str, int]
) -> None:
    lane = FairLane()
    for number, (key, _) in enumerate(works):
        lane.add((str(number), "w"), key)

    def pick(count: int) -> list[tuple[str, str]]:
        return lane.pick(count, lambda key, work: float("inf"), lambda key: weights.get(key, 1))

    picked = pick(most)
    assert picked == pick(most)
    assert len(set(picked)) == len(picked) == min(most, len(works))
    # One by one, with each sent before the next is picked, the order is the same.
    sent = []
    while len(sent) < len(picked):
        (one,) = pick(1)
        lane.sent(one, weights.get(lane.key_of(one), 1))
        lane.remove(one)
        sent.append(one)
    assert sent == picked
