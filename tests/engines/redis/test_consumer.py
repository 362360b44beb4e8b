"""The cost of an exchange in Redis, counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenure.engines import Engine, Outgoing
from tenure.engines.contracts import Settlement
from tenure.engines.redis import RedisEngine
from tenure.engines.redis.connections import RedisSession

Opened = Callable[..., RedisEngine]


def commands(engine: RedisEngine) -> int:
    """Every command that the server has run, also inside of scripts."""
    with engine.connections.session_of_its_own("counting") as session:
        told = session.ask("INFO", "commandstats").decode()
        calls = (line.split("calls=")[1].split(",")[0] for line in told.splitlines() if "calls=" in line)
        return sum(map(int, calls))


def test_a_group_and_the_next_claims_are_one_round_trip(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a", "b"], ["c"]])
    for name in "abc":
        engine.mailbox(name).send_many([Outgoing(number, reply_to="replies") for number in range(10)])
    found = consumer.exchange(max_messages=15, visibility_timeout=60).messages
    sent: list[Any] = []
    send = RedisSession.send
    monkeypatch.setattr(RedisSession, "send", lambda self, *words: [sent.append(words), send(self, *words)][1])
    more = consumer.exchange([Settlement(each, "done") for each in found], max_messages=15, visibility_timeout=60)
    assert (len(sent), len(more.messages), more.lost) == (1, 15, [])


def cost(engine: RedisEngine, mailboxes: int) -> int:
    consumer = engine.consumer()
    consumer.cover([[f"w{mailboxes}/{number}" for number in range(mailboxes)]])
    work = engine.mailbox(f"w{mailboxes}/{mailboxes - 1}")
    work.send_many([Outgoing(number) for number in range(30)])
    consumer.exchange(visibility_timeout=60)  # the first look brings the names
    before = commands(engine)
    for _ in range(20):
        (message,) = consumer.exchange(visibility_timeout=60).messages
        consumer.exchange([Settlement(message)], max_messages=0)
    return commands(engine) - before


def test_five_hundred_mailboxes_of_which_one_has_work_cost_about_as_much_as_one(opened: Opened) -> None:
    engine = opened()
    one, many = cost(engine, 1), cost(engine, 500)
    assert many < one * 1.3, (one, many)


def test_mailboxes_that_a_process_of_the_first_release_fills_are_found(opened: Opened) -> None:
    """Its scripts do not note where they send to: a look at all mailboxes comes every two seconds."""
    engine = opened()
    names = [f"work/{number}" for number in range(40)]
    consumer = engine.consumer()
    consumer.cover([names])
    assert consumer.exchange().messages == []
    engine.mailbox(names[7]).send("x")
    with engine.connections.session_of_its_own("forgetting") as session:
        session.ask("DEL", f"{engine.settings.prefix}b")
    assert consumer.exchange().messages == []
    (found,) = consumer.exchange(wait_time_seconds=5).messages
    assert found.mailbox == names[7]


def test_a_mailbox_that_holds_nothing_is_not_noted_for_ever(opened: Opened) -> None:
    engine: Engine = opened()
    mailbox = engine.mailbox("replies/1")
    mailbox.send("x")
    mailbox.receive()[0].acknowledge()
    assert mailbox.receive() == []
    with opened().connections.session_of_its_own("looking") as session:
        assert session.ask("SMEMBERS", f"{opened().settings.prefix}b") == []


def test_messages_for_several_mailboxes_are_one_round_trip(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened()
    mailboxes = [engine.mailbox(name) for name in "abc"] * 5
    sent: list[Any] = []
    send = RedisSession.send
    monkeypatch.setattr(RedisSession, "send", lambda self, *words: [sent.append(words), send(self, *words)][1])
    engine.send_across([(mailbox, [Outgoing("x", key=str(place))]) for place, mailbox in enumerate(mailboxes)])
    assert len(sent) == 1
