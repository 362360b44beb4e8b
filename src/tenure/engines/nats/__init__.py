"""The NATS JetStream engine: `Engine.open("nats://host:4222?replicas=3")`, NATS 2.11 and newer.

One stream is a log of commands, and every process that opens the engine folds it: what a command comes to is decided by its place and time
in the stream, alike everywhere, so nothing needs a lock, a reaper or a consumer's acknowledgement. Journals are streams of their own,
large values are blobs. Why: docs/decisions/0057.

Files: `commands` is what the log can say, `ledger`, `box` and `pages` the pure fold, `log` appends and folds, `follower` reads a stream over any trouble, `link`
owns the connection, `background` the event loop, `streams` and `blobs` what is on the servers, `waiting` the long polls, `examination` what
`tenure doctor` asks; `mailbox`, `message`, `dead_letters`, `journal`, `election` and `store` keep the contracts.
"""

from __future__ import annotations

from tenure.engines.nats.engine import NatsEngine, open_nats

__all__ = ["NatsEngine", "open_nats"]
