"""Where work and decisions live. `Engine.open(url)` is the way in; `contracts` says what every engine promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.engines.contracts import (
    NO_REPLY,
    Consumer,
    DeadLetter,
    DeadLetters,
    Depth,
    Election,
    Engine,
    Entry,
    Exchanged,
    Failure,
    FailureCause,
    Fence,
    Finding,
    Head,
    Journal,
    Leader,
    Level,
    Mailbox,
    Message,
    Outgoing,
    Refusal,
    Sent,
    Settlement,
    Snapshot,
    Store,
    Term,
    Ticket,
    Withdrawal,
)

if TYPE_CHECKING:
    from tenure.engines.memory import InMemoryMailbox, MemoryEngine


def __getattr__(name: str) -> Any:
    """An engine is imported when it is asked for: `import tenure` stays fast."""
    if name in ("InMemoryMailbox", "MemoryEngine"):
        from tenure.engines import memory

        return getattr(memory, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "NO_REPLY",
    "Consumer",
    "DeadLetter",
    "DeadLetters",
    "Depth",
    "Election",
    "Engine",
    "Entry",
    "Exchanged",
    "Failure",
    "FailureCause",
    "Fence",
    "Finding",
    "Head",
    "InMemoryMailbox",
    "Journal",
    "Leader",
    "Level",
    "Mailbox",
    "MemoryEngine",
    "Message",
    "Outgoing",
    "Refusal",
    "Sent",
    "Settlement",
    "Snapshot",
    "Store",
    "Term",
    "Ticket",
    "Withdrawal",
]
