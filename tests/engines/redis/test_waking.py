"""Who is told of new messages, and how soon."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.waiting import Poll
from tests.patience import wait_until

from tenure.engines import server_wakeups
from tenure.engines.redis import RedisEngine
from tenure.engines.redis.engine import RedisWakeupListener
from tenure.errors import MailboxConnectionError
from tools.servers import FaultProxy, Valkey

Opened = Callable[..., RedisEngine]


def test_news_that_came_while_an_answer_was_awaited_are_heard(opened: Opened, valkey_url: str, namespace: str) -> None:
    engine = opened()
    with contextlib.closing(RedisWakeupListener(engine.connections, "nobody", lambda payload: None)) as listener:
        listener.listen(["m:work"])
        engine.mailbox("work").send(1)
        listener.listen(["m:other", "m:third"])  # reads past the news
        assert listener.heard() == ["m:work"]
        assert listener.heard() == []
        listener.ignore(["m:work"])
        engine.mailbox("work").send(2)
        engine.mailbox("third").send(3)
        wait_until(lambda: listener.heard() == ["m:third"])


@pytest.mark.slow
def test_a_listener_that_the_network_forgot_is_found_out_and_replaced(
    opened: Opened, proxy: FaultProxy, valkey_server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_wakeups, "IDLE_S", 0.1)
    engine = opened("&timeout=1", url=valkey_server.url_of(0, port=proxy.port))
    mailbox = engine.mailbox("work")

    def receive() -> Any:
        while True:
            with contextlib.suppress(MailboxConnectionError):
                return mailbox.receive(1, 60, 20)

    poll = Poll(receive)
    topic = engine.wakeups.topic("m:work")
    wait_until(lambda: topic.listening)
    time.sleep(0.35)  # pings go through
    assert topic.listening
    proxy.partition()
    wait_until(lambda: not topic.listening)
    proxy.drop()
    wait_until(lambda: topic.listening)
    opened().mailbox("work").send("x")
    assert poll.result() != []
