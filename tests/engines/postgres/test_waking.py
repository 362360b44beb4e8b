"""Who is told of new messages, and who is not: notifications go out only while somebody waits."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.engines.waiting import Poll
from tests.patience import wait_until

from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres.schema import channel_prefix
from tools.servers import Postgres

Opened = Callable[..., PostgresEngine]


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
    poll = Poll(lambda: other.mailbox("work").receive(1, 60, 60))
    wait_until(lambda: other.wakeups.topic("m/work").listening)
    assert eavesdropper("m/work", lambda: mailbox.send(2)) == 1
    assert [message.body for message in poll.result()] == [2]


def test_a_batch_that_ends_before_a_suspect_message_tells_who_waits(
    opened: Opened, eavesdropper: Any, postgres_url: str, schema: str
) -> None:
    """It has locked what lies behind, until it commits: who looked meanwhile passed over that, and would not look again."""
    mailbox = opened().mailbox("work")
    mailbox.send("suspect")
    assert len(mailbox.receive(1, 0.3)) == 1
    mailbox.send("first")
    time.sleep(0.4)
    got: list[Any] = []
    with psycopg.connect(postgres_url, autocommit=True) as waiter:
        waiter.execute(sql.SQL("SELECT {}.listen('m/work')").format(sql.Identifier(schema)))
        assert eavesdropper("m/work", lambda: got.extend(mailbox.receive(10))) == 1
        assert eavesdropper("m/work", lambda: got.extend(mailbox.receive(10))) == 0
    assert [(message.body, message.suspect) for message in got] == [("first", False), ("suspect", True)]


def test_without_notifications_it_polls_says_so_and_holds_no_extra_connection(
    opened: Opened, postgres_server: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    engine = opened("&notify=off&poll=0.05")
    assert "notify=off, so consumers poll every 0.05 s" in caplog.text
    mailbox = engine.mailbox("work")
    poll = Poll(lambda: mailbox.receive(1, 60, 60))
    time.sleep(0.2)
    opened().mailbox("work").send(1)
    assert len(poll.result()) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "tenure-postgres-listener"]
    with psycopg.connect(postgres_server.url) as connection:
        rows = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert rows == (0,)
