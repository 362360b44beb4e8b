"""The journal, the election and the store in PostgreSQL, each one row or more that a function of `sql/` changes.

An append is a compare-and-swap on the journal's head row. An election has one row per seat, taken and renewed by compare-and-swap in the
server's time.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from tenure.engines.checked_handles import CheckedElection, CheckedStore, PolledJournal, first_above
from tenure.engines.contracts import MAX_SCAN_BYTES, Entry, Fence, Head, Leader, Snapshot, Term
from tenure.errors import LimitError, Truncated

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine


class PostgresJournal(PolledJournal):
    topic_prefix = "j/"
    engine: PostgresEngine

    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        seq, last, newest = self.engine.ask("append", self.name, events, epoch, expect, append_id)[0]
        return int(seq) if seq is not None else self.refuse_append(epoch, expect, newest, last)

    def head(self) -> Head:
        rows = self.engine.ask("head", self.name)
        return Head(*rows[0]) if rows else Head(0, 0)

    def _read(self, after: int, limit: int) -> list[Entry]:
        rows = self.engine.ask("read", self.name, after, min(limit, 2**31 - 1))
        if rows and rows[-1][0] is not None:
            raise Truncated(after, rows[-1][0] + 1)
        return [Entry(seq, epoch, append_id, at, tuple(events)) for _, seq, epoch, append_id, at, events in rows]

    def _snapshot(self, state: bytes, seq: int, epoch: int) -> None:
        if seq < 0:
            raise LimitError("seq", seq, "0 or more")
        refused, current = self.engine.ask("snapshot", self.name, state, seq, epoch)[0]
        if refused is not None:
            self._refuse_snapshot(refused, seq, epoch, current)

    def latest_snapshot(self) -> Snapshot | None:
        rows = self.engine.ask("latest_snapshot", self.name)
        return Snapshot(*rows[0]) if rows else None

    def truncate(self, seq: int) -> None:
        self.engine.ask("truncate", self.name, seq)


class PostgresElection(CheckedElection):
    engine: PostgresEngine

    def _campaign(self, candidate: str, ttl: float, above: int) -> int | None:
        rows = self.engine.ask("campaign", self.name, candidate, ttl, above)
        return int(rows[0][0]) if rows else None

    def _renew(self, term: Term) -> int | None:
        newest: int | None = self.engine.ask("renew", self.name, term.epoch, float(term.ttl))[0][0]
        return newest

    def resign(self, term: Term) -> None:
        self.engine.ask("resign", self.name, term.epoch)

    def current(self) -> Leader | None:
        rows = self.engine.ask("leader", self.name)
        return Leader(*rows[0]) if rows else None


class PostgresStore(CheckedStore):
    engine: PostgresEngine

    def _put(self, key: str, value: bytes, fence: Fence | None, ttl: float | None) -> Fence | None:
        generation, delivery = fence if fence is not None else (None, None)
        refused = self.engine.ask("put", self.name, key, value, generation, delivery, ttl)
        return Fence(*refused[0]) if refused else None

    def _get(self, key: str) -> bytes | None:
        value: bytes | None = self.engine.ask("get", self.name, key)[0][0]
        return value

    def _delete(self, key: str) -> bool:
        return bool(self.engine.ask("remove", self.name, key)[0][0])

    def _list(self, prefix: str, limit: int, after: str | None) -> builtins.list[str]:
        return [key for (key,) in self.engine.ask("list", self.name, prefix, after, first_above(prefix), limit)]

    def _put_many(self, values: dict[str, bytes | None], fence: Fence, ttl: float | None) -> None:
        self.engine.ask("put_many", self.name, builtins.list(values), builtins.list(values.values()), *fence, ttl)

    def _get_many(self, keys: builtins.list[str]) -> dict[str, bytes]:
        return dict(self.engine.ask("get_many", self.name, keys))

    def _scan(self, prefix: str, limit: int, after: str | None, reverse: bool) -> builtins.list[tuple[str, bytes]]:
        bounds = prefix, after, first_above(prefix)
        return [
            (key, value) for key, value in self.engine.ask("scan", self.name, *bounds, limit, MAX_SCAN_BYTES, reverse)
        ]
