"""Who is told of new messages. Nobody looks by himself here, so whatever is found was told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from os import _exit
from typing import Any

import pytest
from tests.engines.waiting import Poll
from tests.patience import wait_until

from tenure.engines import Outgoing, server_wakeups

Opened = Callable[..., Any]


@pytest.fixture(autouse=True)
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_wakeups, "LOOK_S", 600.0)
    monkeypatch.setattr(server_wakeups, "TRUST_S", 600.0)


def test_a_topic_that_nobody_waits_on_any_more_is_not_listened_to(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_wakeups, "IDLE_S", 0.1)
    engine = opened()
    mailbox = engine.mailbox("work")
    assert mailbox.receive(1, 60, 0.05) == []
    topic = mailbox.polls.topic
    wait_until(lambda: not topic.listening)
    poll = Poll(lambda: mailbox.receive(1, 60, 60))
    wait_until(lambda: topic.listening)
    mailbox.send(2)
    assert [message.body for message in poll.result()] == [2]


def test_a_message_sent_while_its_consumer_begins_to_wait_is_not_missed(opened: Opened) -> None:
    """Listening first, looking once more afterwards: the race that they are in this order for."""
    sender, taker = opened(), opened()
    for number in range(40):
        mailbox = taker.mailbox(f"race-{number}")  # a new topic, so that each time the listening begins
        poll = Poll(lambda mailbox=mailbox: mailbox.receive(1, 60, 60))
        time.sleep(0.0005 * (number % 8))
        sender.mailbox(f"race-{number}").send(number)
        assert [message.body for message in poll.result()] == [number]


def test_everything_that_makes_a_message_visible_earlier_wakes(opened: Opened) -> None:
    engine = opened()
    mailbox = engine.mailbox("work", max_delivery_count=5)
    waiting = opened().mailbox("work")

    def wakes(act: Callable[[], object]) -> None:
        poll = Poll(lambda: waiting.receive(1, 60, 60))
        wait_until(lambda: waiting.polls.topic.listening and waiting.polls.topic.waiting == 1)
        time.sleep(0.1)  # it looks once more after it began to listen
        act()
        (message,) = poll.result()
        message.acknowledge()

    def held() -> Any:
        mailbox.send("x")
        return mailbox.receive(1, 60)[0]

    wakes(held().nack)
    wakes(held().release)
    wakes(lambda: mailbox.send_many([Outgoing(1)]))
    wakes(lambda: mailbox.send_many([Outgoing(1, key="k")]))
    message = held()
    message.dead_letter("no")
    wakes(lambda: mailbox.dead_letters.replay(message.id))


def test_closing_the_engine_ends_the_listener(opened: Opened) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    poll = Poll(lambda: mailbox.receive(1, 60, 60))
    wait_until(lambda: mailbox.polls.topic.listening)
    engine.close()
    assert poll.result() == []
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.endswith("-listener")])


def test_a_follower_of_a_journal_is_told_of_an_append(opened: Opened) -> None:
    journal, other = opened().journal("log"), opened().journal("log")
    poll = Poll(lambda: other.follow(0, 60))
    wait_until(lambda: other.polls.topic.listening)
    time.sleep(0.1)
    journal.append([b"a"], epoch=1, expect=0, append_id="1")
    assert [entry.seq for entry in poll.result()] == [1]


def test_a_forked_child_is_told_too(opened: Opened) -> None:
    """Its parent's listener does not run in it, and what the parent waited for says nothing of the child's waiters."""
    mailbox = opened().mailbox("work")
    parent = Poll(lambda: mailbox.receive(1, 60, 60))
    wait_until(lambda: mailbox.polls.topic.listening)
    mailbox.wake()
    assert parent.result() == []
    child = os.fork()
    if child == 0:
        code = 1
        try:
            poll = Poll(lambda: mailbox.receive(1, 60, 60))
            wait_until(lambda: mailbox.polls.topic.waiting == 1 and mailbox.polls.topic.listening)
            time.sleep(0.1)
            mailbox.send("x")
            code = 0 if [message.body for message in poll.result()] == ["x"] else 2
        finally:
            _exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
