"""The dead letters of one mailbox: a table beside the messages, in the order in which they died."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.engines.checks import check_max_messages
from tenure.engines.contracts import DeadLetter, DeadLetters, FailureCause
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.rows import NewMessage, insert_keyed, select_key
from tenure.errors import KeyRefusedError

if TYPE_CHECKING:
    from tenure.engines.sqlite.engine import SqliteEngine


class SqliteDeadLetters(DeadLetters):
    """A handle's dead letters; usable as long as the handle is."""

    def __init__(self, engine: SqliteEngine, mailbox: str, check_open: Callable[[], None]) -> None:
        self._engine, self._database, self._mailbox = engine, engine.database, mailbox
        self._check_open = check_open

    def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[DeadLetter]:
        self._check_open()
        check_max_messages(limit)
        with self._database.reader as tx:
            # One that was replayed or deleted meanwhile has no place any more: go on with the oldest that is left.
            found = tx.execute(sql.DEAD_POSITION, (self._mailbox, after)).fetchone() if after is not None else None
            rows = tx.execute(sql.LIST_DEAD, (self._mailbox, found[0] if found else 0, limit)).fetchall()
        return [_dead_letter(row) for row in rows]

    def count(self) -> int:
        self._check_open()
        (count,) = self._database.reader.read(sql.COUNT_DEAD, (self._mailbox,))[0]
        return int(count)

    def replay(self, message_id: str) -> bool:
        self._check_open()
        with self._database.writer as tx:
            row = tx.execute(sql.SELECT_DEAD, (self._mailbox, message_id)).fetchone()
            if row is None:
                return False
            letter, failure = _dead_letter(row), bool(row[11])
            message = NewMessage(
                letter.id,
                letter.body,
                letter.key,
                letter.generation,
                letter.reply_to,
                deliveries=letter.delivery_count,
                failure=failure,
                checkpoint=letter.checkpoint,
                enqueued_at=row[5],
            )
            now = self._database.now()
            if letter.key is None:
                tx.execute(sql.INSERT_MESSAGE, message.row(self._mailbox, now))
            else:
                known = select_key(tx, self._mailbox, letter.key, now)
                if known is not None and (known[1] or known[0] > letter.generation or known[2] is not None):
                    raise KeyRefusedError(letter.key, letter.generation, known[0], revoked=bool(known[1]))
                insert_keyed(tx, self._mailbox, message, now)
            tx.execute(sql.DELETE_DEAD, (self._mailbox, message_id))
        self._engine.ring_mailbox(self._mailbox)
        return True

    def delete(self, message_id: str) -> bool:
        self._check_open()
        with self._database.writer as tx:
            return tx.execute(sql.DELETE_DEAD, (self._mailbox, message_id)).rowcount == 1

    def purge(self) -> int:
        self._check_open()
        with self._database.writer as tx:
            return tx.execute(sql.PURGE_DEAD, (self._mailbox,)).rowcount


def _dead_letter(row: Any) -> DeadLetter:
    return DeadLetter(
        id=row[0],
        body=row[1],
        cause=FailureCause(row[2]),
        reason=row[3],
        died_at=row[4] / 1e6,
        enqueued_at=row[5] / 1e6,
        delivery_count=row[6],
        key=row[7],
        generation=row[8],
        reply_to=row[9],
        checkpoint=row[10],
    )
