"""The dead letters of a memory mailbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.engines.checks import check_max_messages
from tenure.engines.contracts import DeadLetter, DeadLetters
from tenure.engines.memory.box import Box

if TYPE_CHECKING:
    from tenure.engines.memory.mailbox import MemoryMailbox

ResultT = TypeVar("ResultT")


class MemoryDeadLetters(DeadLetters):
    """The dead letters of one mailbox."""

    def __init__(self, mailbox: MemoryMailbox[Any, Any]) -> None:
        self._mailbox = mailbox

    def _under_lock(self, act: Callable[[Box, float], ResultT]) -> ResultT:
        mailbox = self._mailbox
        with mailbox._lock:
            if mailbox._closed:
                mailbox._refuse()
            return act(mailbox._box, mailbox._boottime())

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        check_max_messages(limit)

        def page(box: Box, _now: float) -> list[DeadLetter]:
            letters = [letter for _, letter in box.dead.values()]
            if after is not None and after in box.dead:
                start = list(box.dead).index(after) + 1
                letters = letters[start:]
            return letters[:limit]

        return self._under_lock(page)

    def count(self) -> int:
        return self._under_lock(lambda box, _now: len(box.dead))

    def replay(self, message_id: str) -> bool:
        return self._under_lock(lambda box, now: box.replay(message_id, now))

    def delete(self, message_id: str) -> bool:
        return self._under_lock(lambda box, _now: box.dead.pop(message_id, None) is not None)

    def purge(self) -> int:
        def clear(box: Box, _now: float) -> int:
            gone = len(box.dead)
            box.dead.clear()
            return gone

        return self._under_lock(clear)
