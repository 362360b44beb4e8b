"""A journal in PostgreSQL: an append is a compare-and-swap on the journal's head row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenure.engines.bells import Look, Polls
from tenure.engines.checks import check_append, check_name, check_seconds, check_snapshot
from tenure.engines.contracts import MAX_WAIT_S, Entry, Head, Journal, Snapshot
from tenure.engines.postgres.connections import Rows
from tenure.errors import (
    LimitError,
    SequenceConflictError,
    StaleEpochError,
    StaleSnapshotError,
    Truncated,
)

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine


class PostgresJournal(Journal):
    def __init__(self, engine: PostgresEngine, name: str) -> None:
        self.name = check_name(name, "journal name")
        self._engine = engine
        self.polls = Polls(engine.bells, f"j/{name}")

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
