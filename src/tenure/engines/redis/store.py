"""Bytes under keys, in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engines.checks import check_key, check_max_messages, check_name, check_store_value, check_ttl
from tenure.engines.contracts import Fence, Store
from tenure.engines.redis.connections import Answer
from tenure.engines.redis.session import Argument
from tenure.errors import StaleFenceError

if TYPE_CHECKING:
    from tenure.engines.redis.engine import RedisEngine


class RedisStore(Store):
    def __init__(self, engine: RedisEngine, name: str) -> None:
        self.name = check_name(name, "store name")
        self._engine = engine

    def _call(self, operation: str, *values: Argument) -> Answer:
        return self._engine.connections.call(operation, (self.name, *values))

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        generation, delivery = fence if fence is not None else ("", "")
        span = "" if ttl is None else max(1, round(ttl * 1e6))
        _, *refused = self._call("put", key, bytes(value), span, generation, delivery)
        if refused and fence is not None:
            raise StaleFenceError(key, fence, Fence(*map(int, refused)))

    def get(self, key: str) -> bytes | None:
        check_key(key)
        value: bytes | None = self._call("get", key)[1]
        return value

    def delete(self, key: str) -> bool:
        check_key(key)
        return bool(self._call("remove", key)[1])

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        check_max_messages(limit)
        first = b"[" + prefix.encode() if prefix else b"-"
        if after is not None and after >= prefix:
            first = b"(" + after.encode()
        # No character is encoded with the byte 0xff, so it sorts after everything that has this prefix.
        below = b"(" + prefix.encode() + b"\xff" if prefix else b"+"
        return [key.decode() for key in self._call("list", first, below, limit)[1]]
