"""Who is told of new messages, and how soon."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.waiting import Poll, until

from tenure.engines import bells
from tenure.engines.redis import RedisEngine
from tenure.engines.redis.ear import RedisEar
from tenure.errors import MailboxConnectionError
from tools.servers import FaultProxy, Valkey

Opened = Callable[..., RedisEngine]


def test_news_that_came_while_an_answer_was_awaited_are_heard(opened: Opened, valkey_url: str, namespace: str) -> None:
    engine = opened()
    with contextlib.closing(RedisEar(engine.settings, "nobody", lambda payload: None)) as ear:
        ear.listen(["m:work"])
        engine.mailbox("work").send(1)
        ear.listen(["m:other", "m:third"])  # reads past the news
        assert ear.heard() == ["m:work"]
        assert ear.heard() == []
        ear.ignore(["m:work"])
        engine.mailbox("work").send(2)
        engine.mailbox("third").send(3)
        until(lambda: ear.heard() == ["m:third"])


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
