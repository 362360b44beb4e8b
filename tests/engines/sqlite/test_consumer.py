"""The cost of an exchange in SQLite, counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.engines import Engine, Outgoing, Settlement
from tenure.engines.sqlite import SqliteEngine

Opener = Callable[..., SqliteEngine]


def statements(engine: SqliteEngine, act: Callable[[], Any]) -> list[str]:
    """The statements that the writer runs meanwhile."""
    seen: list[str] = []
    with engine.database.writer as tx:
        connection = tx
    connection.set_trace_callback(seen.append)
    act()
    connection.set_trace_callback(None)
    return seen


def test_a_group_and_the_next_claims_are_one_commit(opened: Opener) -> None:
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a", "b"], ["c"]])
    for name in "abc":
        engine.mailbox(name).send_many([Outgoing(number, reply_to="replies") for number in range(10)])
    found = consumer.exchange(max_messages=15, visibility_timeout=60).messages
    group = [Settlement(each, "done") for each in found]
    seen = statements(engine, lambda: consumer.exchange(group, max_messages=15, visibility_timeout=60))
    assert seen.count("COMMIT") == 1
    assert engine.mailbox("replies").depth().ready == 15


def cost(engine: SqliteEngine, mailboxes: int) -> int:
    consumer = engine.consumer()
    consumer.cover([[f"w{mailboxes}/{number}" for number in range(mailboxes)]])
    engine.mailbox(f"w{mailboxes}/{mailboxes - 1}").send_many([Outgoing(number) for number in range(30)])
    return len(statements(engine, lambda: consumer.exchange(visibility_timeout=60)))


def test_five_hundred_mailboxes_of_which_one_has_work_take_one_statement_more_than_one(opened: Opener) -> None:
    engine = opened()
    assert cost(engine, 500) == cost(engine, 1) + 1


def test_a_lost_ring_for_a_covered_mailbox_is_made_good(opened: Opener) -> None:
    """A sender that died between commit and ring: the file itself is looked at once a second."""
    from tests.contract.case import Background

    engine: Engine = opened(live=True)
    consumer = engine.consumer()
    consumer.cover([["a", "b"]])
    poll = Background(lambda: consumer.exchange(wait_time_seconds=30).messages)
    other: SqliteEngine = opened(live=True)
    other.wakeups.ring = lambda name: None  # type: ignore[method-assign]
    other.mailbox("b").send("x")
    assert [message.body for message in poll.result(10)] == ["x"]


def test_messages_for_several_mailboxes_are_one_commit(opened: Opener) -> None:
    engine = opened()
    mailboxes = [engine.mailbox(name) for name in "abc"] * 5
    batches = [(mailbox, [Outgoing("x", key=str(place))]) for place, mailbox in enumerate(mailboxes)]
    assert statements(engine, lambda: engine.send_across(batches)).count("COMMIT") == 1


def synced(seen: list[str]) -> int:
    """The commits among these statements that wait for the disk."""
    commits, waits = 0, True
    for statement in seen:
        if statement.startswith("PRAGMA synchronous"):
            waits = "full" in statement
        commits += waits and statement == "COMMIT"
    assert waits, "the next transaction would not wait for the disk"
    return commits


def test_a_provisional_claim_waits_for_no_sync(opened: Opener) -> None:
    engine = opened()
    consumer, mailbox = engine.consumer(), engine.mailbox("a")
    consumer.cover([["a"]])
    mailbox.send_many([Outgoing(number, reply_to="replies") for number in range(4)])
    found = list[Any]()

    def claim(**options: Any) -> None:
        found.extend(consumer.exchange(visibility_timeout=60, provisional=True, **options).messages)

    assert synced(statements(engine, claim)) == 0
    assert synced(statements(engine, lambda: mailbox.receive(1, 60, provisional=True))) == 0
    group = [Settlement(each, "done") for each in found]
    assert synced(statements(engine, lambda: claim(settlements=group))) == 1, "what is settled is durable"
    assert synced(statements(engine, lambda: found[-1].extend_visibility(60))) == 1, "and so is a confirmed start"
    assert synced(statements(engine, lambda: mailbox.receive(1, 60))) == 1


def test_a_provisional_claim_of_a_suspect_message_is_synced(opened: Opener, clock: ManualClock) -> None:
    """It is counted, and the count must not be lost with the machine that the message brings down."""
    engine = opened()
    mailbox, consumer = engine.mailbox("a"), engine.consumer()
    consumer.cover([["a"]])
    mailbox.send("x")
    for claim in (
        lambda: mailbox.receive(1, 5, provisional=True),
        lambda: consumer.exchange(visibility_timeout=5, provisional=True),
    ):
        mailbox.receive(1, 5, provisional=True)
        clock.advance(6)
        assert synced(statements(engine, claim)) == 1
        clock.advance(6)


def test_with_synchronous_normal_no_transaction_changes_the_setting(opened: Opener) -> None:
    engine = opened("?synchronous=normal")
    mailbox = engine.mailbox("a")
    mailbox.send("x")
    assert not [one for one in statements(engine, lambda: mailbox.receive(1, 60, provisional=True)) if "PRAGMA" in one]


def test_a_claim_that_fails_leaves_no_transaction_unsynced(opened: Opener) -> None:
    engine = opened()
    with pytest.raises(ZeroDivisionError), engine.database.writer.unsynced:
        raise ZeroDivisionError
    assert engine.database.writer.read("PRAGMA synchronous") == [(2,)]
