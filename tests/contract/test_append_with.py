"""One call that appends to a journal, sends messages and acknowledges deliveries: all of it or nothing, where the engine can."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.contract.case import Background, EngineCase

from tenure.engines import Engine, Outgoing
from tenure.errors import ConfigurationError, LimitError, SequenceConflictError, SerializationError, StaleEpochError

LONG = 60.0  # a poll that ends much sooner was woken
SOON = 50.0  # generous: the machine may be busy


def held(engine: Engine, *bodies: Any) -> list[Any]:
    """Deliveries of the mailbox `results`."""
    results = engine.mailbox("results")
    results.send_many([Outgoing(body) for body in bodies])
    return results.receive(len(bodies), 60, provisional=True)


def test_an_entry_brings_its_messages_and_acknowledges_its_deliveries(case: EngineCase, engine: Engine) -> None:
    journal, left, right, deliveries = (
        engine.journal("log"),
        engine.mailbox("left"),
        engine.mailbox("right"),
        held(engine, 1, 2),
    )
    sends = [
        (left, [Outgoing("a", key="job", generation=1, reply_to="results")]),
        (right, [Outgoing("b"), Outgoing("c")]),
    ]
    done = engine.append_with(
        journal, [b"one", b"two"], epoch=3, expect=0, append_id="x", sends=sends, acknowledges=deliveries
    )
    assert (done.seq, [one.refused for one in done.sent], list(done.lost)) == (1, [None] * 3, [])
    other = case.again()
    (entry,) = other.journal("log").read()
    assert (entry.seq, entry.epoch, entry.append_id, entry.events) == (1, 3, "x", (b"one", b"two"))
    (a,), found = other.mailbox("left").receive(5), other.mailbox("right").receive(5)
    assert (a.body, a.key, a.generation, a.reply_to) == ("a", "job", 1, "results")
    assert [one.body for one in found] == ["b", "c"]
    assert [a.id, *(one.id for one in found)] == [one.id for one in done.sent]
    assert engine.mailbox("results").approximate_count() == 0
    assert journal.find("x", after=0) == 1


@pytest.mark.parametrize("wrong", ["epoch", "expect"])
def test_an_entry_that_is_refused_sends_and_acknowledges_nothing(engine: Engine, wrong: str) -> None:
    journal, work, deliveries = engine.journal("log"), engine.mailbox("work"), held(engine, 1)
    journal.append([b"newer"], epoch=5, expect=0, append_id="first")
    place = {"epoch": 4, "expect": 1} if wrong == "epoch" else {"epoch": 5, "expect": 0}
    with pytest.raises(StaleEpochError if wrong == "epoch" else SequenceConflictError):
        engine.append_with(
            journal, [b"x"], **place, append_id="late", sends=[(work, [Outgoing("x")])], acknowledges=deliveries
        )
    assert (journal.head(), work.approximate_count()) == ((1, 5), 0)
    deliveries[0].acknowledge()  # still held


def test_neither_a_refused_key_nor_a_dead_receipt_stops_the_rest(engine: Engine) -> None:
    journal, work, deliveries = engine.journal("log"), engine.mailbox("work"), held(engine, 1, 2, 3)
    work.send("newer", key="job", generation=7)
    deliveries[1].acknowledge()
    sends = [(work, [Outgoing("older", key="job", generation=6), Outgoing("other", key="else")])]
    done = engine.append_with(journal, [b"x"], epoch=1, expect=0, append_id="a", sends=sends, acknowledges=deliveries)
    assert [one.refused is None for one in done.sent] == [False, True]
    assert [one.id for one in done.lost] == [deliveries[1].id]
    assert sorted(one.body for one in work.receive(5)) == ["newer", "other"]
    assert (done.seq, engine.mailbox("results").approximate_count()) == (1, 0)


def test_what_cannot_be_sent_or_is_another_engines_leaves_everything_as_it_is(case: EngineCase, engine: Engine) -> None:
    if not engine.appends_in_one_step:
        pytest.skip(f"{case.name} appends in several steps")
    journal, numbers, deliveries = engine.journal("log"), engine.mailbox("numbers", int), held(engine, 1)
    with pytest.raises(SerializationError):
        engine.append_with(
            journal,
            [b"x"],
            epoch=1,
            expect=0,
            append_id="a",
            sends=[(numbers, [Outgoing("x")])],
            acknowledges=deliveries,
        )
    with pytest.raises(LimitError):
        engine.append_with(journal, [], epoch=1, expect=0, append_id="a", acknowledges=deliveries)
    with Engine.open("memory://") as other:
        for strange in (other.journal("log"), journal):
            sends = [(other.mailbox("work"), [Outgoing(1)])] if strange is journal else []
            with pytest.raises(ConfigurationError):
                engine.append_with(strange, [b"x"], epoch=1, expect=0, append_id="a", sends=sends)
    assert (journal.head(), numbers.approximate_count()) == ((0, 0), 0)
    deliveries[0].acknowledge()


def test_it_wakes_who_waits_for_the_messages_and_who_follows_the_journal(case: EngineCase, live: Engine) -> None:
    other = case.live()
    waits = Background(lambda: other.mailbox("work").receive(1, 60, LONG))
    follows = Background(lambda: other.journal("log").follow(0, LONG))
    time.sleep(0.1)  # for them to begin
    sends = [(live.mailbox("work"), [Outgoing("x")])]
    live.append_with(live.journal("log"), [b"x"], epoch=1, expect=0, append_id="a", sends=sends)
    assert [one.body for one in waits.result(SOON)] == ["x"]
    assert [entry.append_id for entry in follows.result(SOON)] == ["a"]
