"""Messages that are handed over: the script that sends gives a message to a consumer that waits, already claimed for it.

A consumer that finds nothing leaves an *offer* with its claim. The server publishes the message to the address of the consumer's process, where the
ear delivers it here; no second round trip is made, and with `appendfsync always` no second sync waited for. Decision 0171 says what
happens to a consumer that does not answer.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from tenure.engines.contracts import BodyT, Message, ReplyT
from tenure.engines.long_poll import Look
from tenure.engines.redis.scripts import HANDED_S
from tenure.errors import EngineUnavailableError

if TYPE_CHECKING:
    from tenure.engines.redis.aside import Aside
    from tenure.engines.redis.mailbox import RedisMailbox, RedisMessage


log = logging.getLogger("tenure.engines.redis")


class Notice(msgspec.Struct, array_like=True, frozen=True):
    """The fields that `hand.lua` sends of a message; its checkpoint and body follow."""

    token: str
    mailbox: str
    id: str
    now: str
    writes: str
    generation: str
    failure: bool
    key: str | bool
    reply_to: str | bool
    checkpoint_bytes: int | bool

    def row(self, rest: bytes) -> list[Any]:
        """As a claim tells it: a first delivery."""
        size = None if self.checkpoint_bytes is False else int(self.checkpoint_bytes)
        checkpoint, body = (None, rest) if size is None else (rest[:size], rest[size:])
        key, reply_to = (str(word).encode() if word is not False else None for word in (self.key, self.reply_to))
        return [1, 0, self.id.encode(), self.now, self.generation, self.failure, key, reply_to, checkpoint, body, 0]


_read_notice = msgspec.json.Decoder(Notice).decode


class Offer:
    """Left by one claim, under its token."""

    __slots__ = ("asked_at", "condition", "left_at", "notice", "rest", "token", "words")

    def __init__(self, token: str, words: str, asked_at: float, condition: threading.Condition) -> None:
        self.token, self.words, self.asked_at, self.condition = token, words, asked_at, condition
        self.left_at = 0
        """The server's time when it was left, in microseconds; 0: it was not, or nobody knows."""
        self.notice: Notice | None = None
        self.rest = b""


class Offers:
    """The offers of one engine object, and how they are told that something was handed over."""

    def __init__(self, name: str, aside: Aside) -> None:
        self._name, self._aside = name, aside
        self._open: dict[str, tuple[str, Offer]] = {}

    @property
    def address(self) -> str:
        """The id of this process: a forked child has the same name, and must not take its parent's messages."""
        return f"{self._name}.{os.getpid()}"

    def make(self, mailbox: RedisMailbox[Any, Any], lease_us: int, stage: int) -> Offer:
        token = mailbox.engine.new_token()
        words = f"{token} {self._name} {self.address} {lease_us} {stage}"
        offer = Offer(token, words, mailbox.engine.clock.boottime(), mailbox.topic.condition)
        self._open[token] = (mailbox.name, offer)
        return offer

    def forget(self, offer: Offer) -> None:
        self._open.pop(offer.token, None)

    def deliver(self, payload: bytes) -> None:
        """Called by the ear. What nobody waits for any more goes back at once."""
        head, _, rest = payload.partition(b"\n")
        try:
            notice = _read_notice(head)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("somebody published to %s what is no message", self.address)
            return
        _, offer = self._open.get(notice.token, ("", None))
        if offer is None:
            self._aside.tell("withdraw", notice.mailbox, notice.token)
            return
        with offer.condition:
            offer.notice, offer.rest = notice, rest
            offer.condition.notify_all()

    def close(self) -> None:
        """The ear is closed: take back what may have been handed over a moment before. A forked child leaves its parent's alone."""
        ours = f" {self.address} "
        for mailbox, offer in [one for one in list(self._open.values()) if ours in one[1].words]:
            self._aside.tell("withdraw", mailbox, offer.words)


class Waiter(Generic[BodyT, ReplyT]):
    """One long poll for one message: looks by claims that leave an offer, and takes what is handed over meanwhile."""

    def __init__(self, mailbox: RedisMailbox[BodyT, ReplyT], lease_s: float, stage: int) -> None:
        self._mailbox, self._lease_s, self._stage = mailbox, lease_s, stage
        self._engine, self._offers = mailbox.engine, mailbox.engine.offers
        self._offer: Offer | None = None
        self._stale: list[str] = []
        """Offers that the server may still have, and on which nothing is accepted any more."""

    def handed(self) -> bool:
        return self._offer is not None and self._offer.notice is not None

    def look(self) -> Look[Message[BodyT, ReplyT]]:
        offered, self._offer = self._offer, None
        if offered is not None:
            self._offers.forget(offered)
            if offered.notice is not None and (accepted := self._accept(offered, offered.notice)) is not None:
                return accepted
            self._stale.append(offered.words)
        offer = None
        if self._mailbox.topic.listening:  # otherwise nobody would be told
            offer = self._offers.make(self._mailbox, round(self._lease_s * 1e6), self._stage)
        try:
            look = self._mailbox.claim(1, self._lease_s, self._stage, offer, self._stale)
        except BaseException:  # it may have been left, or not
            if offer is not None:
                self._offers.forget(offer)
                self._stale.append(offer.words)
            raise
        self._stale.clear()
        if offer is not None and offer.left_at:
            self._offer = offer
        elif offer is not None:
            self._offers.forget(offer)
        return look

    def leave(self) -> None:
        """The poll is over."""
        if self._offer is not None:
            self._offers.forget(self._offer)
            self._stale.append(self._offer.words)
            self._offer = None
        if self._stale and self._mailbox.topic.listening:  # without an ear nothing is handed over
            self._engine.aside.tell("withdraw", self._mailbox.name, *self._stale)

    def _accept(self, offer: Offer, notice: Notice) -> Look[Message[BodyT, ReplyT]] | None:
        """The message; None when so much of its short lease has passed that we ask the server what became of it."""
        now, span = self._engine.clock.boottime(), min(self._lease_s, HANDED_S)
        # The server's time told in ours, by what we know to be earlier: the moment before we asked for the time that it told us.
        handed_at = min(now, offer.asked_at + (int(notice.now) - offer.left_at) / 1e6)
        if now > handed_at + span / 2:
            return None
        self._engine.metrics.took("hand_over", now - handed_at)
        self._engine.connections.learn(int(notice.writes))
        message = self._mailbox.message(notice.row(offer.rest), offer.token, handed_at + span)
        if message is None:
            return Look([], again=True)
        if self._stage or self._lease_s > span:
            ends = int(notice.now) + round(self._lease_s * 1e6)
            return Look([message]) if self._confirm(message, ends, handed_at + self._lease_s) else Look([], again=True)
        return Look([message])

    def _confirm(self, message: RedisMessage[BodyT, ReplyT], ends: int, lease_until: float) -> bool:
        """Tell the server that it arrived, without waiting for the answer if possible; False when it is not ours any more."""
        aside, values = self._engine.aside, (self._mailbox.name, *message.receipt, ends, self._stage)
        if aside.tell("confirm", *values, answered=message.to_be_confirmed(aside, lease_until)):
            return True
        try:
            answer = self._mailbox.call("confirm", *values[1:])
        except EngineUnavailableError:
            self._mailbox.lost_claims.add(message.receipt[1])
            raise
        message.to_be_confirmed(aside, lease_until)(answer)
        return len(answer) == 1
