"""Steps that several parts take inside one transaction: queue a message, remember its key, bury it.

Each takes the connection of a write transaction and `now` in microseconds; none commits.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import msgspec

from tenure.engines.contracts import KEY_MEMORY_S, Failure, FailureCause
from tenure.engines.sqlite import statements as sql
from tenure.errors import KeyRefusedError

_LONGEST_REASON = 10_000
KEY_MEMORY_US = KEY_MEMORY_S * 1_000_000


@dataclass(slots=True)
class NewMessage:
    """The values of `INSERT_MESSAGE` beside the mailbox and the time."""

    id: str
    body: bytes
    key: str | None = None
    generation: int = 0
    reply_to: str | None = None
    delay_us: int = 0
    deliveries: int = 0
    failure: bool = False
    checkpoint: bytes | None = None
    enqueued_at: int | None = None  # when it was first sent, where that was not now

    def row(self, mailbox: str, now: int) -> tuple[object, ...]:
        return (
            mailbox,
            now + self.delay_us,
            self.deliveries,
            self.deliveries,
            self.generation,
            self.failure,
            now if self.enqueued_at is None else self.enqueued_at,
            self.id,
            self.key,
            self.reply_to,
            self.checkpoint,
            self.body,
        )


def queue(tx: sqlite3.Connection, mailbox: str, message: NewMessage, now: int) -> None:
    """Queue one message, replacing what has its key. Raises `KeyRefusedError`, having written nothing."""
    if message.key is None:
        tx.execute(sql.INSERT_MESSAGE, message.row(mailbox, now))
        return
    known = select_key(tx, mailbox, message.key, now)
    if known is not None:
        generation, revoked, live, message.checkpoint = known
        if revoked or message.generation <= generation:
            raise KeyRefusedError(message.key, message.generation, generation, revoked=bool(revoked))
        if live is not None:
            (message.checkpoint,) = tx.execute(sql.SELECT_CHECKPOINT, (live,)).fetchone()
            tx.execute(sql.DELETE_MESSAGE, (live,))
    insert_keyed(tx, mailbox, message, now)


def select_key(
    tx: sqlite3.Connection, mailbox: str, key: str, now: int
) -> tuple[int, int, int | None, bytes | None] | None:
    """Generation, revoked, live message, inherited checkpoint; None for a key that is unknown or forgotten."""
    row: tuple[int, int, int | None, bytes | None] | None
    row = tx.execute(sql.SELECT_KEY, (mailbox, key, now - KEY_MEMORY_US)).fetchone()
    return row


def insert_keyed(tx: sqlite3.Connection, mailbox: str, message: NewMessage, now: int) -> None:
    seq = tx.execute(sql.INSERT_MESSAGE, message.row(mailbox, now)).lastrowid
    tx.execute(sql.SET_KEY, (mailbox, message.key, message.generation, seq))


@dataclass(frozen=True, slots=True)
class Death:
    """Why a message is given up, and how many deliveries it had."""

    cause: FailureCause
    reason: str
    deliveries: int


def bury(tx: sqlite3.Connection, mailbox: str, seq: int, death: Death, failure_id: str, now: int) -> str | None:
    """Move a message to the dead letters and post its `Failure`; the mailbox that got it, to be rung."""
    reason = death.reason[:_LONGEST_REASON]
    rows = tx.execute(sql.BURY, (death.cause.value, reason, now, death.deliveries, seq)).fetchall()
    message_id, key, generation, reply_to, checkpoint = rows[0]
    tx.execute(sql.DELETE_MESSAGE, (seq,))
    if key is not None:
        tx.execute(sql.END_KEY, (now, checkpoint, mailbox, key, generation))
    if reply_to is None:
        return None
    failure = Failure(
        message_id=message_id,
        mailbox=mailbox,
        cause=death.cause,
        reason=reason,
        key=key,
        generation=generation,
        delivery_count=death.deliveries,
    )
    queue(tx, reply_to, NewMessage(failure_id, msgspec.json.encode(failure), failure=True), now)
    return str(reply_to)
