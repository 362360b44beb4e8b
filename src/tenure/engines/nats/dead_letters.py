"""The dead letters of a mailbox in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.engines.checks import check_max_messages
from tenure.engines.contracts import DeadLetter, DeadLetters
from tenure.engines.nats import commands as c

if TYPE_CHECKING:
    from tenure.engines.nats.mailbox import NatsMailbox


Page = list[DeadLetter]  # inside the class, `list` is its method


class NatsDeadLetters(DeadLetters):
    def __init__(self, mailbox: NatsMailbox[Any, Any]) -> None:
        self._mailbox, self._engine = mailbox, mailbox.engine

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        check_max_messages(limit)
        self._mailbox.check_open()
        return self._engine.call("dead_letters", self._page, limit, after)

    async def _page(self, limit: int, after: str | None) -> Page:
        await self._engine.log.catch_up()
        return self._engine.log.ledger.box(self._mailbox.name).dead_letters(limit, after)

    def count(self) -> int:
        self._mailbox.check_open()
        return self._engine.call("dead_letters", self._count)

    async def _count(self) -> int:
        await self._engine.log.catch_up()
        return len(self._engine.log.ledger.box(self._mailbox.name).dead)

    def replay(self, message_id: str) -> bool:
        self._mailbox.check_open()
        return bool(self._engine.ask("replay", c.Replay, self._mailbox.name, message_id))

    def delete(self, message_id: str) -> bool:
        self._mailbox.check_open()
        return bool(self._engine.ask("delete", c.Forget, self._mailbox.name, message_id))

    def purge(self) -> int:
        self._mailbox.check_open()
        return int(self._engine.ask("purge_dead", c.Forget, self._mailbox.name, None))
