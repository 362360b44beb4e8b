"""A queue in as little SQL as a careful person would write by hand, with the same commits and the same durability.

One table, the index that a claim needs, prepared statements on one connection, JSON bodies. No leases that are checked, no receipts, no
keys, no dead letters, nobody is woken, no threads: what our engine does on top of this is what the ratio shows.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

_encode = msgspec.json.encode
_decode = msgspec.json.decode
_LEASE_US = 300_000_000


class BareQueue:
    def __init__(self, path: Path, synchronous: str) -> None:
        self._connection = connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS message (seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, visible_at INTEGER NOT NULL, "
            "deliveries INTEGER NOT NULL DEFAULT 0, body BLOB NOT NULL)"
        )
        connection.execute("CREATE INDEX IF NOT EXISTS message_next ON message (queue, visible_at)")
        self._now = 1_700_000_000_000_000

    def send(self, body: Any) -> None:
        self._now += 1
        self._connection.execute(
            "INSERT INTO message (queue, visible_at, body) VALUES ('work', ?, ?)", (self._now, _encode(body))
        )

    def claim(self) -> tuple[int, Any]:
        rows = self._connection.execute(
            "UPDATE message SET visible_at = ?1, deliveries = deliveries + 1 WHERE seq = "
            "(SELECT seq FROM message WHERE queue = 'work' AND visible_at <= ?2 ORDER BY visible_at, seq LIMIT 1) "
            "RETURNING seq, body",
            (self._now + _LEASE_US, self._now),
        ).fetchall()
        seq, body = rows[0]
        return seq, _decode(body)

    def acknowledge(self, seq: int) -> None:
        self._connection.execute("DELETE FROM message WHERE seq = ?", (seq,))

    def send_many(self, bodies: list[Any]) -> None:
        self._now += 1
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT INTO message (queue, visible_at, body) VALUES ('work', ?, ?)",
            [(self._now, _encode(body)) for body in bodies],
        )
        self._connection.execute("COMMIT")

    def claim_many(self, most: int) -> list[tuple[int, Any]]:
        self._connection.execute("BEGIN IMMEDIATE")
        rows = self._connection.execute(
            "SELECT seq, body FROM message WHERE queue = 'work' AND visible_at <= ? ORDER BY visible_at, seq LIMIT ?",
            (self._now, most),
        ).fetchall()
        self._connection.executemany(
            "UPDATE message SET visible_at = ?, deliveries = deliveries + 1 WHERE seq = ?",
            [(self._now + _LEASE_US, seq) for seq, _ in rows],
        )
        self._connection.execute("COMMIT")
        return [(seq, _decode(body)) for seq, body in rows]

    def acknowledge_many(self, claimed: list[int]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("DELETE FROM message WHERE seq = ?", [(seq,) for seq in claimed])
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
