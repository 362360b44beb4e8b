"""A consumer of many mailboxes in PostgreSQL: one function call settles and claims, hence one round trip and one commit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from tenure.engines.checked_consumer import CheckedSettlement, ClaimWish, Dead, PolledConsumer, Ranks
from tenure.engines.checked_mailbox import LostClaims
from tenure.engines.contracts import BodyT, Message, ReplyT
from tenure.engines.long_poll import LookResult
from tenure.engines.postgres.connections import Rows
from tenure.engines.postgres.mailbox import PostgresMessage
from tenure.errors import EngineUnavailableError, MailboxConnectionError

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine

_FULL_EVERY_S = 0.5
"""The seconds after which a claim begins at the very beginning of each mailbox: see `ClaimPace`."""
_NOT_HELD, _CLAIMED = 0, 1


class PostgresClaim(NamedTuple):
    """One claim: its token, and the mailboxes that it looked at."""

    token: int
    names: tuple[str, ...]


class PostgresConsumer(PolledConsumer[BodyT, ReplyT, PostgresClaim], Generic[BodyT, ReplyT]):
    engine: PostgresEngine

    def __init__(self, engine: PostgresEngine, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        super().__init__(engine, body, reply, max_delivery_count)
        self._lost: LostClaims[PostgresClaim] = LostClaims()
        self._floors: dict[str, tuple[float, int]] = {}
        """Where the last claim of a mailbox found something: dead rows before it need not be walked over. It holds until something was put before it."""
        self._full_at = 0.0

    def _is_ours(self, message: Any) -> bool:
        return isinstance(message, PostgresMessage) and message.is_of(self.engine)

    def _settle(self, group: Sequence[CheckedSettlement]) -> Dead:
        return self._dead(group, self._ask("exchange", *_settlements(group), "", [], [], 0, 0.0, 0, 1, None, False))

    def _look(
        self, group: Sequence[CheckedSettlement], wish: ClaimWish, claims: list[PostgresClaim], *, first: bool
    ) -> tuple[LookResult[Message[BodyT, ReplyT]], Dead]:
        self.engine.tidy_if_due()
        self._lost.give_back(self._give_back)
        claim = PostgresClaim(self.engine.new_token(), wish.names)
        now, asked = self.engine.clock.monotonic(), self.engine.clock.boottime()
        if not first or now >= self._full_at:
            self._full_at, self._floors = now + _FULL_EVERY_S, {}
        floors = {name: at for name, (at, moves) in list(self._floors.items()) if moves == self._moves(name)}
        limits = (
            wish.most,
            wish.lease_s,
            claim.token,
            0 if wish.provisional else 1,
            self.max_delivery_count,
            wish.waits,
        )
        try:
            cover = (_cover_text(wish.ranks), list(floors), list(floors.values()))
            rows = self._ask("exchange", *_settlements(group), *cover, *limits)
        except EngineUnavailableError:
            claims.append(claim)
            self._lost.add(claim)
            raise
        dead = self._dead(group, rows)
        claimed = [row for row in rows if row[0] == _CLAIMED]
        if len(claimed) > 1:
            rank_of = {name: place for place, rank in enumerate(wish.ranks) for name in rank}
            claimed.sort(key=lambda row: (rank_of[row[1]], row[3], row[2]))
        if not claimed:
            self._floors = {}
            due = next((row[3] for row in rows if row[0] not in (_NOT_HELD, _CLAIMED)), None)
            return LookResult([], bool(floors), due), dead  # where it did not look everywhere, it looks again
        claims.append(claim)
        self._floors |= {row[1]: (row[3] - 0.001, self._moves(row[1])) for row in reversed(claimed)}
        made = (self.handle_of(row[1]).message(row[2:], claim.token, asked + wish.lease_s) for row in claimed)
        found: list[Message[BodyT, ReplyT]] = [message for message in made if message is not None]
        return LookResult(found, not found), dead

    def _moves(self, name: str) -> int:
        moves: int = self.handle_of(name).pace.moves
        return moves

    def _dead(self, group: Sequence[CheckedSettlement], rows: Rows) -> Dead:
        gone = {row[2]: row[8] for row in rows if row[0] == _NOT_HELD}
        places = {one.message.receipt[0]: place for place, one in enumerate(group)}
        return {places[number]: is_gone for number, is_gone in gone.items()}

    def _give_back(self, lost: list[PostgresClaim]) -> None:
        tokens = [claim.token for claim in lost]
        for name in {name for claim in lost for name in claim.names}:
            self._ask("give_back", name, tokens)

    def _still_held(self, claims: list[PostgresClaim]) -> list[Message[BodyT, ReplyT]]:
        names = sorted({name for claim in claims for name in claim.names})
        asked = self.engine.clock.boottime()
        rows = self._ask("held", names, [claim.token for claim in claims])
        self._lost.forget(claims)  # they are ours again, and are not given back
        made = (self.handle_of(row[0]).message(row[2:], row[1], asked + row[3]) for row in rows)
        return [message for message in made if message is not None]

    def _extend_many(self, messages: Sequence[Any], seconds: float) -> set[int]:
        numbers, tokens = zip(*(message.receipt for message in messages), strict=True)
        held = {row[0] for row in self._ask("extend_many", list(numbers), list(tokens), seconds)}
        return {place for place, number in enumerate(numbers) if number not in held}

    def _ask(self, operation: str, *values: Any) -> Rows:
        statement = getattr(self.engine.statements, operation)
        return self.engine.connections.query(operation, statement, values, MailboxConnectionError)


@lru_cache(maxsize=64)
def _cover_text(ranks: Ranks) -> str:
    """As `exchange` takes them: a name has neither of these two characters."""
    return ";".join(",".join(rank) for rank in ranks)


def _settlements(group: Sequence[CheckedSettlement]) -> tuple[list[Any], ...]:
    receipts = [one.message.receipt for one in group]
    return (
        [number for number, _ in receipts],
        [token for _, token in receipts],
        [one.message.reply_to for one in group],
        [one.reply for one in group],
    )
