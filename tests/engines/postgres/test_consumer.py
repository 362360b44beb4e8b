"""The cost of an exchange in PostgreSQL, counted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tenure.engines import Outgoing
from tenure.engines.contracts import Settlement
from tenure.engines.postgres import PostgresEngine
from tenure.engines.postgres.connections import PostgresConnections

Opened = Callable[..., PostgresEngine]


def transactions(url: str) -> int:
    """How many transactions have written so far, this question included."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT txid_current()").fetchone()
        assert row is not None
        return int(row[0])


def test_a_group_and_the_next_claims_are_one_round_trip_and_one_commit(
    opened: Opened, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a", "b"], ["c"]])
    for name in "abc":
        engine.mailbox(name).send_many([Outgoing(number, reply_to="replies") for number in range(10)])
    found = consumer.exchange(max_messages=15, visibility_timeout=60).messages
    asked: list[str] = []
    query = PostgresConnections.query

    def counted(self: PostgresConnections, operation: str, *values: Any) -> Any:
        asked.append(operation)
        return query(self, operation, *values)

    monkeypatch.setattr(PostgresConnections, "query", counted)
    before = transactions(postgres_url)
    group = [Settlement(each, "done") for each in found]
    more = consumer.exchange(group, max_messages=15, visibility_timeout=60, provisional=True)
    assert (asked, len(more.messages), more.lost) == (["exchange"], 15, [])
    assert transactions(postgres_url) - before == 2


def test_what_was_settled_is_durable_although_a_provisional_claim_is_not(opened: Opened, postgres_url: str) -> None:
    """The claim turns `synchronous_commit` off for its transaction, and the settlements turn it on again."""
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a"]])
    engine.mailbox("a").send_many([Outgoing(1), Outgoing(2)])
    (first,) = consumer.exchange(visibility_timeout=60, provisional=True).messages
    settings: list[Any] = []
    with psycopg.connect(postgres_url, autocommit=False) as connection:
        for ids, tokens in (([first.ticket.id], [int(first.receipt_handle.partition(".")[2])]), ([], [])):
            connection.execute(
                f'SELECT count(*) FROM "{engine.settings.schema}".exchange(%s::bigint[], %s::bigint[], %s::text[], %s::bytea[], '
                "%s::text, %s::text[], %s::float8[], 1, 60, 77, 0::smallint, NULL, false)",
                (
                    [int(each) for each in ids],
                    tokens,
                    [None] * len(ids),
                    [None] * len(ids),
                    "a,b",
                    [],
                    [],
                ),
            )
            settings.append(connection.execute("SHOW synchronous_commit").fetchone())
            connection.rollback()
    assert settings == [("on",), ("off",)]


def test_five_hundred_mailboxes_take_few_locks(opened: Opened, postgres_url: str) -> None:
    """Each topic that is listened to is a lock of the server, which has some thousands: consumers listen to 64 buckets."""
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([[f"work/{number}" for number in range(500)]])
    assert consumer.exchange(wait_time_seconds=0.3).messages == []
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    assert row is not None
    assert 1 <= row[0] <= 70


def test_what_is_given_back_has_its_old_place_also_behind_later_claims(opened: Opened) -> None:
    """A claim begins where the last one found something, unless something was put before it."""
    engine = opened()
    consumer = engine.consumer()
    consumer.cover([["a", "b"]])
    engine.mailbox("a").send_many([Outgoing(number) for number in range(10)])
    early = consumer.exchange(max_messages=3, visibility_timeout=60).messages
    later = consumer.exchange(max_messages=3, visibility_timeout=60).messages
    assert [message.body for message in later] == [3, 4, 5]
    early[1].release()
    again = consumer.exchange(max_messages=2, visibility_timeout=60).messages
    assert [message.body for message in again] == [1, 6]


def test_messages_for_several_mailboxes_are_one_commit(opened: Opened, postgres_url: str) -> None:
    engine = opened()
    mailboxes = [engine.mailbox(name) for name in "abc"] * 5
    engine.mailbox("a").send("warm")
    before = transactions(postgres_url)
    engine.send_across([(mailbox, [Outgoing("x", key=str(place))]) for place, mailbox in enumerate(mailboxes)])
    assert transactions(postgres_url) - before == 2


def test_senders_to_the_same_mailboxes_in_another_order_do_not_wait_for_each_other(opened: Opened) -> None:
    """Each holds the locks of both mailboxes until it commits: taken in the order of the messages they would be a deadlock."""

    def send(turned: bool) -> None:
        with opened() as engine:
            mailboxes = [engine.mailbox(name) for name in ("ba" if turned else "ab")]
            for generation in range(1, 60):
                batch = [Outgoing("x", key=str(key), generation=generation) for key in range(5)]
                engine.send_across([(mailbox, batch) for mailbox in mailboxes])

    with ThreadPoolExecutor(2) as pool:
        for sender in [pool.submit(send, turned) for turned in (False, True)]:
            sender.result(60)
    assert opened().mailbox("a").depth().ready == 5
