"""The front of a consumer, the same on every engine: checks, encoded replies, and the memory that makes a repeated exchange harmless.

A caller that lost the answer of an exchange makes it again (RULINGS.md, 11). Engines keep nothing for that. A consumer remembers the receipts that it
settled, those whose settlement has an unknown outcome, and the claims that it made under each `claim_id`; an engine is asked only for what is still
held. It does not know how an engine keeps messages: an engine implements the methods that begin with `_`, which are given what was checked.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from tenure.engines.checked_handles import CheckedEngine, PolledEngine
from tenure.engines.checked_mailbox import CheckedMailbox
from tenure.engines.checks import (
    BodyCodec,
    check_claim_size,
    check_cover,
    check_delivery_limit,
    check_key,
    check_seconds,
)
from tenure.engines.contracts import MAX_WAIT_S, NO_REPLY, BodyT, Consumer, Exchanged, Message, ReplyT, Settlement
from tenure.engines.long_poll import LookResult
from tenure.errors import EngineUnavailableError, MailboxClosedError, TenureError

_REMEMBERED_RECEIPTS = 4_096
_REMEMBERED_CLAIMS = 256
_REMEMBERED_DELIVERIES = 512
"""Engines that keep a claim as its deliveries keep so many of them, and in any case those of the newest claim: each has the body of its message."""

Ranks = tuple[tuple[str, ...], ...]
Messages = list[Message[BodyT, ReplyT]]


class CheckedSettlement(NamedTuple):
    """A settlement with its reply encoded; None acknowledges only."""

    message: Any
    reply: bytes | None


class ClaimWish(NamedTuple):
    """How one exchange claims."""

    most: int
    lease_s: float
    provisional: bool
    ranks: Ranks
    """In the order of this claim."""
    fair: bool
    waits: bool
    """True when it waits for a message, and so wants to know when the next one is due."""

    offering: Any = None
    """Holds what an engine leaves with the look, so that it is given the next message without another one."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for rank in self.ranks for name in rank)


Dead = dict[int, bool]
"""The settlements of a group that had no effect, by their place. True where the message is gone, whoever removed it."""

ClaimT = TypeVar("ClaimT")
"""Names one claim to its engine: that finds those of its deliveries that are still held."""


class CheckedConsumer(Consumer[BodyT, ReplyT], Generic[BodyT, ReplyT, ClaimT]):
    """Arguments are refused before the engine is asked."""

    def __init__(self, engine: CheckedEngine, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        self.engine: CheckedEngine = engine
        self.max_delivery_count = check_delivery_limit(max_delivery_count)
        self.body_codec, self._types = BodyCodec(body), (body, reply)
        self.ranks: Ranks = ()
        self._handles: dict[str, CheckedMailbox[Any, Any]] = {}
        self._remembering = threading.Lock()
        """Guards what it remembers."""
        self._done: dict[tuple[str, str], None] = {}
        """Receipts that it settled, the newest last."""
        self._doubtful: dict[tuple[str, str], None] = {}
        """Receipts of settlements whose answer was lost."""
        self._claims: dict[str, list[ClaimT]] = {}
        self._kept = 0
        """Counts the deliveries that are in these."""

    # What an engine implements

    @abstractmethod
    def _cover(self, names: tuple[str, ...]) -> None:
        """Waits for these mailboxes from now on. `self.ranks` has them already."""

    @abstractmethod
    def _exchange(
        self, group: Sequence[CheckedSettlement], wish: ClaimWish | None, wait_s: float, claims: list[ClaimT]
    ) -> tuple[Messages[BodyT, ReplyT], Dead]:
        """Settles and claims. `claims` gets each claim that was made, or may have been made."""

    @abstractmethod
    def _still_held(self, claims: list[ClaimT]) -> Messages[BodyT, ReplyT]:
        """Returns the deliveries of earlier claims that nobody settled, and whose lease goes on."""

    @abstractmethod
    def _extend_many(self, messages: Sequence[Any], seconds: float) -> set[int]:
        """Returns the places of those that were not held."""

    # The contract

    def cover(self, ranks: Sequence[Sequence[str]]) -> None:
        self.check_open()
        self.ranks = check_cover(ranks)
        names = tuple(name for rank in self.ranks for name in rank)
        self._handles = {name: handle for name, handle in self._handles.items() if name in names}
        self._cover(names)

    def exchange(
        self,
        settlements: Sequence[Settlement[BodyT, ReplyT]] = (),
        *,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        provisional: bool = False,
        claim_id: str = "",
        fair: bool = False,
    ) -> Exchanged[BodyT, ReplyT]:
        check_claim_size(max_messages)
        check_seconds("visibility_timeout", visibility_timeout)
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        if claim_id:
            check_key(claim_id, "claim_id")
        self.check_open()
        group, foreign, refused = self._checked(settlements)
        lost: Messages[BodyT, ReplyT] = foreign
        if claim_id and (earlier := self._claims.get(claim_id)):
            lost += self._settle_and_claim(group, None, 0, [])[1]
            if found := self._still_held(earlier):
                return Exchanged(found, lost, refused)
            group = []
        claims: list[ClaimT] = []
        waits, lease_s = wait_time_seconds > 0, visibility_timeout + 0.0
        wish = ClaimWish(max_messages, lease_s, provisional, self._order(fair), fair, waits)
        try:
            found, more = self._settle_and_claim(group, wish if max_messages else None, wait_time_seconds, claims)
        finally:
            if claim_id and claims:
                self._remember_claims(claim_id, claims)
        return Exchanged(found, lost + more, refused)

    def _order(self, fair: bool) -> Ranks:
        return self.ranks[::-1] if fair else self.ranks

    def _settle_and_claim(
        self, group: list[CheckedSettlement], wish: ClaimWish | None, wait_s: float, claims: list[ClaimT]
    ) -> tuple[Messages[BodyT, ReplyT], Messages[BodyT, ReplyT]]:
        """Returns the deliveries that were claimed, and those whose settlement was lost."""
        if not group and wish is None:
            return [], []
        try:
            found, dead = self._exchange(group, wish, wait_s, claims)
        except EngineUnavailableError:
            with self._remembering:
                self._doubtful.update(dict.fromkeys(_receipt(one.message) for one in group))
            raise
        return found, self._note_settled(group, dead)

    def extend(self, messages: Sequence[Message[BodyT, ReplyT]], seconds: float) -> Messages[BodyT, ReplyT]:
        check_seconds("visibility_timeout", seconds)
        self.check_open()
        ours: list[Any] = [message for message in messages if self._is_ours(message)]
        asked = self.engine.clock.boottime()
        dead = self._extend_many(ours, float(seconds)) if ours else set()
        for place, message in enumerate(ours):
            if place not in dead:
                message.lease_until = max(message.lease_until, asked + seconds)
        foreign = [message for message in messages if not self._is_ours(message)]
        return foreign + [ours[place] for place in sorted(dead)]

    # For the engine

    def handle_of(self, name: str) -> Any:
        """Returns the handle of a mailbox that the deliveries of this consumer belong to."""
        found = self._handles.get(name)
        if found is None:
            body, reply = self._types
            made: Any = self.engine.mailbox(name, body, reply, max_delivery_count=self.max_delivery_count)
            found = self._handles[name] = made
        return found

    def check_open(self) -> None:
        if self.closed:
            self.engine.check_open()
            raise MailboxClosedError("this consumer was closed", remedy="Make another one with engine.consumer()")

    @abstractmethod
    def _is_ours(self, message: Any) -> bool:
        """Returns True for a delivery of this engine object, from whichever handle."""

    def _checked(
        self, settlements: Sequence[Settlement[BodyT, ReplyT]]
    ) -> tuple[list[CheckedSettlement], Messages[BodyT, ReplyT], list[tuple[Message[BodyT, ReplyT], TenureError]]]:
        """Returns the group for the engine, the deliveries of other engines, and those whose reply cannot be sent."""
        group: dict[tuple[str, str], CheckedSettlement] = {}
        foreign, refused = [], []
        for message, reply in settlements:
            if not self._is_ours(message):
                foreign.append(message)
                continue
            ours: Any = message
            if (receipt := _receipt(ours)) in self._done:
                continue
            try:
                group[receipt] = CheckedSettlement(ours, None if reply is NO_REPLY else ours.encode_reply(reply))
            except TenureError as error:
                refused.append((message, error))
        return list(group.values()), foreign, refused

    def _note_settled(self, group: list[CheckedSettlement], dead: Dead) -> Messages[BodyT, ReplyT]:
        """Remembers the receipts that were settled. Returns the deliveries that were lost.

        A settlement with an unknown outcome, whose message is gone while our lease went on, was done: nobody else can have claimed it. If its key was
        revoked or replaced instead, whoever did that has no use for the result.
        """
        lost: Messages[BodyT, ReplyT] = []
        now = self.engine.clock.boottime()
        with self._remembering:
            for place, (message, _) in enumerate(group):
                receipt = _receipt(message)
                doubtful = self._doubtful.pop(receipt, False) is None
                gone = dead.get(place)
                if gone is None or (gone and doubtful and message.lease_left(now) > 0):
                    self._done[receipt] = None
                else:
                    lost.append(message)
            _shorten(self._done, _REMEMBERED_RECEIPTS)
            _shorten(self._doubtful, _REMEMBERED_RECEIPTS)
        return lost

    def _remember_claims(self, claim_id: str, claims: list[ClaimT]) -> None:
        with self._remembering:
            self._claims[claim_id] = self._claims.pop(claim_id, []) + claims
            self._kept += _deliveries_in(claims)
            while len(self._claims) > 1 and (
                len(self._claims) > _REMEMBERED_CLAIMS or self._kept > _REMEMBERED_DELIVERIES
            ):
                self._kept -= _deliveries_in(self._claims.pop(next(iter(self._claims))))


def _receipt(message: Message[Any, Any]) -> tuple[str, str]:
    return message.id, message.receipt_handle


def _deliveries_in(claims: list[Any]) -> int:
    """Returns how many deliveries these claims keep in memory: most engines keep the name of a claim, and no delivery."""
    return sum(len(claim) for claim in claims if isinstance(claim, list))


def _shorten(memory: dict[Any, Any], most: int) -> None:
    """Forgets the oldest; a quarter of them at a time, so that it is rarely done."""
    if len(memory) > most:
        for each in list(islice(memory, most // 4)):
            del memory[each]


class PolledConsumer(CheckedConsumer[BodyT, ReplyT, ClaimT], Generic[BodyT, ReplyT, ClaimT]):
    """A consumer whose long polls wait in threads: on SQLite, PostgreSQL and Redis. One topic is rung for all of its mailboxes."""

    engine: PolledEngine

    def __init__(self, engine: PolledEngine, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        super().__init__(engine, body, reply, max_delivery_count)
        self._bundle = engine.wakeups.new_bundle()
        self.polls = engine.wakeups.polls_on(self._bundle)

    # What an engine implements

    @abstractmethod
    def _look(
        self, group: Sequence[CheckedSettlement], wish: ClaimWish, claims: list[ClaimT], *, first: bool
    ) -> tuple[LookResult[Message[BodyT, ReplyT]], Dead]:
        """Settles and claims in one round trip. `first` is the first look of an exchange."""

    @abstractmethod
    def _settle(self, group: Sequence[CheckedSettlement]) -> Dead: ...

    # For the front

    def _cover(self, names: tuple[str, ...]) -> None:
        prefix = self.topic_prefix
        self.engine.wakeups.cover(self._bundle, [f"{prefix}{name}" for name in names])

    @property
    def topic_prefix(self) -> str:
        mailbox: Any = self.engine.handles.mailbox
        prefix: str = mailbox.topic_prefix
        return prefix

    def _exchange(
        self, group: Sequence[CheckedSettlement], wish: ClaimWish | None, wait_s: float, claims: list[ClaimT]
    ) -> tuple[Messages[BodyT, ReplyT], Dead]:
        if wish is None:
            return [], self._settle(group)
        dead: Dead | None = None

        def look(offering: Any = None) -> LookResult[Message[BodyT, ReplyT]]:
            nonlocal dead
            # A later look takes from the mailboxes that are covered by then.
            wanted, left = (wish, group) if dead is None else (wish._replace(ranks=self._order(wish.fair)), ())
            if offering is not None:
                wanted = wanted._replace(offering=offering)
            if wanted.ranks:
                seen, now_dead = self._look(left, wanted, claims, first=dead is None)
            else:
                seen, now_dead = LookResult[Message[BodyT, ReplyT]]([]), self._settle(left) if left else {}
            dead = now_dead if dead is None else dead
            return seen

        if not wait_s:
            while (seen := look()).again:
                pass
            return seen.found, dead or {}
        try:
            return self._poll(wait_s, wish, look), dead or {}
        except EngineUnavailableError:
            if dead is None or not group:
                raise
            return [], dead  # the settlements were done: the next call meets the error

    def _poll(
        self, wait_s: float, wish: ClaimWish, look: Callable[..., LookResult[Message[BodyT, ReplyT]]]
    ) -> Messages[BodyT, ReplyT]:
        """Looks until something is found. `look` takes what the engine leaves with it, if anything."""
        return self.polls.poll(wait_s, look)

    def wake(self) -> None:
        self.check_open()
        self.polls.wake()

    @property
    def closed(self) -> bool:
        return self.polls.closed

    def close(self) -> None:
        self.polls.close()
        self.engine.wakeups.drop_bundle(self._bundle)
