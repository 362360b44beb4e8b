"""What a mailbox delivers: all of it, in order, once while it is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.contract.case import EngineCase

from tenure.engines import Engine, Outgoing
from tenure.errors import EngineClosedError, MailboxClosedError, ReceiptHandleExpiredError, SerializationError


@dataclass
class Frame:
    number: int
    tags: list[str]


class Point(msgspec.Struct):
    x: float
    label: str | None = None


def test_messages_come_in_the_order_in_which_they_were_sent(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    for number in range(10):
        mailbox.send(number)
    mailbox.send_many([Outgoing(number) for number in range(10, 20)])
    mailbox.send(20)
    got = [message.body for _ in range(3) for message in mailbox.receive(7)]
    assert got == list(range(21))
    assert mailbox.receive(7) == []


def test_a_message_carries_what_was_sent_and_what_its_consumer_needs(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    before = engine.now()
    sent = mailbox.send({"a": 1})
    (message,) = mailbox.receive()
    assert message.id == sent
    assert message.body == {"a": 1}
    assert message.delivery_count == 1
    assert before - 0.001 <= message.enqueued_at <= engine.now() + 0.001
    assert (message.reply_to, message.checkpoint, message.key, message.failure) == (None, None, None, None)
    assert message.generation == 0
    assert message.fence == (0, 1)
    assert message.receipt_handle


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Frame, Frame(7, ["a", "ü", "\U0001f600"])),
        (Point, Point(0.1)),
        (str, "line\nend\0"),
        (int, 2**53),
        (list[float], [1e-300, -0.5]),
        (dict[str, Any], {"deep": {"list": [None, True, {"x": []}]}}),
        (Frame | None, None),
    ],
    ids=["dataclass", "struct", "text", "int", "floats", "nested", "none"],
)
def test_a_body_arrives_as_it_was_sent(engine: Engine, kind: Any, body: Any) -> None:
    mailbox = engine.mailbox("work", kind)
    mailbox.send(body)
    (message,) = mailbox.receive()
    assert message.body == body
    assert type(message.body) is type(body)


def test_changing_a_body_after_sending_or_receiving_it_changes_nothing(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    body = {"n": [1]}
    mailbox.send(body)
    body["n"].append(2)
    (first,) = mailbox.receive()
    assert first.body == {"n": [1]}
    first.body["n"].append(3)
    first.nack()
    assert mailbox.receive()[0].body == {"n": [1]}


def test_a_body_that_does_not_fit_the_mailbox_is_refused_when_it_is_sent(engine: Engine) -> None:
    mailbox = engine.mailbox("work", int)
    for body in ("seven", object(), Frame):
        with pytest.raises(SerializationError):
            mailbox.send(body)
    with pytest.raises(SerializationError):
        mailbox.send_many([Outgoing(1), Outgoing("two")])
    assert mailbox.approximate_count() == 0


def test_each_message_has_an_id_of_its_own(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    ids = [mailbox.send(n) for n in range(20)] + [
        sent.id for sent in mailbox.send_many([Outgoing(n) for n in range(20)])
    ]
    assert len(set(ids)) == 40
    assert [message.id for message in mailbox.receive(40)] == ids


def test_a_batch_brings_no_more_than_was_asked_for(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send_many([Outgoing(n) for n in range(5)])
    assert [len(mailbox.receive(2)) for _ in range(4)] == [2, 2, 1, 0]
    assert mailbox.send_many([]) == []


def test_a_message_that_is_held_is_not_delivered_to_anybody_else(case: EngineCase, engine: Engine) -> None:
    engine.mailbox("work").send("x")
    assert len(engine.mailbox("work").receive()) == 1
    assert engine.mailbox("work").receive() == []
    assert case.again().mailbox("work").receive() == []


def test_an_acknowledged_message_never_comes_back(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    mailbox.receive(1, case.s(5))[0].acknowledge()
    assert mailbox.approximate_count() == 0
    case.pass_time(6)
    assert mailbox.receive() == []


def test_every_delivery_has_a_new_receipt_and_a_higher_count(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    seen = []
    for _ in range(4):
        (message,) = mailbox.receive(1, 60)
        seen.append((message.delivery_count, message.receipt_handle))
        message.nack()
    (message,) = mailbox.receive(1, case.s(5))
    seen.append((message.delivery_count, message.receipt_handle))
    case.pass_time(5)
    (message,) = mailbox.receive(1, 60)
    seen.append((message.delivery_count, message.receipt_handle))
    assert [count for count, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert len({receipt for _, receipt in seen}) == 6


def test_a_message_that_fails_at_once_does_not_stand_in_the_way_of_the_others(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("bad")
    case.pass_time(1)
    mailbox.send("good")
    case.pass_time(1)
    mailbox.receive()[0].nack()
    assert [message.body for message in mailbox.receive(2)] == ["good", "bad"]


def test_a_delayed_message_waits_and_lets_others_pass(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("late", delay=case.s(10))
    mailbox.send_many([Outgoing("later", delay=case.s(20)), Outgoing("now")])
    assert [message.body for message in mailbox.receive(3)] == ["now"]
    if case.exact:
        case.pass_time(9.999)
        assert mailbox.receive(3) == []
        case.pass_time(0.001)
    else:
        case.pass_time(10)
    assert [message.body for message in mailbox.receive(1)] == ["late"]
    case.pass_time(10)
    assert [message.body for message in mailbox.receive(3)] == ["later"]


def test_depth_tells_what_is_ready_from_what_is_delayed_and_what_is_held(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    assert mailbox.depth() == (0, 0, 0)
    mailbox.send_many([Outgoing(n) for n in range(4)])
    mailbox.send("later", delay=case.s(10))
    mailbox.receive(1, case.s(10))
    assert mailbox.depth() == (3, 1, 1)
    assert mailbox.approximate_count() == 5
    case.pass_time(10)
    assert mailbox.depth() == (5, 0, 0)


def test_purge_removes_everything_and_kills_receipts(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send_many([Outgoing(n) for n in range(3)])
    mailbox.send("later", delay=case.s(5))
    held = mailbox.receive()[0]
    assert mailbox.purge() == 4
    assert mailbox.depth() == (0, 0, 0)
    with pytest.raises(ReceiptHandleExpiredError):
        held.extend_visibility(60)
    case.pass_time(6)
    assert mailbox.receive(10) == []
    mailbox.send("new")
    assert [message.body for message in mailbox.receive(10)] == ["new"]
    assert mailbox.purge() == 1
    assert mailbox.purge() == 0


def test_mailboxes_do_not_mix(engine: Engine) -> None:
    names = ["a", "a/b", "a.b", "a-b", "a_b", "A", "ab"]
    for name in names:
        engine.mailbox(name).send(name)
    for name in names:
        mailbox = engine.mailbox(name)
        assert [message.body for message in mailbox.receive(10)] == [name]
        assert mailbox.approximate_count() == 1


def test_handles_and_engines_on_the_same_data_see_the_same_messages(case: EngineCase, engine: Engine) -> None:
    other = case.again()
    sender, taker = engine.mailbox("work"), other.mailbox("work")
    sent = sender.send("x")
    (message,) = taker.receive()
    assert message.id == sent
    assert sender.depth() == (0, 0, 1)
    message.acknowledge()
    assert sender.depth() == (0, 0, 0)
    assert abs(engine.now() - other.now()) < 1


def test_engine_time_does_not_go_back(case: EngineCase, engine: Engine) -> None:
    times = [engine.now() for _ in range(50)]
    case.pass_time(1)
    times.append(case.again().now())
    assert times == sorted(times)
    assert times[-1] > times[0]
    assert times[0] > 1_600_000_000


def test_a_closed_handle_refuses_and_its_messages_stay(engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    mailbox.close()
    mailbox.close()
    assert mailbox.closed
    for call in (
        lambda: mailbox.send("y"),
        lambda: mailbox.send("y", key="k"),
        lambda: mailbox.send_many([Outgoing("y")]),
        mailbox.receive,
        mailbox.depth,
        mailbox.approximate_count,
        mailbox.purge,
        lambda: mailbox.revoke("k"),
        lambda: mailbox.dead_letters.count(),
    ):
        with pytest.raises(MailboxClosedError):
            call()
    again = engine.mailbox("work")
    assert not again.closed
    assert [message.body for message in again.receive()] == ["x"]


def test_a_closed_engine_refuses_everything(case: EngineCase) -> None:
    engine = case.again()
    mailbox, journal = engine.mailbox("work"), engine.journal("log")
    election, store = engine.election("chief"), engine.store("results")
    mailbox.send("x")
    engine.close()
    engine.close()
    assert mailbox.closed
    for call in (
        lambda: mailbox.send("y"),
        mailbox.receive,
        lambda: journal.append([b"e"], epoch=1, expect=0, append_id="1"),
        journal.read,
        journal.head,
        lambda: election.campaign("a", 10),
        election.current,
        lambda: store.put("k", b"v"),
        lambda: store.get("k"),
        lambda: engine.mailbox("other").send("z"),
    ):
        with pytest.raises((EngineClosedError, MailboxClosedError)):
            call()


def test_another_process_of_ours_may_act_on_a_delivery_by_its_ticket(case: EngineCase, engine: Engine) -> None:
    slot, supervisor = engine.mailbox("work"), case.again().mailbox("work")
    replies = engine.mailbox("replies")
    slot.send("x", key="job/1", generation=3, reply_to=replies)
    (claimed,) = slot.receive(1, case.s(10), provisional=True)
    ticket = msgspec.json.decode(msgspec.json.encode(claimed.ticket), type=type(claimed.ticket))
    adopted = supervisor.adopt(ticket)
    assert (adopted.id, adopted.receipt_handle, adopted.fence) == (claimed.id, claimed.receipt_handle, claimed.fence)
    assert (adopted.key, adopted.reply_to, adopted.body, adopted.checkpoint) == ("job/1", "replies", None, None)
    adopted.extend_visibility(case.s(60), checkpoint=b"half")
    case.pass_time(15)
    adopted.settle("done")
    with pytest.raises(ReceiptHandleExpiredError):
        claimed.acknowledge()
    assert [message.body for message in replies.receive(10)] == ["done"]


def test_a_ticket_of_a_delivery_that_is_over_is_refused_at_its_first_use(case: EngineCase, engine: Engine) -> None:
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    (first,) = mailbox.receive(1, case.s(5))
    case.pass_time(5)
    (second,) = mailbox.receive(1, 60)
    stale, current = case.again().mailbox("work").adopt(first.ticket), case.again().mailbox("work").adopt(second.ticket)
    with pytest.raises(ReceiptHandleExpiredError):
        stale.extend_visibility(60)
    current.acknowledge()
    gone = mailbox.adopt(second.ticket)
    with pytest.raises(ReceiptHandleExpiredError):
        gone.acknowledge()
    assert mailbox.approximate_count() == 0
