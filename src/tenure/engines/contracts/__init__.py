"""The four contracts that an engine keeps: mailbox, journal, election, store.

This folder decides what callers may rely on and says nothing of how. Engines are synchronous and safe to use from many
threads. `tests/contract` runs one suite against every engine; a promise that is not in that suite is not made.

Times: `enqueued_at`, `Entry.at` and everything durable are in the engine's time (`Engine.now()`, Unix seconds that never
go back). What a holder may rely on without asking (`Message.lease_until`, `Term.safe_until`) is in its own machine's boot time,
counted from *before* the request was sent, so a slow answer only ever makes it more careful.
"""

from __future__ import annotations

from tenure.engines.contracts.engine import (
    KEY_MEMORY_S,
    MAX_APPEND_BYTES,
    MAX_BODY_BYTES,
    MAX_KEY_CHARS,
    MAX_MESSAGES,
    MAX_SNAPSHOT_BYTES,
    MAX_STORE_BYTES,
    MAX_TTL_S,
    MAX_VISIBILITY_S,
    MAX_WAIT_S,
    Election,
    Engine,
    Entry,
    Finding,
    Head,
    Journal,
    Leader,
    Level,
    Refusal,
    Snapshot,
    Store,
    Term,
    term_margin,
)
from tenure.engines.contracts.mailbox import (
    BodyT,
    DeadLetter,
    DeadLetters,
    Depth,
    Failure,
    FailureCause,
    Fence,
    Mailbox,
    Message,
    Outgoing,
    ReplyT,
    Sent,
    Ticket,
    why_given_up,
)

__all__ = [
    "KEY_MEMORY_S",
    "MAX_APPEND_BYTES",
    "MAX_BODY_BYTES",
    "MAX_KEY_CHARS",
    "MAX_MESSAGES",
    "MAX_SNAPSHOT_BYTES",
    "MAX_STORE_BYTES",
    "MAX_TTL_S",
    "MAX_VISIBILITY_S",
    "MAX_WAIT_S",
    "BodyT",
    "DeadLetter",
    "DeadLetters",
    "Depth",
    "Election",
    "Engine",
    "Entry",
    "Failure",
    "FailureCause",
    "Fence",
    "Finding",
    "Head",
    "Journal",
    "Leader",
    "Level",
    "Mailbox",
    "Message",
    "Outgoing",
    "Refusal",
    "ReplyT",
    "Sent",
    "Snapshot",
    "Store",
    "Term",
    "Ticket",
    "term_margin",
    "why_given_up",
]
