"""Bytes under keys: the value is a blob, and its name, fence and time to live are in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.engines.checks import check_key, check_max_messages, check_name, check_store_value, check_ttl
from tenure.engines.contracts import Fence, Store
from tenure.engines.nats import commands as c
from tenure.engines.nats.blobs import BlobGoneError
from tenure.errors import EngineUnavailableError, StaleFenceError
from tenure.ids import new_id

if TYPE_CHECKING:
    from tenure.engines.nats.engine import NatsEngine


Keys = list[str]  # inside the class, `list` is its method


class NatsStore(Store):
    def __init__(self, engine: NatsEngine, name: str) -> None:
        self.name = check_name(name)
        self._engine = engine

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        token = None if fence is None else (fence[0], fence[1])
        self._engine.call("put", self._put, key, bytes(value), token, ttl, lost=EngineUnavailableError)

    async def _put(self, key: str, value: bytes, fence: tuple[int, int] | None, ttl: float | None) -> None:
        log = self._engine.log
        blob = f"store-{int(log.about_now())}-{new_id()}"
        chunks = await self._engine.blobs.write(blob, value)
        seconds = None if ttl is None else float(ttl)
        try:
            await log.ask(c.Put(log.new_id(), self.name, key, blob, chunks, fence, seconds))
        except StaleFenceError:
            await self._engine.blobs.delete(blob)
            raise

    def get(self, key: str) -> bytes | None:
        check_key(key)
        return self._engine.call("get", self._get, key, lost=EngineUnavailableError)

    async def _get(self, key: str) -> bytes | None:
        while True:
            now = await self._engine.log.catch_up()
            value = self._engine.log.ledger.values.stores.get(self.name, {}).get(key)
            if value is None or not value.there(now):
                return None
            try:
                return await self._engine.blobs.read(value.blob, value.chunks)
            except BlobGoneError:
                continue  # written again meanwhile

    def delete(self, key: str) -> bool:
        check_key(key)
        return bool(self._engine.ask("delete", c.Remove, self.name, key, lost=EngineUnavailableError))

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        check_max_messages(limit)
        return self._engine.call("list", self._list, prefix, limit, after, lost=EngineUnavailableError)

    async def _list(self, prefix: str, limit: int, after: str | None) -> Keys:
        now = await self._engine.log.catch_up()
        values = self._engine.log.ledger.values.stores.get(self.name, {})
        return sorted(
            key
            for key, value in values.items()
            if key.startswith(prefix) and (after is None or key > after) and value.there(now)
        )[:limit]
