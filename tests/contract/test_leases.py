"""A receipt names one delivery, and is worth nothing from the moment its lease runs out."""

from __future__ import annotations

import pytest
from tests.contract.acts import ACTS, assert_every_act_is_refused
from tests.contract.case import EngineCase

from tenure.engines import Engine, Mailbox, Outgoing
from tenure.engines.contracts import Message
from tenure.errors import ReceiptHandleExpiredError

Box = Mailbox[str, str]


def held(mailbox: Box, lease: float, *, provisional: bool = False) -> Message[str, str]:
    (message,) = mailbox.receive(1, lease, provisional=provisional)
    return message


def test_every_call_is_refused_once_the_lease_ran_out_though_nobody_claimed_the_message(
    case: EngineCase, engine: Engine
) -> None:
    mailbox, replies = engine.mailbox("work", max_delivery_count=9), engine.mailbox("replies")
    mailbox.send("x", reply_to="replies")
    message = held(mailbox, case.s(3))
    case.pass_time(3)
    assert_every_act_is_refused(message)
    # and none of them did anything
    assert (mailbox.depth(), replies.depth(), mailbox.dead_letters.count()) == ((1, 0, 0), (0, 0, 0), 0)
    assert held(mailbox, 60).checkpoint is None


def test_every_call_is_refused_when_another_consumer_holds_the_message_now(case: EngineCase, engine: Engine) -> None:
    """Interleaving 1: stopped, expired, delivered again, and then the first wakes and sends its result."""
    mailbox, replies = engine.mailbox("work"), engine.mailbox("replies")
    mailbox.send("x", reply_to="replies")
    first = held(mailbox, case.s(3))
    case.pass_time(3)
    second = held(case.again().mailbox("work"), 60)
    assert second.fence > first.fence
    assert_every_act_is_refused(first)
    second.extend_visibility(60, b"mine")
    second.settle("right")
    assert [reply.body for reply in replies.receive(10)] == ["right"]
    assert mailbox.approximate_count() == 0
    assert_every_act_is_refused(second)


@pytest.mark.parametrize("act", [name for name in ACTS if name not in ("extend", "extend with a checkpoint", "reply")])
def test_every_call_is_refused_after_the_delivery_was_ended(engine: Engine, act: str) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x", reply_to="replies")
    message = held(mailbox, 60)
    ACTS[act](message)
    assert_every_act_is_refused(message)


@pytest.mark.exact
@pytest.mark.parametrize("act", list(ACTS))
def test_a_lease_holds_to_the_last_moment_and_not_a_moment_longer(case: EngineCase, engine: Engine, act: str) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x", reply_to="replies")
    mailbox.send("y", reply_to="replies")
    early, late = mailbox.receive(2, 10)
    case.pass_time(9.999)
    ACTS[act](early)
    case.pass_time(0.001)
    with pytest.raises(ReceiptHandleExpiredError):
        ACTS[act](late)
    assert "y" in [message.body for _ in range(2) for message in mailbox.receive(2)]


def test_extending_counts_from_now(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    message = held(mailbox, case.s(20))
    case.pass_time(5)
    message.extend_visibility(case.s(30))
    case.pass_time(20)  # past the first lease
    assert mailbox.receive() == []
    message.extend_visibility(case.s(30))
    case.pass_time(30)
    assert_every_act_is_refused(message)
    assert held(mailbox, 60).delivery_count == 2


def test_extending_never_shortens_a_lease(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    message = held(mailbox, case.s(30))
    until = message.lease_until
    message.extend_visibility(case.s(5))
    message.extend_visibility(0)
    assert message.lease_until >= until
    case.pass_time(10)
    assert mailbox.receive() == []
    message.acknowledge()


def test_a_lease_of_no_time_is_over_at_once(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send_many([Outgoing("x"), Outgoing("y")])
    got = mailbox.receive(10, 0)
    assert sorted(message.body for message in got) == ["x", "y"]
    for message in got:
        with pytest.raises(ReceiptHandleExpiredError):
            message.acknowledge()
    assert [message.delivery_count for _ in range(2) for message in mailbox.receive(10)] == [2, 2]


def test_the_holder_knows_by_its_own_clock_when_to_stop(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    asked = case.clock.boottime()
    message = held(mailbox, 100)
    assert asked + 99 < message.lease_until <= case.clock.boottime() + 100
    asked = case.clock.boottime()
    message.extend_visibility(1_000)
    assert asked + 999 < message.lease_until <= case.clock.boottime() + 1_000


def test_a_nacked_message_comes_back_at_once_or_when_asked(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    held(mailbox, 60).nack()
    message = held(mailbox, 60)
    assert message.delivery_count == 2
    message.nack(case.s(10))
    assert mailbox.receive() == []
    assert mailbox.depth() == (0, 1, 0)
    case.pass_time(10)
    assert held(mailbox, 60).delivery_count == 3


def test_a_delay_longer_or_shorter_than_the_lease_was_is_kept(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    held(mailbox, case.s(40)).nack(case.s(5))
    case.pass_time(5)
    held(mailbox, case.s(5)).nack(case.s(20))
    case.pass_time(10)
    assert mailbox.receive() == []
    case.pass_time(10)
    assert held(mailbox, 60).delivery_count == 3


def test_releasing_gives_it_back_at_once_and_does_not_count(engine: Engine) -> None:
    mailbox = engine.mailbox("work", max_delivery_count=1)
    mailbox.send("x")
    receipts = set()
    for provisional in (False, True, False):
        message = held(mailbox, 60, provisional=provisional)
        assert message.delivery_count == 1
        receipts.add(message.receipt_handle)
        message.release()
    assert len(receipts) == 3
    assert held(mailbox, 60).delivery_count == 1


def test_started_work_that_is_released_keeps_its_number_and_is_forgiven(engine: Engine) -> None:
    """Its fence may have been written somewhere, so it is not given out again; but it is no try against the limit."""
    mailbox = engine.mailbox("work", max_delivery_count=1)
    mailbox.send("x")
    for provisional in (False, True):
        message = held(mailbox, 60, provisional=provisional)
        message.extend_visibility(60)
        mailbox.adopt(message.ticket).release()
    message = held(mailbox, 60)
    assert (message.delivery_count, message.forgiven, message.attempt) == (3, 2, 1)
    assert message.ticket.forgiven == 2
    message.nack(0)
    assert mailbox.receive() == []
    assert mailbox.dead_letters.count() == 1


def test_a_provisional_delivery_that_never_started_does_not_count(case: EngineCase, engine: Engine) -> None:
    """Interleaving 11: killed between claim and start: back within seconds, and forgiven. How it goes on: test_suspects."""
    mailbox = engine.mailbox("work", max_delivery_count=1)
    mailbox.send("x")
    message = held(mailbox, case.s(2), provisional=True)
    assert message.delivery_count == 1
    case.pass_time(2)
    assert_every_act_is_refused(message)
    message = held(mailbox, 60)
    assert (message.delivery_count, message.attempt) == (2, 1)


def test_a_provisional_delivery_counts_once_it_was_extended(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    message = held(mailbox, case.s(5), provisional=True)
    message.extend_visibility(case.s(10))
    assert message.fence == (0, 1)
    case.pass_time(10)
    assert held(mailbox, 60).fence == (0, 2)


def test_a_provisional_delivery_that_is_nacked_counts(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    held(mailbox, 60, provisional=True).nack()
    assert held(mailbox, 60).delivery_count == 2


def test_a_provisional_delivery_can_be_settled_without_being_extended(engine: Engine) -> None:
    mailbox, replies = engine.mailbox("work"), engine.mailbox("replies")
    mailbox.send("x", reply_to=replies)
    held(mailbox, 60, provisional=True).settle("done")
    assert mailbox.approximate_count() == 0
    assert [reply.body for reply in replies.receive()] == ["done"]


def test_a_checkpoint_is_there_for_the_next_delivery(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    message = held(mailbox, case.s(10))
    message.extend_visibility(case.s(10), b"one")
    message.extend_visibility(case.s(10), b"\x00two\xff")
    message.extend_visibility(case.s(10))  # without one: the last stays
    case.pass_time(10)
    message = held(mailbox, 60)
    assert message.checkpoint == b"\x00two\xff"
    message.extend_visibility(60, b"")
    message.nack()
    assert held(mailbox, 60).checkpoint == b""


def test_many_leases_run_out_in_one_moment_and_all_come_back(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send_many([Outgoing(str(n)) for n in range(200)])
    assert len(mailbox.receive(200, case.s(10))) == 200
    case.pass_time(10)
    assert mailbox.depth() == (200, 0, 0)
    batches = [mailbox.receive(1_000) for _ in range(200)]
    assert {message.body for batch in batches for message in batch} == {str(n) for n in range(200)}
    assert mailbox.receive() == []
