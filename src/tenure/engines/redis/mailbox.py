"""A mailbox in Redis: one script per operation, and a claim that waits on a bell when there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn

import msgspec

from tenure.engines.bells import Look, Polls
from tenure.engines.checks import (
    check_batch,
    check_delivery_limit,
    check_generation,
    check_key,
    check_max_messages,
    check_name,
    check_reply_to,
    check_seconds,
)
from tenure.engines.codec import Codec
from tenure.engines.contracts import (
    MAX_WAIT_S,
    BodyT,
    DeadLetters,
    Depth,
    Failure,
    FailureCause,
    Mailbox,
    Message,
    Outgoing,
    ReplyT,
    Sent,
    Ticket,
)
from tenure.engines.redis.connections import Answer
from tenure.engines.redis.dead_letters import RedisDeadLetters
from tenure.engines.redis.handover import Offer, Waiter
from tenure.engines.redis.message import RedisMessage, plain_text
from tenure.engines.redis.session import Argument
from tenure.errors import EngineUnavailableError, KeyRefusedError, MailboxClosedError, MailboxConnectionError

if TYPE_CHECKING:
    from tenure.engines.redis.engine import RedisEngine

_decode_failure = msgspec.json.Decoder(Failure).decode
_PROVISIONAL, _HELD = 0, 1
PURGE_STEP = 1_000
"""How many messages one script removes: others get their turn in between."""


class RedisMailbox(Mailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox."""

    def __init__(self, engine: RedisEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        self.name = check_name(name, "mailbox name")
        self.engine = engine
        self.max_delivery_count = check_delivery_limit(max_delivery_count)
        self.limit: Argument = "" if max_delivery_count is None else max_delivery_count
        self.body_codec, self.reply_codec = Codec(body), Codec(reply)
        self.polls = Polls(engine.bells, f"m:{name}")
        self.lost_claims = engine.lost_claims(name)

    def call(self, operation: str, *values: Argument) -> Answer:
        """One round trip. For messages too: they stay valid when the handle is closed, not when the engine is."""
        return self.engine.connections.call(operation, (self.name, *values), MailboxConnectionError)

    def asked(self, operation: str, *values: Argument) -> Answer:
        if self.polls.closed:
            self._refuse()
        return self.call(operation, *values)

    def send(
        self,
        body: BodyT,
        *,
        key: str | None = None,
        generation: int = 0,
        reply_to: Mailbox[ReplyT, Any] | str | None = None,
        delay: float = 0,
    ) -> str:
        encoded = self.body_codec.encode(body)
        check_seconds("delay", delay)
        check_generation(generation)
        values = (encoded, microseconds(delay), check_reply_to(reply_to) or "", generation)
        if key is None:
            return str(self.asked("send", *values)[1].decode())
        check_key(key)
        answer = self.asked("send_keyed", *values, key)
        if len(answer) > 2:
            raise KeyRefusedError(key, generation, int(answer[2]), revoked=bool(answer[3]))
        return str(answer[1].decode())

    def send_many(self, messages: Sequence[Outgoing[BodyT]]) -> list[Sent]:
        check_batch(messages)
        bodies = [self.body_codec.encode(message.body) for message in messages]
        for message in messages:
            check_seconds("delay", message.delay)
            check_generation(message.generation)
            check_reply_to(message.reply_to)
            if message.key is not None:
                check_key(message.key)
        if self.polls.closed:
            self._refuse()
        if not messages:
            return []
        if all(m.key is None and m.reply_to is None and not m.delay and not m.generation for m in messages):
            first = self.call("send_plain", *bodies)[1]
            return [Sent(f"{number:016d}") for number in range(first, first + len(bodies))]
        values: list[Argument] = []
        for body, m in zip(bodies, messages, strict=True):
            values += (body, microseconds(m.delay), m.reply_to or "", m.generation, m.key or "")
        answers = self.call("send_mixed", *values)[1]
        return [self._told(message, *answer) for message, answer in zip(messages, answers, strict=True)]

    def _told(self, message: Outgoing[BodyT], name: bytes, current: bytes | None = None, revoked: int = 0) -> Sent:
        if current is None or message.key is None:
            return Sent(name.decode())
        error = KeyRefusedError(message.key, message.generation, int(current), revoked=bool(revoked))
        return Sent(name.decode(), str(error))

    def receive(
        self,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        *,
        provisional: bool = False,
    ) -> list[Message[BodyT, ReplyT]]:
        check_max_messages(max_messages)
        check_seconds("visibility_timeout", visibility_timeout)
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        if self.polls.closed:
            self._refuse()
        stage = _PROVISIONAL if provisional else _HELD
        if wait_time_seconds and max_messages == 1 and self.engine.hands_over:
            return self._wait_for_one(wait_time_seconds, Waiter(self, visibility_timeout, stage))
        if wait_time_seconds:
            return self.polls.poll(wait_time_seconds, lambda: self.claim(max_messages, visibility_timeout, stage))
        while True:
            claimed = self.claim(max_messages, visibility_timeout, stage)
            if not claimed.again:
                return claimed.found

    def _wait_for_one(self, wait_s: float, waiter: Waiter[BodyT, ReplyT]) -> list[Message[BodyT, ReplyT]]:
        try:
            return self.polls.poll(wait_s, waiter.look, waiter.handed)
        finally:
            waiter.leave()

    def claim(
        self, most: int, lease: float, stage: int, offer: Offer | None = None, withdrawn: Sequence[str] = ()
    ) -> Look[Message[BodyT, ReplyT]]:
        """One claim. Poison messages among it become dead letters; then there may be more to claim."""
        if lost := self.lost_claims.take():
            self._give_back(lost)
        token, words = (offer.token, offer.words) if offer is not None else (self.engine.new_token(), "")
        asked, values = self.engine.clock.boottime(), (most, microseconds(lease), token, stage, self.limit)
        try:
            _, due, rows, *at = self.call("claim", *values, words, *withdrawn)
        except EngineUnavailableError:
            self.lost_claims.add(token)
            raise
        if not rows:
            if offer is not None and at:
                offer.asked_at, offer.left_at = asked, at[0]
            return Look([], due == 0, due / 1e6 if due > 0 else None)
        messages: list[Message[BodyT, ReplyT]] = [
            made for row in rows if (made := self.message(row, token, asked + lease)) is not None
        ]
        return Look(messages, not messages)

    def _give_back(self, tokens: list[str]) -> None:
        try:
            self.call("give_back", *tokens)
        except EngineUnavailableError:
            self.lost_claims.add(*tokens)
            raise

    def message(self, row: list[Any], token: str, lease_until: float) -> RedisMessage[BodyT, ReplyT] | None:
        """A delivery as the server tells it; None when its body is of no use, and it was given up."""
        deliveries, forgiven, name, enqueued, generation, is_failure, key, reply_to, checkpoint, encoded, suspect = row
        message_id = name.decode()
        try:
            body = None if is_failure else self.body_codec.decode(encoded)
            failure = _decode_failure(encoded) if is_failure else None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            # A refusal means that our lease ran out meanwhile: whoever claims it next comes to the same conclusion.
            reason = plain_text(f"the body cannot be decoded: {error}")
            self.call("bury", message_id, token, FailureCause.UNDECODABLE.value, reason)
            return None
        return RedisMessage(
            self,
            message_id,
            token,
            body=body,
            delivery_count=deliveries,
            enqueued_at=int(enqueued) / 1e6,
            lease_until=lease_until,
            generation=int(generation or 0),
            key=None if key is None else key.decode(),
            reply_to=None if reply_to is None else reply_to.decode(),
            checkpoint=checkpoint,
            failure=failure,
            forgiven=int(forgiven or 0),
            suspect=bool(suspect),
        )

    def adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        if self.polls.closed:
            self._refuse()
        return RedisMessage.adopted(self, ticket)

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        ours = [message for message in messages if isinstance(message, RedisMessage)]
        if not ours:
            return list(messages)
        answer = self.call("acknowledge_many", *(word for message in ours for word in message.receipt))
        refused = {ours[position].receipt_handle for position in answer[1]}
        return [m for m in messages if not isinstance(m, RedisMessage) or m.receipt_handle in refused]

    def wake(self) -> None:
        if self.polls.closed:
            self._refuse()
        self.polls.wake()

    def revoke(self, key: str) -> bool:
        check_key(key)
        return bool(self.asked("revoke", key)[1])

    def depth(self) -> Depth:
        return Depth(*self.asked("depth")[1:])

    def purge(self) -> int:
        return self.in_steps("purge")

    def in_steps(self, operation: str) -> int:
        """Repeat what removes a step's worth until nothing is left; how many there were."""
        total = 0
        while gone := self.asked(operation, PURGE_STEP)[1]:
            total += gone
        return total

    @property
    def dead_letters(self) -> DeadLetters:
        return RedisDeadLetters(self)

    @property
    def closed(self) -> bool:
        return self.polls.closed

    def close(self) -> None:
        self.polls.close()

    def _refuse(self) -> NoReturn:
        self.engine.connections.check_open()
        raise MailboxClosedError(f"mailbox {self.name!r} was closed", remedy="Open it again from its engine")


def microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
