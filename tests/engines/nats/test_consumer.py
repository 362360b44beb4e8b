"""The cost of an exchange in the log, counted, and what becomes of claims that stand for many mailboxes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.contract.case import Background
from tests.patience import wait_until

from tenure.engines import Outgoing
from tenure.engines.contracts import Settlement
from tenure.engines.nats import NatsEngine, pending_commands, polls
from tenure.engines.nats import commands as c
from tenure.engines.nats import consumer as consumer_file
from tenure.engines.nats import mailbox as mailbox_file
from tenure.engines.nats.ledger import Ledger
from tenure.engines.nats.ledger_records import held_by_mailbox
from tenure.engines.nats.pending_commands import PendingCommands

Opened = Callable[..., NatsEngine]


def appended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns what is appended to the log from now on: for each message the names of its commands."""
    asked: list[str] = []
    publish = PendingCommands._publish

    async def counted(self: PendingCommands, name: str, payload: bytes, reply: str) -> None:
        found = c.decode(payload)
        commands = found.commands if isinstance(found, c.Several) else [found]
        asked.append(" ".join(str(one.__struct_config__.tag) for one in commands))
        await publish(self, name, payload, reply)

    monkeypatch.setattr(PendingCommands, "_publish", counted)
    return asked


def test_a_group_and_the_next_claims_are_one_message_of_the_log(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a", "b"], ["c"]])
    for name in "abc":
        engine.mailbox(name).send_many([Outgoing(number, reply_to="replies") for number in range(10)])
    found = consumer.exchange(max_messages=15, visibility_timeout=60).messages
    asked = appended(monkeypatch)
    group = [Settlement(each, "done") for each in found]
    more = consumer.exchange(group, max_messages=15, visibility_timeout=60, wait_time_seconds=5)
    assert (asked, len(more.messages), more.lost) == (["exchange"], 15, [])


def test_orders_of_mailboxes_that_alternate_are_one_message_of_the_log_and_so_is_what_each_consumer_confirms(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty messages made each standing claim take one message and ask again for the rest (issue 17: 1.47 times the time of equal ones)."""
    engine = opened()
    polls = {}
    for name in ("left", "right"):
        consumer = engine.consumer()
        consumer.cover([[name]])
        polls[name] = Background(
            partial(consumer.exchange, max_messages=30, visibility_timeout=60, wait_time_seconds=30)
        )
    wait_until(lambda: len(engine.log.ledger.consumers.keep(0)) == 2)
    asked = appended(monkeypatch)
    boxes = [engine.mailbox(name) for name in ("left", "right") * 20]
    engine.send_across([(box, [Outgoing(number, key=f"k{number}")]) for number, box in enumerate(boxes)])
    assert [one.body for one in polls["left"].result().messages] == list(range(0, 40, 2))
    assert [one.body for one in polls["right"].result().messages] == list(range(1, 40, 2))
    wait_until(lambda: " ".join(asked).count("confirm") == 2)
    assert asked == ["send-across", "confirm confirm"]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may wait a moment waits for long: a busy machine is no reason to fail."""
    monkeypatch.setattr(pending_commands, "_RIDE_S", 60.0)
    monkeypatch.setattr(pending_commands, "_LONG_RIDE_S", 60.0)
    monkeypatch.setattr(pending_commands, "_AGAIN_S", 60.0)
    monkeypatch.setattr(polls, "LINGER_S", 60.0)
    monkeypatch.setattr(consumer_file, "LINGER_S", 60.0)
    monkeypatch.setattr(mailbox_file, "RECENT_S", 60.0)


def supervisor(engine: NatsEngine) -> tuple[Any, Callable[..., Any]]:
    """Returns a consumer of `work`, and how it waits for more of it."""
    consumer = engine.consumer()
    consumer.cover([["work"]])
    claim = {"max_messages": 9, "visibility_timeout": 60, "wait_time_seconds": 30, "provisional": True}
    return consumer, partial(consumer.exchange, **claim)


def test_a_confirmation_leaves_with_the_next_claims_and_a_withdrawal_with_the_settlement_after_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened()
    consumer, wait = supervisor(engine)
    monkeypatch.setattr(pending_commands, "_RIDE_S", 60.0)
    first = Background(wait)
    wait_until(lambda: len(engine.log.ledger.consumers.keep(0)) == 1)
    asked = appended(monkeypatch)
    engine.mailbox("work").send("x", reply_to="replies")
    (message,) = first.result().messages
    more = Background(wait)
    wait_until(lambda: len(engine.log.ledger.consumers.keep(0)) == 1)
    consumer.wake()
    assert more.result().messages == []
    last = Background(partial(wait, [Settlement(message, "done")]))
    wait_until(lambda: engine.log.ledger.box("replies").ready_count == 1)
    assert asked == ["send", "confirm exchange", "withdraw exchange"]
    engine.mailbox("work").send("y")
    assert [one.body for one in last.result().messages] == ["y"]


def test_work_that_ends_at_once_costs_its_supervisor_one_message(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    """It waits for others before it has settled this one; that claim is never left in the log (decision 0832)."""
    engine = opened()
    consumer, wait = supervisor(engine)
    first = Background(wait)
    wait_until(lambda: len(engine.log.ledger.consumers.keep(0)) == 1)
    asked = appended(monkeypatch)
    engine.mailbox("work").send("x", reply_to="replies")
    (message,) = first.result().messages
    more = Background(wait)
    wait_until(lambda: len(engine.log.lingering) == 1)
    consumer.wake()
    assert more.result().messages == []
    last = Background(partial(wait, [Settlement(message, "done")]))
    wait_until(lambda: engine.log.ledger.box("replies").ready_count == 1)
    assert asked == ["send", "confirm exchange"]
    engine.mailbox("work").send("y")
    assert [one.body for one in last.result().messages] == ["y"]


def test_who_lingers_takes_what_comes_at_once(opened: Opened, patient: None) -> None:
    engine = opened()
    _, wait = supervisor(engine)
    engine.mailbox("work").send("x")
    assert [one.body for one in wait().messages] == ["x"]
    more = Background(wait)
    wait_until(lambda: len(engine.log.lingering) == 1)
    opened().mailbox("work").send("y")
    assert [one.body for one in more.result(20).messages] == ["y"]


def test_a_recorded_result_is_acknowledged_by_the_message_of_the_next_order(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    """What a leader says for a result: its acknowledgement, its next claim and the next order are one message."""
    engine, other = opened(), opened()
    results, work, journal = engine.mailbox("results"), engine.mailbox("work"), engine.journal("jobs")
    take = partial(results.receive, 100, 60, 30, provisional=True)
    results.send("one")
    found = take()
    asked = appended(monkeypatch)
    engine.append_with(journal, [b"r"], epoch=1, expect=0, append_id="a", acknowledges=found)
    waiting = Background(take)
    wait_until(lambda: len(engine.log.riding) == 1)
    assert asked == []
    engine.append_with(journal, [b"s"], epoch=1, expect=1, append_id="b", sends=[(work, [Outgoing("x")])])
    assert asked == ["deliver await-apart deliver"]
    assert other.mailbox("results").depth() == (0, 0, 0)
    other.mailbox("results").send("two")
    assert [one.body for one in waiting.result(20)] == ["two"]


def test_the_acknowledgement_of_a_recorded_result_takes_the_place_of_the_confirmation_of_its_claim(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    """The claim of one result; that of another one, which no entry records, is confirmed as ever (decision 0940)."""
    engine, other = opened(), opened()
    results, more, work = engine.mailbox("results"), engine.mailbox("more"), engine.mailbox("work")
    journal, found = engine.journal("jobs"), []
    for box in (results, more):
        waiting = Background(partial(box.receive, 100, 60, 30, provisional=True))
        wait_until(lambda name=box.name: bool(engine.log.ledger.box(name).stands.keep(0)))
        other.mailbox(box.name).send("one")
        found.append(waiting.result(20))
    asked = appended(monkeypatch)
    engine.append_with(journal, [b"r"], epoch=1, expect=0, append_id="a", acknowledges=found[0])
    engine.append_with(journal, [b"s"], epoch=1, expect=1, append_id="b", sends=[(work, [Outgoing("x")])])
    assert asked == ["confirm deliver deliver"]
    assert other.mailbox("results").depth() == (0, 0, 0)
    assert other.mailbox("more").depth().leased == 1


def test_a_claim_that_waits_for_another_command_takes_what_comes_at_once(opened: Opened, patient: None) -> None:
    engine, other = opened(), opened()
    take = partial(engine.mailbox("results").receive, 100, 60, 30, provisional=True)
    other.mailbox("results").send("one")
    assert [one.body for one in take()] == ["one"]
    waiting = Background(take)
    wait_until(lambda: len(engine.log.riding) == 1)
    other.mailbox("results").send("two")
    assert [one.body for one in waiting.result(20)] == ["two"]


def test_who_asks_what_there_is_sees_what_it_said_itself(opened: Opened, patient: None) -> None:
    engine = opened()
    results, journal = engine.mailbox("results"), engine.journal("jobs")
    results.send("one")
    found = results.receive(1, 60, provisional=True)
    engine.append_with(journal, [b"r"], epoch=1, expect=0, append_id="a", acknowledges=found)
    assert results.depth() == (0, 0, 0)


def test_orders_beyond_one_message_of_the_stream_are_sent_in_parts(opened: Opened) -> None:
    engine = opened()
    left, right = engine.mailbox("left"), engine.mailbox("right")
    sent = engine.send_across([(box, [Outgoing("x" * 200_000)]) for box in (left, right) * 6])
    assert len({one.id for one in sent}) == 12
    assert (left.depth().ready, right.depth().ready) == (6, 6)


def test_a_standing_claim_is_left_once_for_all_mailboxes_and_withdrawn_when_it_is_woken(opened: Opened) -> None:
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([[f"work/{number}" for number in range(100)]])
    poll = Background(lambda: consumer.exchange(wait_time_seconds=30).messages)
    wait_until(lambda: len(engine.log.ledger.consumers.keep(0)) == 1)
    consumer.wake()
    assert poll.result() == []
    wait_until(lambda: engine.log.ledger.consumers.keep(0) == [])
    engine.mailbox("work/7").send("x")
    assert engine.mailbox("work/7").depth() == (1, 0, 0)


def test_a_large_group_is_split_and_every_part_is_settled(opened: Opened) -> None:
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a"]])
    engine.mailbox("a").send_many([Outgoing(number, reply_to="replies") for number in range(6)])
    found = consumer.exchange(max_messages=6, visibility_timeout=60).messages
    engine.mailbox("b").send(1)
    (other,) = engine.mailbox("b").receive(1, 0.1)
    time.sleep(0.2)
    group = [Settlement(each, "x" * 300_000) for each in found]
    done = consumer.exchange([*group[:5], Settlement(other), group[5]], max_messages=0)
    assert [message.id for message in done.lost] == [other.id]
    assert len(engine.mailbox("replies").receive(10)) == 6


def test_the_log_learns_the_mailboxes_again_when_it_has_forgotten_a_consumer(opened: Opened) -> None:
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a"]])
    engine.mailbox("a").send(1)
    engine.log.ledger.consumers.covers.clear()
    assert [message.body for message in consumer.exchange(visibility_timeout=60).messages] == [1]


def apply(ledger: Ledger, *commands: c.AnyCommand) -> list[Any]:
    return [ledger.apply(command, ledger.seq + 1, 1_000.0 + ledger.seq) for command in commands]


def test_the_newest_standing_consumer_that_covers_a_mailbox_gets_what_comes() -> None:
    ledger = Ledger()
    limits = (1, 10.0, None, True, 60.0)
    apply(
        ledger,
        c.Cover("p.1", "p.1", 1, [["a", "b"]]),
        c.Cover("q.1", "q.1", 1, [["b"]]),
        c.ConsumerExchange("p.2", [], "p.1", 1, False, *limits),
        c.ConsumerExchange("q.2", [], "q.1", 1, False, *limits),
    )
    apply(ledger, c.Send("s.1", "b", [c.Item(b"1")]))
    assert [handed.receipt for handed in ledger.handed] == ["q.2"]
    apply(ledger, c.Send("s.2", "b", [c.Item(b"2")]))
    assert [handed.receipt for handed in ledger.handed] == ["p.2"]
    apply(ledger, c.Send("s.3", "b", [c.Item(b"3")]))
    assert ledger.handed == []
    assert apply(ledger, c.ConsumerExchange("p.3", [], "p.1", 0, False, *limits)) == [None]


def test_a_standing_claim_for_several_mailboxes_gets_what_was_sent_first() -> None:
    """Also where its two places could both be filled from one mailbox: work that takes hours must not wait for what came after it."""
    ledger = Ledger()
    apply(
        ledger,
        c.Cover("p.1", "p.1", 1, [["a", "b"]]),
        c.ConsumerExchange("p.2", [], "p.1", 1, False, 2, 10.0, None, True, 60.0),
        c.SendAcross("s.1", [("a", [c.Item(b"0")]), ("b", [c.Item(b"1")]), ("a", [c.Item(b"2"), c.Item(b"3")])]),
    )
    (handed,) = ledger.handed
    assert [(one.box, one.body) for one in handed.deliveries] == [("a", b"0"), ("b", b"1")]
    for box, held in held_by_mailbox("p.2", handed.deliveries).items():
        confirm = c.Confirm(f"p.{3 + 'ab'.index(box)}", box, held, 10.0)
        assert apply(ledger, confirm) == [[held[0][0]]]
    assert [one.body for one in apply(ledger, c.Claim("q.1", "a", 9, 10.0, None, False))[0]] == [b"2", b"3"]


def test_a_consumer_that_did_not_confirm_is_handed_nothing_more_until_it_asks_again() -> None:
    ledger = Ledger()
    apply(
        ledger,
        c.Cover("p.1", "p.1", 1, [["a"]]),
        c.ConsumerExchange("p.2", [], "p.1", 1, False, 1, 10.0, None, True, 600.0),
    )
    apply(
        ledger,
        c.ConsumerExchange("p.3", [], "p.1", 1, False, 1, 10.0, None, True, 600.0),
        c.Send("s.1", "a", [c.Item(b"1")]),
    )
    assert [handed.receipt for handed in ledger.handed] == ["p.3"]
    ledger.apply(c.Look("s.2", "a"), ledger.seq + 1, 1_100.0)
    assert ledger.dropped == ["p.2"]
    assert ledger.box("a").ready_count == 1


def test_a_snapshot_keeps_consumers_and_their_standing_claims() -> None:
    ledger = Ledger()
    apply(
        ledger,
        c.Cover("p.1", "p.1", 3, [["a"], ["b"]]),
        c.ConsumerExchange("p.2", [], "p.1", 3, False, 1, 10.0, None, True, 60.0),
    )
    again = Ledger.restored(ledger.keep())
    apply(again, c.Send("s.1", "b", [c.Item(b"1")]))
    assert [handed.receipt for handed in again.handed] == ["p.2"]
