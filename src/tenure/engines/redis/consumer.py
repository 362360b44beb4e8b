"""A consumer of many mailboxes in Redis: one script settles and claims. The server keeps the names of a large cover, so that most looks need not bring them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from tenure.engines.checked_consumer import CheckedSettlement, ClaimWish, Dead, PolledConsumer, Ranks
from tenure.engines.checked_mailbox import LostClaims
from tenure.engines.contracts import BodyT, Message, ReplyT
from tenure.engines.long_poll import LookResult
from tenure.engines.redis.connections import Argument
from tenure.engines.redis.mailbox import RedisMessage, microseconds, refusals, settle
from tenure.errors import EngineUnavailableError

if TYPE_CHECKING:
    from tenure.engines.redis.engine import RedisEngine

_FEW = 16
"""So many mailboxes are looked at one by one; of more, only those that are known to hold something."""
_ALL_EVERY_S = 2.0
"""The seconds after which a look brings the names of a large cover, and looks at all of them: a process of the first release does not note
where it sends to."""
_GONE = "it was settled, replaced, revoked or purged"
"""As `lost.lua` says it."""


class RedisClaim(NamedTuple):
    """One claim: its token, and the mailboxes that it looked at."""

    token: str
    names: tuple[str, ...]


class RedisConsumer(PolledConsumer[BodyT, ReplyT, RedisClaim], Generic[BodyT, ReplyT]):
    engine: RedisEngine

    def __init__(self, engine: RedisEngine, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        super().__init__(engine, body, reply, max_delivery_count)
        self._limit: Argument = "" if max_delivery_count is None else max_delivery_count
        self._name = engine.new_token()
        self._all_at = 0.0
        """When the next look at all mailboxes is due, in monotonic time."""
        self._lost: LostClaims[RedisClaim] = LostClaims()

    def _cover(self, names: tuple[str, ...]) -> None:
        self._all_at = 0.0
        super()._cover(names)

    def _is_ours(self, message: Any) -> bool:
        return isinstance(message, RedisMessage) and message.is_of(self.engine)

    def _settle(self, group: Sequence[CheckedSettlement]) -> Dead:
        return _dead(settle(self.engine, group))

    def _look(
        self, group: Sequence[CheckedSettlement], wish: ClaimWish, claims: list[RedisClaim], *, first: bool
    ) -> tuple[LookResult[Message[BodyT, ReplyT]], Dead]:
        self._lost.give_back(self._give_back)
        claim = RedisClaim(self.engine.new_token(), wish.names)
        asked = self.engine.clock.boottime()
        limits = (wish.most, microseconds(wish.lease_s), claim.token, 0 if wish.provisional else 1, self._limit)
        settled = [word for message, reply in group for word in message.settlement(reply)]
        ranks = wish.ranks[::-1] if wish.fair else wish.ranks
        cover, brought = self._brought(claim.names, ranks, first)
        counts = (int(wish.fair), "", cover, len(ranks), 0, len(group), len(brought))
        names: list[Argument] = []
        for rank in brought:
            names += [len(rank), *rank]
        try:
            told = self.engine.call("exchange", *limits, *counts, *settled, *names)
        except EngineUnavailableError:
            claims.append(claim)
            self._lost.add(claim)
            raise
        _, due, rows, _, lost = told
        dead = _dead(refusals(lost))
        if not rows:
            return LookResult([], due == 0, due / 1e6 if due > 0 else None), dead
        claims.append(claim)
        made = (self.handle_of(row[11].decode()).message(row, claim.token, asked + wish.lease_s) for row in rows)
        found: list[Message[BodyT, ReplyT]] = [message for message in made if message is not None]
        return LookResult(found, not found), dead

    def _brought(self, names: tuple[str, ...], ranks: Ranks, first: bool) -> tuple[str, Ranks]:
        """Returns the cover that the server keeps, and the ranks whose names the look brings."""
        if len(names) <= _FEW:
            return "", ranks
        now = self.engine.clock.monotonic()
        if first and now < self._all_at:
            return self._name, ()
        self._all_at = now + _ALL_EVERY_S
        return self._name, ranks

    def _give_back(self, lost: list[RedisClaim]) -> None:
        names = {name for claim in lost for name in claim.names}
        self.engine.call("give_back", len(names), *names, *(claim.token for claim in lost))

    def _still_held(self, claims: list[RedisClaim]) -> list[Message[BodyT, ReplyT]]:
        names = {name for claim in claims for name in claim.names}
        asked = self.engine.clock.boottime()
        rows = self.engine.call("held", len(names), *names, *(claim.token for claim in claims))[1]
        self._lost.forget(claims)  # they are ours again, and are not given back
        made = (self.handle_of(row[11].decode()).message(row, row[12].decode(), asked + row[13] / 1e6) for row in rows)
        return [message for message in made if message is not None]

    def _extend_many(self, messages: Sequence[Any], seconds: float) -> set[int]:
        words = (word for message in messages for word in message.address)
        return set(refusals(self.engine.call("extend", microseconds(seconds), 0, b"", *words)[1]))


def _dead(refused: dict[int, str]) -> Dead:
    return {place: why == _GONE for place, why in refused.items()}
