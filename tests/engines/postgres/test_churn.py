"""A queue's table is the worst case of a database: always changing, statistics always wrong. Counted in pages, not in time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tenure.engines import Engine, Outgoing
from tenure.engines.postgres import PostgresEngine
from tools.servers import Postgres

Opened = Callable[..., PostgresEngine]


class Planner:
    """A session that counts the pages which one of our functions touches."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection, self.schema = connection, schema

    def pages(self, call: str) -> int:
        lines = self.connection.execute(f'EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM "{self.schema}".{call}').fetchall()
        found = re.search(r"shared hit=(\d+)(?: read=(\d+))?", "\n".join(line for (line,) in lines))
        assert found is not None, lines
        return int(found[1]) + int(found[2] or 0)

    def fill(self, count: int) -> None:
        insert = (
            "INSERT INTO {}.message (mailbox, visible_at, enqueued_at, generation, body) "
            "SELECT 'work', clock_timestamp(), clock_timestamp(), 0, 'x' FROM generate_series(1, %s)"
        )
        self.connection.execute(sql.SQL(insert).format(sql.Identifier(self.schema)), (count,))


@pytest.fixture
def planner(postgres_url: str, schema: str, opened: Opened) -> Any:
    opened()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in ("message", "key"):  # nobody analyses or vacuums behind our back
            off = sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = off)").format(sql.Identifier(schema, table))
            connection.execute(off)
        yield Planner(connection, schema)


CLAIM = "claim('work', 1, 60, {token}, 1::smallint, 5, {floor}, false)"


def test_plans_made_on_an_empty_table_are_right_for_a_full_one_without_analyze(planner: Planner) -> None:
    for token in range(10):
        planner.pages(CLAIM.format(token=token, floor="NULL"))
        planner.pages("acknowledge(1, 1, 'work', NULL)")
        planner.pages("extend(1, 1, 60, NULL)")
        planner.pages("send_keyed('other', 'x', 0, NULL, 1, 'k" + str(token) + "')")
    planner.fill(20_000)
    assert planner.pages(CLAIM.format(token=7, floor="NULL")) < 60
    assert planner.pages("extend(5000, 7, 60, NULL)") < 30
    assert planner.pages("acknowledge(5000, 7, 'work', 'k1')") < 30
    assert planner.pages("nack(5000, 7, 0, 5)") < 30
    assert planner.pages("send_keyed('other', 'x', 0, NULL, 2, 'k1')") < 60


def test_dead_rows_do_not_slow_claims_down_before_vacuum_comes(planner: Planner, opened: Opened) -> None:
    engine = opened()
    mailbox = engine.mailbox("work")
    mailbox.send_many([Outgoing("x")] * 200)
    costs = []
    for token in range(8):  # so that this session has its plans
        planner.pages(CLAIM.format(token=token, floor="NULL"))
    for number in range(4):
        for _ in range(20):
            mailbox.send_many([Outgoing("x" * 100)] * 100)
            assert mailbox.acknowledge_many(mailbox.receive(100, 60)) == []
        floor = engine.pace("work").floor(now=0.0)
        assert floor is not None
        costs.append(planner.pages(CLAIM.format(token=number, floor=floor)))
    without = planner.pages(CLAIM.format(token=99, floor="NULL"))
    assert max(costs) < 40, costs
    assert without > 2 * max(costs), "there was nothing to walk over: the test shows nothing"


@pytest.mark.slow
def test_the_table_stays_small_under_constant_load(own_server: Callable[[Any], Any]) -> None:
    server: Postgres = own_server(Postgres({"fsync": "off", "autovacuum_naptime": "1s"}))
    with Engine.open(server.url) as engine, psycopg.connect(server.url, autocommit=True) as connection:
        mailbox = engine.mailbox("work")
        mailbox.send_many([Outgoing("x" * 200)] * 200)
        sizes = []
        for _ in range(6):
            for _ in range(60):
                mailbox.send_many([Outgoing("x" * 200)] * 100)
                mailbox.acknowledge_many(mailbox.receive(100, 60))
            # Autovacuum wakes once a second; here it has had its turn when it says so.
            wait_for_vacuum(connection, len(sizes) + 1)
            row = connection.execute("SELECT pg_total_relation_size('tenure.message')").fetchone()
            assert row is not None
            sizes.append(row[0])
    assert sizes[-1] < 1.5 * max(sizes[:2]), sizes


def wait_for_vacuum(connection: psycopg.Connection[Any], times: int) -> None:
    end = time.monotonic() + 60
    ask = "SELECT autovacuum_count FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'message'"
    while (row := connection.execute(ask).fetchone()) is None or row[0] < times:
        assert time.monotonic() < end, "autovacuum did not come"
        time.sleep(0.1)


def test_the_head_of_a_journal_is_updated_in_place(opened: Opened, postgres_url: str, schema: str) -> None:
    journal = opened().journal("log")
    for seq in range(500):
        journal.append([b"x"], epoch=1, expect=seq, append_id=str(seq))
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT pg_relation_size(%s::regclass)", (f"{schema}.journal_head",)).fetchone()
    assert row is not None
    assert row[0] <= 8 * 8192
