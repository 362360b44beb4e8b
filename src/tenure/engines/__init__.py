"""Where work and decisions live. `Engine.open(url)` is the way in; `contracts` says what every engine promises."""

from __future__ import annotations

from tenure.engines.contracts import (
    DeadLetter,
    DeadLetters,
    Depth,
    Election,
    Engine,
    Entry,
    Failure,
    FailureCause,
    Fence,
    Head,
    Journal,
    Leader,
    Mailbox,
    Message,
    Outgoing,
    Refusal,
    Sent,
    Snapshot,
    Store,
    Term,
)

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "Depth",
    "Election",
    "Engine",
    "Entry",
    "Failure",
    "FailureCause",
    "Fence",
    "Head",
    "Journal",
    "Leader",
    "Mailbox",
    "Message",
    "Outgoing",
    "Refusal",
    "Sent",
    "Snapshot",
    "Store",
    "Term",
]
