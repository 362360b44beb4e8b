"""Bytes under keys, in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.engines.checks import check_key, check_max_messages, check_name, check_store_value, check_ttl
from tenure.engines.contracts import Fence, Store
from tenure.engines.postgres.connections import Rows
from tenure.errors import StaleFenceError

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine


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
