"""Who is told of new messages, and how soon."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenure.engines import Outgoing, bells
from tenure.engines.redis import RedisEngine
from tenure.engines.redis.ear import RedisEar
from tenure.errors import MailboxConnectionError
from tools.servers import FaultProxy, Valkey

Opened = Callable[..., RedisEngine]


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


def test_a_topic_that_nobody_waits_on_any_more_is_not_listened_to(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "IDLE_S", 0.1)
    engine = opened()
    mailbox = engine.mailbox("work")
    assert mailbox.receive(1, 60, 0.05) == []
    bell = engine.bells.bell("m:work")
    until(lambda: not bell.listening)
    poll = Poll(lambda: mailbox.receive(1, 60, 10))
    until(lambda: bell.listening)
    mailbox.send(2)
    assert [message.body for message in poll.result()] == [2]


def test_a_message_sent_while_its_consumer_begins_to_wait_is_not_missed(opened: Opened) -> None:
    """Subscribed first, looked once more afterwards: no fallback look may be needed."""
    sender, taker = opened(), opened()
    for number in range(40):
        mailbox = taker.mailbox(f"race-{number}")  # a new topic, so that each time the listening begins
        poll = Poll(lambda mailbox=mailbox: mailbox.receive(1, 60, 5))
        time.sleep(0.0005 * (number % 8))
        begun = time.monotonic()
        sender.mailbox(f"race-{number}").send(number)
        assert [message.body for message in poll.result()] == [number]
        assert time.monotonic() - begun < 0.9, "found by looking, not by being told"


def test_news_that_came_while_an_answer_was_awaited_are_heard(opened: Opened, valkey_url: str, namespace: str) -> None:
    engine = opened()
    with contextlib.closing(RedisEar(engine.settings)) as ear:
        ear.listen(["m:work"])
        engine.mailbox("work").send(1)
        ear.listen(["m:other", "m:third"])  # reads past the news
        assert ear.heard() == ["m:work"]
        assert ear.heard() == []
        ear.ignore(["m:work"])
        engine.mailbox("work").send(2)
        engine.mailbox("third").send(3)
        until(lambda: ear.heard() == ["m:third"])


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
    assert woken_by(lambda: mailbox.send_many([Outgoing(1, key="k")]) and None) < 1
    message = held()
    message.dead_letter("no")
    assert woken_by(lambda: mailbox.dead_letters.replay(message.id) and None) < 1


def test_closing_the_engine_ends_the_listener(opened: Opened) -> None:
    engine = opened()
    poll = Poll(lambda: engine.mailbox("work").receive(1, 60, 30))
    until(lambda: engine.bells.bell("m:work").listening)
    engine.close()
    assert poll.result() == []
    until(lambda: not [t for t in threading.enumerate() if t.name == "tenure-redis-listener"])


def test_a_follower_of_a_journal_is_told_of_an_append(opened: Opened) -> None:
    journal, other = opened().journal("log"), opened().journal("log")
    poll = Poll(lambda: other.follow(0, 10))
    time.sleep(0.3)
    begun = time.monotonic()
    journal.append([b"a"], epoch=1, expect=0, append_id="1")
    assert [entry.seq for entry in poll.result()] == [1]
    assert time.monotonic() - begun < 0.9


@pytest.mark.slow
def test_a_listener_that_the_network_forgot_is_found_out_and_replaced(
    opened: Opened, proxy: FaultProxy, valkey_server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "IDLE_S", 0.1)
    engine = opened("&timeout=1", url=valkey_server.url_of(0, port=proxy.port))
    mailbox = engine.mailbox("work")

    def receive() -> Any:
        while True:
            with contextlib.suppress(MailboxConnectionError):
                return mailbox.receive(1, 60, 20)

    poll = Poll(receive)
    bell = engine.bells.bell("m:work")
    until(lambda: bell.listening)
    time.sleep(0.35)  # pings go through
    assert bell.listening
    proxy.partition()
    until(lambda: not bell.listening)
    proxy.drop()
    until(lambda: bell.listening)
    opened().mailbox("work").send("x")
    assert poll.result() != []
