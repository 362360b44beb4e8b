"""One call that queues messages of several mailboxes: they keep their order over all of them, and have no common fate."""

from __future__ import annotations

import time

import pytest
from tests.contract.case import Background, EngineCase

from tenure.engines import Engine, Outgoing
from tenure.errors import SerializationError, TenureError

LONG = 60.0  # a poll that ends much sooner was woken
SOON = 45.0  # generous: the machine may be busy


def test_messages_keep_their_order_over_mailboxes_that_alternate(live: Engine) -> None:
    """In real time: where a manual clock stands still, the order over mailboxes is nobody's."""
    left, right = live.mailbox("left"), live.mailbox("right")
    plan = [(right, [0, 1]), (left, [2]), (right, [3]), (left, [4, 5]), (right, [6])]
    sent = live.send_across([(box, [Outgoing(n, key=f"k{n}") for n in numbers]) for box, numbers in plan])
    assert len({one.id for one in sent}) == 7
    assert [one.refused for one in sent] == [None] * 7
    both = live.consumer()
    both.cover([["left", "right"]])
    found = both.exchange(max_messages=10, visibility_timeout=60).messages
    assert [message.body for message in found] == list(range(7))
    assert [message.id for message in found] == [one.id for one in sent]


def test_each_mailbox_gets_what_is_for_it_with_everything_that_was_said(case: EngineCase, engine: Engine) -> None:
    left, right = engine.mailbox("left"), engine.mailbox("right")
    late = Outgoing("late", delay=case.s(10))
    engine.send_across([(left, [Outgoing("asks", reply_to="answers")]), (right, [late, Outgoing("plain")])])
    (asks,), (plain,) = left.receive(5), right.receive(5)
    asks.settle("answered")
    assert (plain.body, plain.reply_to, asks.reply_to) == ("plain", None, "answers")
    assert [one.body for one in engine.mailbox("answers").receive()] == ["answered"]
    case.pass_time(11)
    assert [one.body for one in right.receive(5)] == ["late"]


def test_a_refused_key_is_told_and_does_not_stop_the_rest(engine: Engine) -> None:
    left, right = engine.mailbox("left"), engine.mailbox("right")
    right.send("newer", key="job", generation=2)
    left.revoke("gone")
    sent = engine.send_across(
        [
            (left, [Outgoing("a", key="job", generation=1), Outgoing("b", key="gone")]),
            (right, [Outgoing("c", key="job", generation=1), Outgoing("d", key="other")]),
        ]
    )
    assert [one.refused is None for one in sent] == [True, False, False, True]
    assert [one.body for one in left.receive(5)] == ["a"]
    assert sorted(one.body for one in right.receive(5)) == ["d", "newer"]


def test_a_higher_generation_replaces_what_is_queued(engine: Engine) -> None:
    left, right = engine.mailbox("left"), engine.mailbox("right")
    engine.send_across([(left, [Outgoing("old", key="k")]), (right, [Outgoing("old", key="k")])])
    engine.send_across([(right, [Outgoing("new", key="k", generation=1)]), (left, [Outgoing("x")])])
    assert [one.body for one in left.receive(5)] == ["old", "x"]
    assert [one.body for one in right.receive(5)] == ["new"]


def test_nothing_is_queued_when_one_message_cannot_be_sent(engine: Engine) -> None:
    left, right = engine.mailbox("left"), engine.mailbox("right", int)
    with pytest.raises(SerializationError):
        engine.send_across([(left, [Outgoing("fine")]), (right, [Outgoing("no number")])])
    assert (left.approximate_count(), right.approximate_count()) == (0, 0)
    assert engine.send_across([]) == []
    assert engine.send_across([(left, []), (right, [Outgoing(1)])])[0].refused is None
    left.close()
    with pytest.raises(TenureError):
        engine.send_across([(right, [Outgoing(2)]), (left, [Outgoing(3)])])
    assert [one.body for one in right.receive(5)] == [1]


def test_it_wakes_everybody_who_waits(case: EngineCase, live: Engine) -> None:
    other = case.live()
    waiting = [Background(lambda name=name: other.mailbox(name).receive(1, 60, LONG)) for name in ("left", "right")]
    time.sleep(0.1)  # for them to begin
    live.send_across([(live.mailbox("left"), [Outgoing(1)]), (live.mailbox("right"), [Outgoing(2)])])
    assert [waiter.result(SOON)[0].body for waiter in waiting] == [1, 2]
