"""Who is told of new messages, and who is not: notifications go out only while somebody waits."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tenure.engines import Outgoing, bells
from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres.schema import channel_prefix
from tools.servers import Postgres

Opened = Callable[..., PostgresEngine]


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


class Poll:
    """A long poll in a thread."""

    def __init__(self, receive: Callable[[], Any]) -> None:
        self.got: Any = None
        self._thread = threading.Thread(target=self._run, args=(receive,))
        self._thread.start()

    def _run(self, receive: Callable[[], Any]) -> None:
        self.got = receive()

    def result(self) -> Any:
        self._thread.join(15)
        assert not self._thread.is_alive()
        return self.got


@pytest.fixture
def eavesdropper(postgres_url: str, schema: str) -> Any:
    """Counts the notifications of one topic."""

    def count(topic: str, act: Callable[[], None]) -> int:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            channel = channel_prefix(schema) + hashlib.md5(topic.encode()).hexdigest()
            connection.execute(f'LISTEN "{channel}"')
            act()
            return len(list(connection.notifies(timeout=0.3)))

    return count


def test_a_send_notifies_only_while_somebody_waits(opened: Opened, eavesdropper: Any) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    assert eavesdropper("m/work", lambda: mailbox.send(1)) == 0
    mailbox.receive(1)[0].acknowledge()
    other = opened()
    poll = Poll(lambda: other.mailbox("work").receive(1, 60, 10))
    until(lambda: other.bells.bell("m/work").listening)
    assert eavesdropper("m/work", lambda: mailbox.send(2)) == 1
    assert [message.body for message in poll.result()] == [2]


def test_a_topic_that_nobody_waits_on_any_more_is_not_listened_to(
    opened: Opened, eavesdropper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "IDLE_S", 0.1)
    engine = opened()
    mailbox = engine.mailbox("work")
    assert mailbox.receive(1, 60, 0.05) == []
    bell = engine.bells.bell("m/work")
    until(lambda: not bell.listening)
    assert eavesdropper("m/work", lambda: mailbox.send(1)) == 0
    mailbox.receive(1)[0].acknowledge()
    poll = Poll(lambda: mailbox.receive(1, 60, 10))
    until(lambda: bell.listening)
    mailbox.send(2)
    assert [message.body for message in poll.result()] == [2]


def test_a_message_sent_while_its_consumer_begins_to_wait_is_not_missed(opened: Opened) -> None:
    """The race that the two locks in ring() and listen() are for: no fallback look may be needed."""
    sender, taker = opened(), opened()
    for number in range(40):
        mailbox = taker.mailbox(f"race-{number}")  # a new topic, so that each time the listening begins
        poll = Poll(lambda mailbox=mailbox: mailbox.receive(1, 60, 5))
        time.sleep(0.0005 * (number % 8))
        begun = time.monotonic()
        sender.mailbox(f"race-{number}").send(number)
        assert [message.body for message in poll.result()] == [number]
        assert time.monotonic() - begun < 0.9, "found by looking, not by being told"


def test_everything_that_makes_a_message_visible_earlier_wakes(opened: Opened) -> None:
    engine = opened()
    mailbox = engine.mailbox("work", max_delivery_count=5)
    waiting = opened().mailbox("work")

    def woken_by(act: Callable[[], None]) -> float:
        poll = Poll(lambda: waiting.receive(1, 60, 10))
        time.sleep(0.15)
        begun = time.monotonic()
        act()
        (message,) = poll.result()
        took = time.monotonic() - begun
        message.acknowledge()
        return took

    def held() -> Any:
        mailbox.send("x")
        return mailbox.receive(1, 60)[0]

    assert woken_by(held().nack) < 1
    assert woken_by(held().release) < 1
    assert woken_by(lambda: mailbox.send_many([Outgoing(1)]) and None) < 1
    message = held()
    message.dead_letter("no")
    assert woken_by(lambda: mailbox.dead_letters.replay(message.id) and None) < 1


def test_without_notifications_it_polls_says_so_and_holds_no_extra_connection(
    opened: Opened, postgres_server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    engine = opened("&notify=off&poll=0.05")
    assert "notify=off, so consumers poll every 0.05 s" in caplog.text
    mailbox = engine.mailbox("work")
    poll = Poll(lambda: mailbox.receive(1, 60, 10))
    time.sleep(0.2)
    begun = time.monotonic()
    opened().mailbox("work").send(1)
    assert len(poll.result()) == 1
    assert time.monotonic() - begun < 1
    assert not [thread for thread in threading.enumerate() if thread.name == "tenure-postgres-listener"]
    with psycopg.connect(postgres_server.url) as connection:
        rows = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert rows == (0,)


def test_closing_the_engine_ends_the_listener(opened: Opened) -> None:
    engine = opened()
    poll = Poll(lambda: engine.mailbox("work").receive(1, 60, 30))
    until(lambda: engine.bells.bell("m/work").listening)
    engine.close()
    assert poll.result() == []
    until(lambda: not [t for t in threading.enumerate() if t.name == "tenure-postgres-listener"])


def test_a_follower_of_a_journal_is_told_of_an_append(opened: Opened) -> None:
    journal, other = opened().journal("log"), opened().journal("log")
    poll = Poll(lambda: other.follow(0, 10))
    time.sleep(0.3)
    begun = time.monotonic()
    journal.append([b"a"], epoch=1, expect=0, append_id="1")
    assert [entry.seq for entry in poll.result()] == [1]
    assert time.monotonic() - begun < 0.9
