"""The NATS JetStream engine: `Engine.open("nats://host:4222?replicas=3")`, NATS 2.11 and newer.

One stream is a log of commands, and every process that opens the engine folds it: what a command comes to is decided by its place and time
in the stream, alike everywhere, so nothing needs a lock, a reaper or a consumer's acknowledgement. Journals are streams of their own,
large values are blobs. Why: docs/decisions/0057.

Files: `commands` has what the log can say, `ledger` and `ledger_records` are the pure fold, `command_log` appends and folds, `pending_commands` has what this
process waits for, `streams` what is on the servers and how a stream is followed, `connection` the connection and its event loop, `examination` what
`tenure doctor` asks; `mailbox`, `journal` and `engine` keep the contracts.
"""

from __future__ import annotations

from tenure.engines.nats.engine import NatsEngine, open_nats

__all__ = ["NatsEngine", "open_nats"]
