"""A consumer of many mailboxes in Redis: one script settles and claims. The server keeps the names of a large cover, so that most looks need not bring them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from tenure.engines.checked_consumer import CheckedSettlement, ClaimWish, Dead, PolledConsumer, Ranks
from tenure.engines.checked_mailbox import LostClaims
from tenure.engines.contracts import BodyT, Message, ReplyT
from tenure.engines.long_poll import LookResult
from tenure.engines.redis.handover import HandoverPoll, Offer
from tenure.engines.redis.mailbox import RedisMessage, microseconds, refusals, settle
from tenure.engines.redis.session import Argument
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


class Offering(NamedTuple):
    """The offer that a look leaves in a mailbox, and those that it takes back from there."""

    mailbox: str
    offer: Offer | None
    stale: Sequence[str]


_NO_OFFERING = Offering("", None, ())


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
        self._take: Callable[[Message[BodyT, ReplyT]], None] | None = None
        self._last_from = ""
        """The mailbox of the last message: the next one is likely to be of the same workflow."""

    def take_at_once(self, take: Callable[[Message[BodyT, ReplyT]], None]) -> None:
        self._take = take

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
        left: Offering = wish.offering or _NO_OFFERING
        offer, stale = left.offer, left.stale
        offered = (offer.text if offer is not None else "", left.mailbox)
        counts = (int(wish.fair), *offered, cover, len(ranks), len(stale), len(group), len(brought))
        names: list[Argument] = []
        for rank in brought:
            names += [len(rank), *rank]
        try:
            told = self.engine.call("exchange", *limits, *counts, *stale, *settled, *names)
        except EngineUnavailableError:
            claims.append(claim)
            self._lost.add(claim)
            raise
        _, due, rows, at, lost = told
        dead = _dead(refusals(lost))
        if not rows:
            if offer is not None and due != 0:
                offer.asked_at, offer.left_at = asked, at
            return LookResult([], due == 0, due / 1e6 if due > 0 else None), dead
        claims.append(claim)
        made = (self.handle_of(row[11].decode()).message(row, claim.token, asked + wish.lease_s) for row in rows)
        found: list[Message[BodyT, ReplyT]] = [message for message in made if message is not None]
        self._last_from = found[-1].mailbox if found else self._last_from
        return LookResult(found, not found), dead

    def _poll(
        self, wait_s: float, wish: ClaimWish, look: Callable[..., LookResult[Message[BodyT, ReplyT]]]
    ) -> list[Message[BodyT, ReplyT]]:
        """While it waits, it has an offer in the mailbox of the last message: the next one there comes claimed, without another look."""
        name = self._last_from
        if not self.engine.hands_over or name not in wish.names:
            return super()._poll(wait_s, wish, look)

        def claim(offer: Offer | None, stale: Sequence[str]) -> LookResult[Message[BodyT, ReplyT]]:
            return look(Offering(name, offer, stale))

        stage = 0 if wish.provisional else 1
        poll = HandoverPoll(self.handle_of(name), wish.lease_s, stage, self._bundle, claim, self._take)
        return poll.poll(self.polls, wait_s)

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
