"""A consumer of many mailboxes of one file: settles and claims in one transaction, hence with one sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.checked_consumer import CheckedSettlement, ClaimWish, Dead, PolledConsumer
from tenure.engines.contracts import BodyT, Message, ReplyT
from tenure.engines.long_poll import LookResult
from tenure.engines.sqlite.database import micros
from tenure.engines.sqlite.mailbox import seconds_until_visible
from tenure.engines.sqlite.message import RankedClaim, SqliteMessage

if TYPE_CHECKING:
    from tenure.engines.sqlite.engine import SqliteEngine

Deliveries = list[Message[BodyT, ReplyT]]


class SqliteConsumer(PolledConsumer[BodyT, ReplyT, Deliveries[BodyT, ReplyT]], Generic[BodyT, ReplyT]):
    """A claim is known by its deliveries: no answer gets lost on the way from a file."""

    engine: SqliteEngine

    def _is_ours(self, message: Any) -> bool:
        return isinstance(message, SqliteMessage) and message.is_in(self.engine.database)

    def _look(
        self,
        group: Sequence[CheckedSettlement],
        wish: ClaimWish,
        claims: list[Deliveries[BodyT, ReplyT]],
        *,
        first: bool,
    ) -> tuple[LookResult[Message[BodyT, ReplyT]], Dead]:
        database = self.engine.database
        if not first:
            # Reads before it claims: of many who were woken for one message, one writes.
            due_in = seconds_until_visible(database, wish.names)
            if due_in > 0 or self.closed:
                return LookResult([], due_in=due_in), {}
        claim = RankedClaim(
            wish.ranks, wish.most, micros(wish.lease_s), wish.provisional, self.max_delivery_count, self.engine.new_id
        )
        lease_until = self.engine.clock.boottime() + wish.lease_s
        with database.claiming(provisional=wish.provisional and not group) as tx:
            now = database.now()
            dead = _settled(tx, now, group)
            rows = claim.take(tx, now)
        if claim.counted and not group:
            database.sync()
        self._ring(group, dead, claim.rings)
        made = [self.handle_of(row[13]).delivery(row, lease_until) for row in rows]
        found: Deliveries[BodyT, ReplyT] = [message for message in made if message is not None]
        if found:
            claims.append(found)
            return LookResult(found), dead
        # None of them could be decoded, or another consumer was faster.
        return LookResult([], again=bool(rows) or not first), dead

    def _settle(self, group: Sequence[CheckedSettlement]) -> Dead:
        database = self.engine.database
        with database.writer as tx:
            dead = _settled(tx, database.now(), group)
        self._ring(group, dead, ())
        return dead

    def _ring(self, group: Sequence[CheckedSettlement], dead: Dead, more: Sequence[str]) -> None:
        """Tells those who wait for the mailboxes that got something."""
        told = {one.message.reply_to for place, one in enumerate(group) if one.reply is not None and place not in dead}
        for name in {*told, *more}:
            self.engine.wakeups.ring(f"{self.topic_prefix}{name}")

    def _still_held(self, claims: list[Deliveries[BodyT, ReplyT]]) -> Deliveries[BodyT, ReplyT]:
        given: list[Any] = [message for found in claims for message in found]
        database = self.engine.database
        with database.reader as tx:
            return [message for message in given if message.is_held_in(tx, database.now())]

    def _extend_many(self, messages: Sequence[Any], seconds: float) -> set[int]:
        database = self.engine.database
        with database.writer as tx:
            now = database.now()
            return {place for place, message in enumerate(messages) if not message.extend_in(tx, now, seconds)}


def _settled(tx: Any, now: int, group: Sequence[CheckedSettlement]) -> Dead:
    outcomes = [message.settle_in(tx, now, reply) for message, reply in group]
    return {place: gone for place, gone in enumerate(outcomes) if gone is not None}
