"""What a broker's server counts itself: durable steps, which are the same on a busy machine and on an idle one."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from pathlib import Path

Counter = Callable[[], int]
FLUSHED_S = 11.0
"""A session of PostgreSQL tells its figures at the latest ten seconds after its last transaction."""


def counters_of(broker: str, url: str) -> list[tuple[str, float | None, Counter]]:
    """Returns what can be counted there: a name, the most that one job alone may take, and how to read the sum so far."""
    if broker == "sqlite":
        return [("commits, each with a sync", 3.0, WalCommits(Path(url.removeprefix("sqlite:///"))))]
    if broker == "redis":
        return [("scripts", None, lambda: redis_calls(url, {"evalsha", "eval", "fcall"}))]
    if broker == "postgres":
        return [
            ("syncs of the log", 3.0, lambda: postgres(url, WAL_SYNCS)),
            ("commits", None, lambda: postgres(url, COMMITS)),
        ]
    return [("messages stored", 5.0, lambda: asyncio.run(nats_messages(url)))]


class WalCommits:
    """Counts the commits in SQLite's write-ahead log: frames that name the size of the database. A log that begins anew goes on counting."""

    def __init__(self, database: Path) -> None:
        self._log = database.with_name(f"{database.name}-wal")
        self._salt, self._seen, self._before = b"", 0, 0

    def __call__(self) -> int:
        data = self._log.read_bytes() if self._log.exists() else b""
        if len(data) < 32:
            return self._before + self._seen
        page = struct.unpack(">I", data[8:12])[0]
        if data[16:24] != self._salt:  # a checkpoint was made, and the log begins again at its start
            self._salt, self._before, self._seen = data[16:24], self._before + self._seen, 0
        frames = (data[at : at + 24] for at in range(32, len(data) - 23, 24 + page))
        self._seen = sum(1 for frame in frames if frame[8:16] == self._salt and frame[4:8] != b"\0\0\0\0")
        return self._before + self._seen


def redis_calls(url: str, names: set[str]) -> int:
    import redis

    with redis.Redis.from_url(url) as client:
        stats = client.info("commandstats")
    return sum(int(stats[f"cmdstat_{name}"]["calls"]) for name in names if f"cmdstat_{name}" in stats)


WAL_SYNCS = "select sum(fsyncs) from pg_stat_io where object = 'wal' and backend_type = 'client backend'"
COMMITS = "select sum(xact_commit) from pg_stat_database"


def postgres(url: str, query: str) -> int:
    import psycopg

    time.sleep(FLUSHED_S)
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


async def nats_messages(url: str) -> int:
    """Returns the messages that all streams have taken so far. Each is written to a file before its sender hears of it."""
    import nats

    client = await nats.connect(url.partition("?")[0])
    try:
        streams = await client.jetstream().streams_info()
    finally:
        await client.close()
    return sum(stream.state.last_seq for stream in streams)
