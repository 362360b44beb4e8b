"""The questions that a leader asks its gossip pool. The pool decides nothing: losing it costs routing quality, never data."""

from __future__ import annotations

from typing import Protocol

from tenure.health.piggyback import HealthPiggyback


class PoolView(Protocol):
    """A read-only view of the pool. It answers at once, by what the pool believes now."""

    def alive(self, name: str) -> bool | None:
        """Returns True when the pool believes that this worker is alive; None when the pool does not know it."""

    def health(self, name: str) -> HealthPiggyback | None:
        """Returns the health that this worker last sent by gossip; None when the pool has none."""
