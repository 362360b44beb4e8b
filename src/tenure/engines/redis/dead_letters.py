"""The dead letters of one mailbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.engines.checks import check_max_messages
from tenure.engines.contracts import DeadLetter, DeadLetters, FailureCause
from tenure.errors import KeyRefusedError

if TYPE_CHECKING:
    from tenure.engines.redis.mailbox import RedisMailbox


class RedisDeadLetters(DeadLetters):
    def __init__(self, mailbox: RedisMailbox[Any, Any]) -> None:
        self._mailbox = mailbox

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        check_max_messages(limit)
        return [_letter(*row) for row in self._mailbox.asked("dead_letters", limit, after or "")[1]]

    def count(self) -> int:
        return int(self._mailbox.asked("dead_count")[1])

    def replay(self, message_id: str) -> bool:
        _, found, *refused = self._mailbox.asked("replay", message_id)
        if refused:
            key, generation, current, revoked = refused
            raise KeyRefusedError(key.decode(), int(generation), int(current), revoked=bool(revoked))
        return bool(found)

    def delete(self, message_id: str) -> bool:
        return bool(self._mailbox.asked("dead_delete", message_id)[1])

    def purge(self) -> int:
        return self._mailbox.in_steps("dead_purge")


def _letter(
    cause: bytes,
    reason: bytes,
    died: bytes,
    enqueued: bytes,
    deliveries: bytes | None,
    generation: bytes | None,
    key: bytes | None,
    reply_to: bytes | None,
    checkpoint: bytes | None,
    body: bytes,
    name: bytes,
) -> DeadLetter:
    return DeadLetter(
        id=name.decode(),
        body=body,
        cause=FailureCause(cause.decode()),
        reason=reason.decode(),
        died_at=int(died) / 1e6,
        enqueued_at=int(enqueued) / 1e6,
        delivery_count=int(deliveries or 0),
        key=None if key is None else key.decode(),
        generation=int(generation or 0),
        reply_to=None if reply_to is None else reply_to.decode(),
        checkpoint=checkpoint,
    )
