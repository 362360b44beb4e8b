"""The journal, the election and the store in PostgreSQL, each one row or more that a function of `sql/` changes.

An append is a compare-and-swap on the journal's head row. An election has one row per seat, taken and renewed by compare-and-swap in the
server's time.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from tenure.engines.checked_handles import CheckedElection, CheckedJournal, CheckedStore, first_above
from tenure.engines.contracts import Entry, Fence, Head, Leader, Snapshot, Term
from tenure.errors import LimitError, Truncated

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine


class PostgresJournal(CheckedJournal):
    def __init__(self, engine: PostgresEngine, name: str) -> None:
        super().__init__(name, engine.wakeups, f"j/{name}")
        self._engine = engine

    def check_engine_open(self) -> None:
        self._engine.connections.check_open()

    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        seq, last, newest = self._engine.ask("append", self.name, events, epoch, expect, append_id)[0]
        return int(seq) if seq is not None else self._refuse_append(epoch, expect, newest, last)

    def head(self) -> Head:
        rows = self._engine.ask("head", self.name)
        return Head(*rows[0]) if rows else Head(0, 0)

    def _read(self, after: int, limit: int) -> list[Entry]:
        rows = self._engine.ask("read", self.name, after, min(limit, 2**31 - 1))
        if rows and rows[-1][0] is not None:
            raise Truncated(after, rows[-1][0] + 1)
        return [Entry(seq, epoch, append_id, at, tuple(events)) for _, seq, epoch, append_id, at, events in rows]

    def _snapshot(self, state: bytes, seq: int, epoch: int) -> None:
        if seq < 0:
            raise LimitError("seq", seq, "0 or more")
        refused, current = self._engine.ask("snapshot", self.name, state, seq, epoch)[0]
        if refused is not None:
            self._refuse_snapshot(refused, seq, epoch, current)

    def latest_snapshot(self) -> Snapshot | None:
        rows = self._engine.ask("latest_snapshot", self.name)
        return Snapshot(*rows[0]) if rows else None

    def truncate(self, seq: int) -> None:
        self._engine.ask("truncate", self.name, seq)


class PostgresElection(CheckedElection):
    def __init__(self, engine: PostgresEngine, name: str) -> None:
        super().__init__(name, engine.clock)
        self._engine = engine

    def _campaign(self, candidate: str, ttl: float, above: int) -> int | None:
        rows = self._engine.ask("campaign", self.name, candidate, ttl, above)
        return int(rows[0][0]) if rows else None

    def _renew(self, term: Term) -> int | None:
        newest: int | None = self._engine.ask("renew", self.name, term.epoch, float(term.ttl))[0][0]
        return newest

    def resign(self, term: Term) -> None:
        self._engine.ask("resign", self.name, term.epoch)

    def current(self) -> Leader | None:
        rows = self._engine.ask("leader", self.name)
        return Leader(*rows[0]) if rows else None


class PostgresStore(CheckedStore):
    def __init__(self, engine: PostgresEngine, name: str) -> None:
        super().__init__(name)
        self._engine = engine

    def _put(self, key: str, value: bytes, fence: Fence | None, ttl: float | None) -> Fence | None:
        generation, delivery = fence if fence is not None else (None, None)
        refused = self._engine.ask("put", self.name, key, value, generation, delivery, ttl)
        return Fence(*refused[0]) if refused else None

    def _get(self, key: str) -> bytes | None:
        value: bytes | None = self._engine.ask("get", self.name, key)[0][0]
        return value

    def _delete(self, key: str) -> bool:
        return bool(self._engine.ask("remove", self.name, key)[0][0])

    def _list(self, prefix: str, limit: int, after: str | None) -> builtins.list[str]:
        return [key for (key,) in self._engine.ask("list", self.name, prefix, after, first_above(prefix), limit)]
