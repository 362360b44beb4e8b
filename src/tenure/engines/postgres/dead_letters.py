"""The dead letters of one mailbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.engines.checks import check_max_messages
from tenure.engines.contracts import DeadLetter, DeadLetters, FailureCause
from tenure.errors import KeyRefusedError

if TYPE_CHECKING:
    from tenure.engines.postgres.mailbox import PostgresMailbox


class PostgresDeadLetters(DeadLetters):
    def __init__(self, mailbox: PostgresMailbox[Any, Any]) -> None:
        self._mailbox = mailbox

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        check_max_messages(limit)
        rows = self._mailbox.asked("dead_letters", (self._mailbox.name, limit, _number(after)))
        return [
            DeadLetter(
                id=str(number),
                body=body,
                cause=FailureCause(cause),
                reason=reason,
                died_at=died_at,
                enqueued_at=enqueued_at,
                delivery_count=deliveries,
                key=key,
                generation=generation,
                reply_to=reply_to,
                checkpoint=checkpoint,
            )
            for (
                number,
                cause,
                reason,
                died_at,
                enqueued_at,
                deliveries,
                generation,
                key,
                reply_to,
                checkpoint,
                body,
            ) in rows
        ]

    def count(self) -> int:
        return int(self._mailbox.asked("dead_count", (self._mailbox.name,))[0][0])

    def replay(self, message_id: str) -> bool:
        row = self._mailbox.asked("replay", (self._mailbox.name, _number(message_id)))[0]
        found, key, generation, current, revoked = row
        if current is not None:
            raise KeyRefusedError(key, generation, current, revoked=revoked)
        self._mailbox.pace.moved_back()
        return bool(found)

    def delete(self, message_id: str) -> bool:
        return bool(self._mailbox.asked("dead_delete", (self._mailbox.name, _number(message_id))))

    def purge(self) -> int:
        return int(self._mailbox.asked("dead_purge", (self._mailbox.name,))[0][0])


def _number(message_id: str | None) -> int:
    """The row's id; 0, which no row has, for a name that cannot be one of ours."""
    return int(message_id) if message_id is not None and message_id.isdecimal() and len(message_id) < 19 else 0
