"""Changes the bytes of one journal entry behind an engine's back, in each engine's own way."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import redis
from tests.formats.restoring import SPACE, Restored

from tenure.engines import Engine

Change = Callable[[bytes], bytes]


def on_sqlite(restored: Restored, seq: int, change: Change) -> None:
    with sqlite3.connect(restored.url.removeprefix("sqlite:///")) as table:
        where = "seq = ? AND journal = (SELECT id FROM journal WHERE name = 'jobs')"
        (stored,) = table.execute(f"SELECT events FROM journal_entry WHERE {where}", (seq,)).fetchone()
        table.execute(f"UPDATE journal_entry SET events = ? WHERE {where}", (change(stored), seq))
    table.close()


def on_postgres(restored: Restored, seq: int, change: Change) -> None:
    with psycopg.connect(restored.url.partition("?")[0], autocommit=True) as table:
        where = f"FROM {SPACE}.journal_entry WHERE name = 'jobs' AND seq = %s"
        ((events,),) = table.execute(f"SELECT events {where}", (seq,)).fetchall()
        damaged = [change(events[0]), *events[1:]]
        table.execute(f"UPDATE {SPACE}.journal_entry SET events = %s WHERE name = 'jobs' AND seq = %s", (damaged, seq))


def on_redis(restored: Restored, seq: int, change: Change) -> None:
    with redis.Redis.from_url(restored.url.partition("?")[0]) as client:
        (key,) = client.keys(f"*{SPACE}*je:jobs")
        client.hset(key, str(seq), change(client.hget(key, str(seq))))


DAMAGERS: dict[str, Callable[[Restored, int, Change], None]] = {
    "sqlite": on_sqlite,
    "postgres": on_postgres,
    "redis": on_redis,
}


def damaging_nats(engine: Engine, change: Change, monkeypatch: Any) -> None:
    """JetStream does not let a message be changed: so the next one that is written there is damaged on its way."""
    link: Any = engine.link  # type: ignore[attr-defined]
    write = link.write

    async def damaged(stream: str, subject: str, payload: bytes, headers: Any) -> Any:
        monkeypatch.setattr(link, "write", write)
        return await write(stream, subject, change(payload), headers)

    monkeypatch.setattr(link, "write", damaged)
