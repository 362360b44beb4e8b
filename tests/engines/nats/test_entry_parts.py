"""The messages that a journal's entry brings are sent once, whoever dies or loses an answer between the entry and them (decision 0831)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import nats
import pytest
from tests.patience import wait_until

from tenure.engines import Outgoing
from tenure.engines.nats import NatsEngine
from tenure.engines.nats import commands as c
from tenure.engines.nats.command_log import CommandLog
from tenure.engines.nats.ledger import Ledger
from tenure.errors import EngineUnavailableError, LimitError

Opened = Callable[..., NatsEngine]


def deliver(name: str, seq: int, journal: str = "jobs@1", ended: list[tuple[str, str, str]] | None = None) -> c.Deliver:
    return c.Deliver(name, journal, seq, [("a", [c.Item(b"1")]), ("b", [c.Item(b"2"), c.Item(b"3")])], ended or [])


def ready(ledger: Ledger) -> tuple[int, int]:
    return ledger.box("a").ready_count, ledger.box("b").ready_count


def test_the_parts_of_an_entry_are_done_once_also_over_a_snapshot() -> None:
    ledger = Ledger()
    ledger.apply(c.Send("s.1", "done", [c.Item(b"x")]), 1, 100.0)
    (held,) = ledger.apply(c.ClaimApart("s.2", "done", 1, 9.0, None, True), 2, 100.0)
    ended = [("done", held.id, "s.2"), ("done", "other", "s.2")]
    told = ledger.apply(deliver("p.1", 7, ended=ended), 3, 100.0)
    assert ([refused for _, refused in told.sent], told.lost) == ([None] * 3, [1])
    assert (ready(ledger), len(ledger.box("done").records)) == ((1, 2), 0)
    for each in (ledger, Ledger.restored(ledger.keep())):
        assert each.apply(deliver("q.1", 7), 4, 100.0) is None  # another process found the same entry
        assert each.apply(deliver("q.2", 6), 5, 100.0) is None
        assert ready(each) == (1, 2)
        assert each.apply(deliver("q.3", 1, "jobs@2"), 6, 100.0) is not None  # the journal was made anew
        assert each.apply(deliver("q.4", 9), 7, 100.0) is not None
        assert ready(each) == (3, 6)


class Outage:
    """Loses what one engine would do about the messages of entries, until it is over."""

    def __init__(self, engine: NatsEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: list[c.Deliver] = []
        self.over = False
        ask = CommandLog.ask

        async def failing(log: CommandLog, command: Any, **how: Any) -> Any:
            if isinstance(command, c.Deliver) and log is engine.log and not self.over:
                self.lost.append(command)
                raise EngineUnavailableError("no answer")
            return await ask(log, command, **how)

        monkeypatch.setattr(CommandLog, "ask", failing)


def append(engine: NatsEngine, expect: int, epoch: int = 1, body: str = "x", **more: Any) -> Any:
    sends = [(engine.mailbox("work"), [Outgoing(body, key=f"k{expect}")])]
    journal = engine.journal("jobs")
    return engine.append_with(journal, [b"e"], epoch=epoch, expect=expect, append_id=f"a{expect}", sends=sends, **more)


def test_who_leads_next_sends_what_the_entries_of_a_dead_leader_bring(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, leading = opened(), opened()
    append(dying, 0, body="first")
    (result,) = dying.mailbox("work").receive(1, 600)
    outage = Outage(dying, monkeypatch)
    with pytest.raises(EngineUnavailableError):
        append(dying, 1, body="second", acknowledges=[result])
    assert leading.mailbox("work").depth() == (0, 0, 1)
    journal = leading.journal("jobs")
    assert journal.head() == (2, 1)  # as a leader that takes over asks: to know the head is not to have written it
    assert journal.append([b"lead"], epoch=2, expect=2, append_id="lead") == 3
    assert leading.mailbox("work").depth() == (1, 0, 0)
    append(leading, 3, epoch=2, body="third")
    outage.over = True  # it was not dead but slow: what it still says is known already
    dying.call("test", dying.log.ask, outage.lost[0])
    assert [one.body for one in leading.mailbox("work").receive(9)] == ["second", "third"]


def test_messages_whose_outcome_is_unknown_wait_for_no_other_append(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened()
    outage = Outage(engine, monkeypatch)
    with pytest.raises(EngineUnavailableError):
        append(engine, 0)
    assert engine.journal("jobs").find("a0", after=0) == 1  # the entry is written, so its messages must come
    outage.over = True
    (message,) = engine.mailbox("work").receive(1, 60, 20)
    assert message.body == "x"


def test_entries_keep_the_order_of_their_messages_over_a_lost_answer(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened()
    outage = Outage(engine, monkeypatch)
    journal = engine.journal("jobs")
    sends = [[(engine.mailbox("work"), [Outgoing(number)])] for number in range(2)]
    with pytest.raises(EngineUnavailableError):
        engine.append_with(journal, [b"e"], epoch=1, expect=0, append_id="a", sends=sends[0])
    outage.over = True
    engine.append_with(journal, [b"e"], epoch=1, expect=1, append_id="b", sends=sends[1])
    assert [one.body for one in engine.mailbox("work").receive(9)] == [0, 1]


def test_an_append_that_is_too_large_with_its_messages_leaves_everything_as_it_is(opened: Opened) -> None:
    engine = opened()
    journal = engine.journal("jobs")
    sends = [(engine.mailbox("work"), [Outgoing("x" * 300_000)] * 3)]
    with pytest.raises(LimitError):
        engine.append_with(journal, [b"e" * 200_000], epoch=1, expect=0, append_id="a", sends=sends)
    assert (journal.head(), engine.mailbox("work").depth()) == ((0, 0), (0, 0, 0))


def test_a_journal_that_was_removed_and_made_anew_sends_again(opened: Opened, nats_url: str, namespace: str) -> None:
    engine = opened()
    for number in range(3):
        append(engine, number)

    async def remove() -> None:
        client = await nats.connect(nats_url)
        await client.jsm().delete_stream(f"{namespace}_j_jobs")
        await client.close()

    asyncio.run(remove())
    other = opened()
    append(other, 0, body="new")
    wait_until(lambda: other.mailbox("work").depth().ready == 3)  # a key may come once: `new` is refused
    other.append_with(
        other.journal("jobs"),
        [b"e"],
        epoch=1,
        expect=1,
        append_id="b",
        sends=[(other.mailbox("work"), [Outgoing("y")])],
    )
    assert other.mailbox("work").depth().ready == 4
