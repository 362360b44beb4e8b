"""What this engine does beyond the contract: forks, limits of its pool, forgetting, metrics, reasons."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from os import _exit
from typing import Any

import prometheus_client
import psycopg
import pytest
from psycopg import sql

from tenure.clock import ManualClock
from tenure.engines import Outgoing
from tenure.engines.contracts import Fence
from tenure.engines.postgres import PostgresEngine
from tenure.errors import (
    EngineBusyError,
    EngineCorruptError,
    KeyRefusedError,
    ReceiptHandleExpiredError,
    StaleFenceError,
)

Opened = Callable[..., PostgresEngine]


def shift(postgres_url: str, schema: str, table: str, column: str, seconds: float) -> None:
    """Let the server believe that time has passed for these rows."""
    move = sql.SQL("UPDATE {} SET {} = {} - make_interval(secs => %s)").format(
        sql.Identifier(schema, table), sql.Identifier(column), sql.Identifier(column)
    )
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(move, (seconds,))


def tidy(engine: PostgresEngine) -> int:
    return int(engine.connections.query("tidy", engine.statements.tidy, (500,))[0][0])


def test_a_key_is_forgotten_a_day_after_its_message_ended_and_not_before(
    opened: Opened, postgres_url: str, schema: str
) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("x", key="k", generation=1)
    shift(postgres_url, schema, "key", "check_at", 86_401)
    tidy(engine)  # it lives: looked at again in a day
    mailbox.receive()[0].acknowledge()
    shift(postgres_url, schema, "key", "check_at", 86_401)
    tidy(engine)  # it ended some time in that day
    with pytest.raises(KeyRefusedError):
        mailbox.send("x", key="k", generation=1)
    shift(postgres_url, schema, "key", "check_at", 86_401)
    tidy(engine)
    mailbox.send("x", key="k", generation=1)


def test_expired_values_leave_and_their_fences_stay_for_a_day(opened: Opened, postgres_url: str, schema: str) -> None:
    engine = opened()
    store = engine.store("results")
    store.put("fenced", b"v", fence=Fence(2, 1), ttl=60)
    store.put("plain", b"v", ttl=60)
    shift(postgres_url, schema, "store", "expires_at", 61)
    assert store.list() == []
    tidy(engine)
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(
            sql.SQL("SELECT key, value FROM {}").format(sql.Identifier(schema, "store"))
        ).fetchall()
    assert rows == [("fenced", None)]
    with pytest.raises(StaleFenceError):
        store.put("fenced", b"old", fence=Fence(1, 9))
    shift(postgres_url, schema, "store", "expires_at", 86_401)
    tidy(engine)
    store.put("fenced", b"old", fence=Fence(1, 9))


def test_tidying_happens_by_itself_in_a_consumer(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened()
    asked: list[str] = []
    query = engine.connections.query
    monkeypatch.setattr(
        engine.connections, "query", lambda operation, *rest: asked.append(operation) or query(operation, *rest)
    )
    engine.mailbox("work").receive()
    assert "tidy" not in asked
    monkeypatch.setattr(engine, "clock", ManualClock(engine.clock.monotonic() + 3_600))
    engine.mailbox("work").receive()
    engine.mailbox("work").receive()
    assert asked.count("tidy") == 1


def test_a_dead_receipt_says_why(opened: Opened) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")

    def reason(end: Callable[[Any], object], lease: float = 60) -> str:
        mailbox.send("x", key="k", generation=int(time.monotonic_ns()))
        (message,) = mailbox.receive(1, lease)
        end(message)
        with pytest.raises(ReceiptHandleExpiredError) as caught:
            message.extend_visibility(5)
        mailbox.purge()
        return caught.value.reason

    assert "settled, replaced, revoked or purged" in reason(lambda message: message.acknowledge())
    assert reason(lambda message: time.sleep(0.06), lease=0.05) == "its lease ran out"
    assert "delivered again" in reason(lambda message: (time.sleep(0.06), mailbox.receive()), lease=0.05)
    assert "given back" in reason(lambda message: message.nack(30))
    assert "dead letter" in reason(lambda message: message.dead_letter("no"))


def test_a_pool_that_is_too_small_says_so(opened: Opened, postgres_url: str, schema: str) -> None:
    engine = opened("&pool=1&timeout=0.3")
    mailbox = engine.mailbox("work")
    mailbox.send("x")
    held = engine.connections.borrow("test", EngineBusyError)
    with pytest.raises(EngineBusyError, match=r"Raise \?pool="):
        mailbox.depth()
    engine.connections.drop(held)
    assert mailbox.depth() == (1, 0, 0)


def test_many_threads_share_few_connections(opened: Opened, postgres_url: str) -> None:
    engine = opened("&pool=2")
    mailbox = engine.mailbox("work")
    threads = [threading.Thread(target=lambda: [mailbox.send(n) for n in range(20)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mailbox.approximate_count() == 200
    assert engine.connections.opened <= 2


def test_a_forked_child_opens_its_own_connections_and_leaves_the_parents_alone(opened: Opened) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send("parent")
    assert mailbox.receive(1, 60, 0.05) != []
    child = os.fork()
    if child == 0:
        code = 1
        try:
            mailbox.send("child")
            code = 0 if [message.body for message in mailbox.receive(1, 60, 5)] == ["child"] else 2
        finally:
            _exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    mailbox.send("after")
    assert [message.body for message in mailbox.receive(1, 60, 5)] == ["after"]


def test_operations_and_errors_are_counted(opened: Opened) -> None:
    registry = prometheus_client.REGISTRY
    labels = {"engine": "postgres", "operation": "send_keyed"}
    before = registry.get_sample_value("tenure_engine_operation_seconds_count", labels) or 0
    mailbox = opened().mailbox("work")
    mailbox.send("x", key="k")
    assert registry.get_sample_value("tenure_engine_operation_seconds_count", labels) == before + 1


def test_a_schema_that_was_dropped_under_us_is_told_as_such(opened: Opened, postgres_url: str, schema: str) -> None:
    mailbox = opened().mailbox("work")
    mailbox.send("x")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    with pytest.raises(EngineCorruptError, match="schema is gone"):
        mailbox.depth()


def test_senders_who_replace_each_others_keys_in_opposite_order_all_get_through(opened: Opened) -> None:
    """Without an order between batches this is a deadlock, also while the keys are new and have no row to lock."""
    mailbox = opened().mailbox("work")
    failed: list[BaseException] = []

    def send(keys: list[str], generations: range) -> None:
        try:
            for generation in generations:
                mailbox.send_many([Outgoing("x", key=key, generation=generation) for key in keys])
        except BaseException as error:
            failed.append(error)

    keys = [f"k{n}" for n in range(30)]
    threads = [
        threading.Thread(target=send, args=(keys, range(0, 12, 2))),
        threading.Thread(target=send, args=(keys[::-1], range(1, 13, 2))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert mailbox.approximate_count() == 30
