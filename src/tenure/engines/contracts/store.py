"""The store: bytes under a key, fenced."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tenure.engines.contracts.messages import Fence


class Store(ABC):
    """Bytes under a key: results, logs, stack dumps."""

    name: str

    @abstractmethod
    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        """Write. Raises `StaleFenceError` when a higher fence has written this key, also if it was deleted since."""

    @abstractmethod
    def get(self, key: str) -> bytes | None: ...

    @abstractmethod
    def delete(self, key: str) -> bool: ...

    @abstractmethod
    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        """Keys that start with `prefix`, sorted; `after` is the last key of the previous page."""
