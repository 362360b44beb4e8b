"""The store: bytes under a key, and the highest fence that wrote it, which outlives them."""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING

from tenure.engines.checks import check_key, check_max_messages, check_name, check_store_value, check_ttl
from tenure.engines.contracts import Fence, Store
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.rows import KEY_MEMORY_US
from tenure.engines.sqlite.timeline import micros
from tenure.errors import StaleFenceError

if TYPE_CHECKING:
    from tenure.engines.sqlite.engine import SqliteEngine


class SqliteStore(Store):
    """A handle on one store. Safe to share between threads."""

    def __init__(self, engine: SqliteEngine, name: str) -> None:
        self.name = check_name(name, "store")
        self._engine, self._database = engine, engine.database

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        with self._database.writer as tx:
            now = self._database.now()
            row = tx.execute(sql.SELECT_FENCE, (self.name, key)).fetchone()
            highest = Fence(row[0], row[1]) if row is not None and row[0] is not None else None
            if fence is not None and highest is not None and tuple(fence) < highest:
                raise StaleFenceError(key, fence, highest)
            # A write without a fence keeps the one that is there: a late fenced writer stays refused.
            generation, delivery = fence if fence is not None else highest if highest is not None else (None, None)
            expires_at = None if ttl is None else now + micros(ttl)
            tx.execute(sql.SET_VALUE, (self.name, key, generation, delivery, expires_at, bytes(value)))
        self._engine.upkeep.after_write()

    def get(self, key: str) -> bytes | None:
        check_key(key)
        rows = self._database.reader.read(sql.SELECT_VALUE, (self.name, key, self._database.now()))
        return rows[0][0] if rows else None

    def delete(self, key: str) -> bool:
        check_key(key)
        with self._database.writer as tx:
            now = self._database.now()
            row = tx.execute(sql.SELECT_FENCE, (self.name, key)).fetchone()
            if row is None:
                return False
            generation, delivery, has_value, expires_at = row
            if not has_value or (expires_at is not None and expires_at <= now):
                return False
            if generation is None:
                tx.execute(sql.DELETE_VALUE, (self.name, key))
            else:
                tx.execute(sql.SET_VALUE, (self.name, key, generation, delivery, now + KEY_MEMORY_US, None))
            return True

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> builtins.list[str]:
        check_max_messages(limit)
        arguments = (self.name, after or "", prefix, _above(prefix), self._database.now(), limit)
        return [key for (key,) in self._database.reader.read(sql.LIST_KEYS, arguments)]


_LAST = sys.maxunicode


def _above(prefix: str) -> str:
    """The lowest text above everything that begins with `prefix`, in the order of code points, which is UTF-8's too."""
    while prefix:
        last = ord(prefix[-1])
        if last < _LAST:
            following = 0xE000 if last == 0xD7FF else last + 1  # the surrogates between are no characters
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return chr(_LAST) * 513  # longer than any key: above all of them
