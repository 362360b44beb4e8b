"""Other versions of PostgreSQL than the one that the whole suite runs on, and a transaction pooler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tenure.engines import Engine, Outgoing
from tenure.engines.contracts import Fence, Level
from tools.servers import PgBouncer, Postgres

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", [14, 15])
def test_every_contract_works_on_the_versions_in_between(version: int, own_server: Callable[[Any], Any]) -> None:
    """The conformance suite runs on the oldest, 13, and on the newest."""
    server = own_server(Postgres(version=version))
    with Engine.open(server.url) as engine, Engine.open(server.url) as other:
        assert f"PostgreSQL {version}." in " ".join(found.what for found in engine.check() if found.level is Level.OK)
        mailbox, replies = engine.mailbox("work", max_delivery_count=3), engine.mailbox("replies")
        mailbox.send_many([Outgoing(1, key="a"), Outgoing(2, reply_to="replies"), Outgoing(3)])
        one, two, three = other.mailbox("work").receive(5, 60, 5, provisional=True)
        assert one.fence == Fence(0, 1)
        one.extend_visibility(60, b"half")
        two.settle("done")
        three.dead_letter("no")
        assert mailbox.send(1, key="a", generation=1)
        assert [(message.body, message.checkpoint) for message in mailbox.receive(5)] == [(1, b"half")]
        assert [message.body for message in replies.receive()] == ["done"]
        assert mailbox.dead_letters.count() == 1
        term = engine.election("leader").campaign("a", 30)
        assert term is not None
        assert engine.journal("log").append([b"x"], epoch=term.epoch, expect=0, append_id="1") == 1
        assert [entry.events for entry in other.journal("log").follow(0, 5)] == [(b"x",)]
        engine.store("files").put("k", b"v", ttl=60)
        assert other.store("files").get("k") == b"v"


def test_behind_a_transaction_pooler_each_statement_may_meet_another_session(pooler: PgBouncer) -> None:
    """That the pooler of the conformance suite really hands them round, and that our statements do not mind."""
    url = pooler.url
    with Engine.open(f"{url}?schema=round&notify=off&poll=0.02") as engine:
        mailbox, taken, lock = engine.mailbox("work"), [], threading.Lock()

        def work(number: int) -> None:
            for part in range(25):
                mailbox.send([number, part])
            while messages := mailbox.receive(3, 60):
                with lock:
                    taken.extend(tuple(message.body) for message in messages)
                assert mailbox.acknowledge_many(messages) == []

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while messages := mailbox.receive(100, 60):  # what was sent after the others had stopped looking
            taken.extend(tuple(message.body) for message in messages)
            mailbox.acknowledge_many(messages)
        assert sorted(taken) == [(number, part) for number in range(8) for part in range(25)]
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        asked = [connection.execute("SELECT pg_backend_pid()").fetchone() for _ in range(30)]
    assert len(set(asked)) > 1
