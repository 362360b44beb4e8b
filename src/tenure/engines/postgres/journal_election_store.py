"""The journal, the election and the store in PostgreSQL, each one row or more that a function of `sql/` changes.

An append is a compare-and-swap on the journal's head row. An election has one row per seat, taken and renewed by compare-and-swap in the
server's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenure.engines.checks import (
    check_append,
    check_key,
    check_max_messages,
    check_name,
    check_seconds,
    check_snapshot,
    check_store_value,
    check_ttl,
)
from tenure.engines.contracts import (
    MAX_WAIT_S,
    Election,
    Entry,
    Fence,
    Head,
    Journal,
    Leader,
    Snapshot,
    Store,
    Term,
    term_margin,
)
from tenure.engines.long_poll import Look
from tenure.engines.postgres.connections import Rows
from tenure.errors import (
    LimitError,
    SequenceConflictError,
    StaleEpochError,
    StaleFenceError,
    StaleSnapshotError,
    TermLostError,
    Truncated,
)

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine


class PostgresJournal(Journal):
    def __init__(self, engine: PostgresEngine, name: str) -> None:
        self.name = check_name(name, "journal name")
        self._engine = engine
        self.polls = engine.wakeups.long_polls(f"j/{name}")

    def _query(self, operation: str, *values: Any) -> Rows:
        statement = getattr(self._engine.statements, operation)
        return self._engine.connections.query(operation, statement, (self.name, *values))

    def append(self, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str) -> int:
        check_append(events, epoch, expect, append_id)
        seq, last, current = self._query("append", [bytes(e) for e in events], epoch, expect, append_id)[0]
        if seq is not None:
            return int(seq)
        if current > epoch:
            raise StaleEpochError(epoch, current)
        raise SequenceConflictError(expect, last)

    def head(self) -> Head:
        rows = self._query("head")
        return Head(*rows[0]) if rows else Head(0, 0)

    def read(self, after: int = 0, *, limit: int = 1_000) -> list[Entry]:
        if limit < 1:
            raise LimitError("limit", limit, "1 or more")
        rows = self._query("read", after, min(limit, 2**31 - 1))
        if rows and rows[-1][0] is not None:
            raise Truncated(after, rows[-1][0] + 1)
        return [Entry(seq, epoch, append_id, at, tuple(events)) for _, seq, epoch, append_id, at, events in rows]

    def follow(self, after: int, wait_time_seconds: float) -> list[Entry]:
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        if not wait_time_seconds:
            return self.read(after)
        return self.polls.poll(wait_time_seconds, lambda: Look(self.read(after)))

    def wake(self) -> None:
        self._engine.connections.check_open()
        self.polls.wake()

    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        check_snapshot(state)
        if seq < 0:
            raise LimitError("seq", seq, "0 or more")
        refused, current = self._query("snapshot", bytes(state), seq, epoch)[0]
        if refused == "epoch":
            raise StaleEpochError(epoch, current)
        if refused == "ahead":
            raise LimitError("seq", seq, f"between 0 and the last sequence, {current}")
        if refused == "seq":
            raise StaleSnapshotError(seq, current)

    def latest_snapshot(self) -> Snapshot | None:
        rows = self._query("latest_snapshot")
        return Snapshot(*rows[0]) if rows else None

    def truncate(self, seq: int) -> None:
        self._query("truncate", seq)


class PostgresElection(Election):
    def __init__(self, engine: PostgresEngine, name: str) -> None:
        self.name = check_name(name, "election name")
        self._engine = engine

    def _query(self, operation: str, *values: Any) -> Rows:
        statement = getattr(self._engine.statements, operation)
        return self._engine.connections.query(operation, statement, (self.name, *values))

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked = self._engine.clock.boottime()
        rows = self._query("campaign", candidate, float(ttl), above)
        return Term(rows[0][0], candidate, ttl, asked + ttl - term_margin(ttl)) if rows else None

    def renew(self, term: Term) -> Term:
        asked = self._engine.clock.boottime()
        newest = self._query("renew", term.epoch, float(term.ttl))[0][0]
        if newest is not None:
            raise TermLostError(self.name, term.epoch, newest)
        return term._replace(safe_until=asked + term.ttl - term_margin(term.ttl))

    def resign(self, term: Term) -> None:
        self._query("resign", term.epoch)

    def current(self) -> Leader | None:
        rows = self._query("leader")
        return Leader(*rows[0]) if rows else None


class PostgresStore(Store):
    def __init__(self, engine: PostgresEngine, name: str) -> None:
        self.name = check_name(name, "store name")
        self._engine = engine

    def _query(self, operation: str, *values: Any) -> Rows:
        statement = getattr(self._engine.statements, operation)
        return self._engine.connections.query(operation, statement, (self.name, *values))

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        generation, delivery = fence if fence is not None else (None, None)
        refused = self._query("put", key, bytes(value), generation, delivery, None if ttl is None else float(ttl))
        if refused and fence is not None:
            raise StaleFenceError(key, fence, Fence(*refused[0]))

    def get(self, key: str) -> bytes | None:
        check_key(key)
        value: bytes | None = self._query("get", key)[0][0]
        return value

    def delete(self, key: str) -> bool:
        check_key(key)
        return bool(self._query("remove", key)[0][0])

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        check_max_messages(limit)
        return [key for (key,) in self._query("list", prefix, after, _above(prefix), limit)]


def _above(prefix: str) -> str | None:
    """The first text that sorts after everything with this prefix, by code point; None when there is no such text."""
    for end in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[end])
        if code < 0x10FFFF:
            # The surrogates are no characters: the next one after 0xD7FF is 0xE000.
            return prefix[:end] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None
