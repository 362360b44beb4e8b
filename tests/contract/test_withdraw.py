"""Work that nobody holds can be taken back by its key, and sent again later (RULINGS.md, 15)."""

from __future__ import annotations

import pytest
from tests.contract.case import EngineCase

from tenure.engines import Engine
from tenure.engines.contracts import Withdrawal
from tenure.errors import KeyRefusedError, LimitError

GONE, LEASED, ABSENT = Withdrawal.WITHDRAWN, Withdrawal.LEASED, Withdrawal.ABSENT


@pytest.mark.parametrize("delay", [0, 5])
def test_a_ready_or_delayed_message_is_withdrawn(case: EngineCase, engine: Engine, delay: float) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k", generation=3, delay=case.s(delay))
    mailbox.send(2, key="other")
    assert mailbox.withdraw("k", 3) is GONE
    assert mailbox.depth() == (1, 0, 0)
    assert mailbox.withdraw("k", 3) is ABSENT
    case.pass_time(delay)
    assert [message.body for message in mailbox.receive(5)] == [2]


def test_a_leased_message_is_not_withdrawn_until_its_lease_ran_out(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    (held,) = mailbox.receive(1, case.s(3))
    assert mailbox.withdraw("k", 0) is LEASED
    held.extend_visibility(case.s(3))
    assert mailbox.withdraw("k", 9) is LEASED
    case.pass_time(3)
    assert mailbox.withdraw("k", 0) is GONE
    assert mailbox.receive(1) == []


def test_what_was_given_back_is_withdrawn(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    mailbox.receive()[0].release()
    assert mailbox.withdraw("k", 0) is GONE


def test_a_message_of_a_higher_generation_stays(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k", generation=4)
    assert mailbox.withdraw("k", 3) is ABSENT
    assert mailbox.withdraw("k", 7) is GONE


def test_there_is_nothing_to_withdraw_where_the_key_is_unknown_ended_or_revoked(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    assert mailbox.withdraw("k", 9) is ABSENT
    mailbox.send(1, key="k")
    mailbox.receive()[0].acknowledge()
    assert mailbox.withdraw("k", 9) is ABSENT
    mailbox.revoke("k")
    assert mailbox.withdraw("k", 9) is ABSENT
    engine.mailbox("elsewhere").send(1, key="k")
    assert mailbox.withdraw("k", 9) is ABSENT


def test_no_tombstone_is_left_and_the_same_generation_is_refused(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k", generation=2)
    mailbox.withdraw("k", 9)
    with pytest.raises(KeyRefusedError):
        mailbox.send(1, key="k", generation=2)
    mailbox.send(2, key="k", generation=3)
    assert [message.body for message in mailbox.receive(5)] == [2]


def test_the_next_generation_inherits_the_checkpoint_of_what_was_withdrawn(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k", generation=1)
    (first,) = mailbox.receive()
    first.extend_visibility(60, b"saved")
    first.nack()
    assert mailbox.withdraw("k", 1) is GONE
    mailbox.send(2, key="k", generation=2)
    (second,) = mailbox.receive()
    assert (second.body, second.checkpoint, second.delivery_count) == (2, b"saved", 1)


def test_a_dead_letter_is_not_withdrawn_and_can_be_replayed_before_a_newer_one(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    mailbox.receive()[0].dead_letter("no")
    assert mailbox.withdraw("k", 9) is ABSENT
    [letter] = mailbox.dead_letters.list()
    assert mailbox.dead_letters.replay(letter.id)
    assert mailbox.withdraw("k", 9) is GONE


def test_bad_arguments_are_refused(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    with pytest.raises(LimitError):
        mailbox.withdraw("", 0)
    with pytest.raises(LimitError):
        mailbox.withdraw("k", -1)
