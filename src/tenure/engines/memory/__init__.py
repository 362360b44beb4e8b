"""The memory engine: for tests, simulations and work that may die with its process."""

from __future__ import annotations

from tenure.engines.memory.engine import MemoryEngine, open_memory
from tenure.engines.memory.mailbox import InMemoryMailbox, MemoryMailbox
from tenure.engines.memory.shared_mailbox import MemoryMessage

__all__ = ["InMemoryMailbox", "MemoryEngine", "MemoryMailbox", "MemoryMessage", "open_memory"]
