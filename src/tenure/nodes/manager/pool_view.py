"""What a leader asks of its gossip pool. The pool decides nothing: losing it costs routing quality, never data."""

from __future__ import annotations

from typing import Protocol

from tenure.health.piggyback import HealthPiggyback


class PoolView(Protocol):
    """Read only; answers at once, from what the pool believes now."""

    def alive(self, name: str) -> bool | None:
        """Whether the worker of this name is here; None where the pool does not know it."""

    def health(self, name: str) -> HealthPiggyback | None:
        """What it last said of itself."""
