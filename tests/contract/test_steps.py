"""The records of finished steps are appended under a live receipt, and belong to the key (RULINGS.md, 18)."""

from __future__ import annotations

import pytest
from tests.contract.case import EngineCase

from tenure.engines import Engine
from tenure.engines.contracts import KEY_MEMORY_S, MAX_BODY_BYTES
from tenure.errors import ConfigurationError, LimitError, ReceiptHandleExpiredError


def test_steps_are_kept_in_the_order_in_which_they_were_appended(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    mailbox.send(2, key="other")
    held, other = mailbox.receive(2)
    assert held.steps() == []
    for number in range(12):
        held.append_step(b"step %d" % number)
    other.append_step(b"\x00\xff")
    assert held.steps() == [b"step %d" % number for number in range(12)]
    assert other.steps() == [b"\x00\xff"]


def test_the_next_delivery_finds_the_steps(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    held = mailbox.receive()[0]
    held.append_step(b"a")
    held.nack()
    again = mailbox.receive()[0]
    again.append_step(b"b")
    assert again.steps() == [b"a", b"b"]


@pytest.mark.parametrize("end", ["replaced", "acknowledged", "withdrawn", "dead", "purged"])
def test_a_higher_generation_finds_the_steps(engine: Engine, end: str) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k", generation=1)
    held = mailbox.receive()[0]
    held.append_step(b"a")
    if end == "acknowledged":
        held.acknowledge()
    elif end == "withdrawn":
        held.release()
        mailbox.withdraw("k", 1)
    elif end == "dead":
        held.dead_letter("no use")
    elif end == "purged":
        mailbox.purge()
    mailbox.send(2, key="k", generation=2)
    assert mailbox.receive()[0].steps() == [b"a"]


def test_a_dead_receipt_appends_nothing_and_reads_nothing(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k", generation=1)
    late = mailbox.receive(1, case.s(2))[0]
    late.append_step(b"a")
    case.pass_time(2)
    with pytest.raises(ReceiptHandleExpiredError):
        late.append_step(b"late")
    with pytest.raises(ReceiptHandleExpiredError):
        late.steps()
    again = mailbox.receive()[0]
    with pytest.raises(ReceiptHandleExpiredError):
        late.append_step(b"later")
    assert again.steps() == [b"a"]
    mailbox.send(2, key="k", generation=2)
    with pytest.raises(ReceiptHandleExpiredError):
        again.append_step(b"replaced")
    assert mailbox.receive()[0].steps() == [b"a"]


def test_appending_holds_the_message_and_counts_a_provisional_delivery(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    held = mailbox.receive(1, case.s(4), provisional=True)[0]
    held.append_step(b"a", case.s(20))
    case.pass_time(6)
    assert held.steps() == [b"a"]
    held.append_step(b"b")  # never shortens a lease
    case.pass_time(3)
    held.nack()
    assert mailbox.receive()[0].delivery_count == 2


def test_a_revoked_key_has_no_steps(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    held = mailbox.receive()[0]
    held.append_step(b"a")
    mailbox.revoke("k")
    with pytest.raises(ReceiptHandleExpiredError):
        held.append_step(b"b")
    with pytest.raises(ReceiptHandleExpiredError):
        held.steps()


@pytest.mark.exact
def test_steps_are_forgotten_with_their_key(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    held = mailbox.receive()[0]
    held.append_step(b"a")
    held.acknowledge()
    case.pass_time(KEY_MEMORY_S + 1)
    mailbox.send(2, key="k")
    assert mailbox.receive()[0].steps() == []


def test_another_engine_object_reads_and_appends_by_the_ticket(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1, key="k")
    held = mailbox.receive()[0]
    held.append_step(b"a")
    adopted = case.again().mailbox("work").adopt(held.ticket)
    adopted.append_step(b"b")
    assert adopted.steps() == held.steps() == [b"a", b"b"]


def test_a_message_without_a_key_and_a_record_that_is_too_long_are_refused(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send(1)
    mailbox.send(2, key="k")
    bare, keyed = mailbox.receive(2)
    with pytest.raises(ConfigurationError, match="key"):
        bare.append_step(b"a")
    with pytest.raises(LimitError):
        keyed.append_step(b"x" * (MAX_BODY_BYTES + 1))
    assert keyed.steps() == []
