"""Answers: sent to where the sender said, and with `settle` as one step with the acknowledgement."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.contract.acts import assert_every_act_is_refused
from tests.contract.case import EngineCase

from tenure.engines import Engine, Outgoing
from tenure.errors import LimitError, ReplyNotAvailableError, SerializationError


@dataclass
class Result:
    value: int


def test_a_reply_goes_to_the_mailbox_that_the_sender_named(case: EngineCase, engine: Engine) -> None:
    replies = engine.mailbox("replies", Result)
    work = engine.mailbox("work", str, Result)
    work.send("by handle", reply_to=replies)
    work.send("by name", reply_to="replies")
    work.send_many([Outgoing("in a batch", reply_to="replies")])
    for number, message in enumerate(case.again().mailbox("work", str, Result).receive(10)):
        assert message.reply_to == "replies"
        message.settle(Result(number))
    assert [reply.body for reply in replies.receive(10)] == [Result(0), Result(1), Result(2)]
    assert work.approximate_count() == 0


def test_a_message_may_be_answered_several_times_and_stays_ours(engine: Engine) -> None:
    work, replies = engine.mailbox("work"), engine.mailbox("replies")
    work.send("x", reply_to=replies)
    (message,) = work.receive()
    for part in range(3):
        message.reply(part)
    assert work.depth() == (0, 0, 1)
    message.settle("end")
    assert [reply.body for reply in replies.receive(10)] == [0, 1, 2, "end"]


def test_settling_is_one_step_and_a_refused_one_leaves_nothing_behind(case: EngineCase, engine: Engine) -> None:
    work, replies = engine.mailbox("work"), engine.mailbox("replies")
    work.send("x", reply_to=replies)
    (message,) = work.receive(1, case.s(5))
    case.pass_time(5)
    assert_every_act_is_refused(message)
    assert (work.depth(), replies.depth()) == ((1, 0, 0), (0, 0, 0))
    (message,) = work.receive()
    message.settle("once")
    assert_every_act_is_refused(message)
    assert (work.depth(), replies.depth()) == ((0, 0, 0), (1, 0, 0))


def test_a_reply_that_cannot_be_sent_leaves_the_message_with_its_consumer(engine: Engine) -> None:
    work = engine.mailbox("work", str, Result)
    work.send("x", reply_to="replies")
    (message,) = work.receive()
    for wrong in ("not a result", object()):
        with pytest.raises(SerializationError):
            message.settle(wrong)
        with pytest.raises(SerializationError):
            message.reply(wrong)
    anything = engine.mailbox("work")
    anything.send("y", reply_to="replies")
    (large,) = anything.receive()
    with pytest.raises(LimitError, match="reply is"):
        large.settle("x" * 600_000)
    assert work.depth() == (0, 0, 2)
    assert engine.mailbox("replies").depth() == (0, 0, 0)
    message.settle(Result(1))
    large.acknowledge()


def test_without_reply_to_there_is_no_reply_and_the_message_stays_ours(engine: Engine) -> None:
    work = engine.mailbox("work")
    work.send("x")
    (message,) = work.receive()
    for act in (message.reply, message.settle):
        with pytest.raises(ReplyNotAvailableError):
            act("answer")
    message.acknowledge()


def test_a_reply_is_a_message_with_its_own_lease_and_count(case: EngineCase, engine: Engine) -> None:
    work, replies = engine.mailbox("work"), engine.mailbox("replies")
    work.send("x", key="job/1", generation=5, reply_to=replies)
    (message,) = work.receive()
    message.settle("answer")
    (reply,) = replies.receive(1, case.s(5))
    assert (reply.key, reply.generation, reply.delivery_count, reply.reply_to) == (None, 0, 1, None)
    assert reply.id != message.id
    case.pass_time(5)
    (reply,) = replies.receive()
    assert reply.delivery_count == 2
