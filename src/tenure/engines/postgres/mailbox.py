"""A mailbox in PostgreSQL: one function call per operation, and a claim that waits on a bell when there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
    why_given_up,
)
from tenure.engines.postgres.connections import Rows
from tenure.engines.postgres.dead_letters import PostgresDeadLetters
from tenure.engines.postgres.message import PostgresMessage
from tenure.errors import (
    EngineUnavailableError,
    KeyRefusedError,
    MailboxClosedError,
    MailboxConnectionError,
)

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine

_decode_failure = msgspec.json.Decoder(Failure).decode
_PROVISIONAL, _HELD = 0, 1


class PostgresMailbox(Mailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox."""

    def __init__(
        self, engine: PostgresEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None
    ) -> None:
        self.name = check_name(name, "mailbox name")
        self.engine = engine
        self.max_delivery_count = check_delivery_limit(max_delivery_count)
        self.pace = engine.pace(name)
        self.body_codec, self.reply_codec = Codec(body), Codec(reply)
        self.polls = Polls(engine.bells, f"m/{name}")

    def query(self, operation: str, values: Sequence[Any]) -> Rows:
        """One round trip. For messages too: they stay valid when the handle is closed, not when the engine is."""
        statement = getattr(self.engine.statements, operation)
        return self.engine.connections.query(operation, statement, values, MailboxConnectionError)

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
        answer = check_reply_to(reply_to)
        if self.polls.closed:
            self._refuse()
        if key is None:
            rows = self.query("send", (self.name, encoded, float(delay), answer, generation))
            return str(rows[0][0])
        check_key(key)
        row = self.query("send_keyed", (self.name, encoded, float(delay), answer, generation, key))[0]
        number, current, revoked = row
        if current is not None:
            raise KeyRefusedError(key, generation, current, revoked=revoked)
        return str(number)

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
            rows = self.query("send_plain", (self.name, bodies, None, None, None))
            return [Sent(str(number)) for (number,) in rows]
        delays, answers = [float(m.delay) for m in messages], [m.reply_to for m in messages]
        generations, keys = [m.generation for m in messages], [m.key for m in messages]
        if not any(key is not None for key in keys):
            rows = self.query("send_plain", (self.name, bodies, delays, answers, generations))
            return [Sent(str(number)) for (number,) in rows]
        rows = self.query("send_mixed", (self.name, bodies, delays, answers, generations, keys))
        return [self._told(message, *row) for message, row in zip(messages, rows, strict=True)]

    def _told(self, message: Outgoing[BodyT], number: int, current: int | None, revoked: bool | None) -> Sent:
        if current is None or message.key is None:
            return Sent(str(number))
        return Sent(str(number), str(KeyRefusedError(message.key, message.generation, current, revoked=bool(revoked))))

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
        self.engine.tidy_if_due()
        stage = _PROVISIONAL if provisional else _HELD
        if wait_time_seconds:
            look = partial(self._claim, max_messages, float(visibility_timeout), stage, look=True)
            return self.polls.poll(wait_time_seconds, look)
        while True:
            claimed = self._claim(max_messages, float(visibility_timeout), stage, look=False)
            if not claimed.again:
                return claimed.found

    def _claim(self, most: int, lease: float, stage: int, *, look: bool) -> Look[Message[BodyT, ReplyT]]:
        """One claim. Poison and exhausted messages among it become dead letters; then there may be more to claim."""
        engine, pace = self.engine, self.pace
        if lost := pace.take_lost():
            self._give_back(lost)
        token = engine.new_token()
        now, asked = engine.clock.monotonic(), engine.clock.boottime()
        floor, look_in = pace.floor(now), pace.look_in(now)
        values = (self.name, most, lease, token, stage, self.max_delivery_count, floor, look and not look_in)
        try:
            rows = self.query("claim", values)
        except EngineUnavailableError:
            pace.lost_claim(token)
            raise
        took = engine.clock.monotonic() - now
        if rows[0][0] is None:
            pace.claimed(now, took, floor, None, filled=False)
            pace.found_nothing(now, rows[0][3])
            return Look([], False, look_in or rows[0][1])
        if len(rows) > 1:
            rows.sort(key=lambda row: (row[1], row[0]))
        pace.claimed(now, took, floor, rows[0][1], filled=len(rows) == most)
        messages = [made for row in rows if (made := self._message(row, token, asked + lease)) is not None]
        return Look(messages, not messages)

    def _give_back(self, tokens: list[int]) -> None:
        try:
            self.query("give_back", (self.name, tokens))
        except EngineUnavailableError:
            for token in tokens:
                self.pace.lost_claim(token)
            raise

    def _message(self, row: tuple[Any, ...], token: int, lease_until: float) -> Message[BodyT, ReplyT] | None:
        (
            number,
            _,
            deliveries,
            enqueued_at,
            exhausted,
            generation,
            is_failure,
            key,
            reply_to,
            checkpoint,
            encoded,
            forgiven,
            suspect,
        ) = row
        if exhausted is not None:
            self._bury(number, token, FailureCause.DELIVERIES, why_given_up(exhausted, expired=suspect))
            return None
        try:
            body = None if is_failure else self.body_codec.decode(encoded)
            failure = _decode_failure(encoded) if is_failure else None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._bury(number, token, FailureCause.UNDECODABLE, f"the body cannot be decoded: {error}")
            return None
        return PostgresMessage(
            self,
            number,
            token,
            body=body,
            delivery_count=deliveries,
            enqueued_at=enqueued_at,
            lease_until=lease_until,
            generation=generation,
            key=key,
            reply_to=reply_to,
            checkpoint=checkpoint,
            failure=failure,
            forgiven=forgiven,
            suspect=suspect,
        )

    def _bury(self, number: int, token: int, cause: FailureCause, reason: str) -> None:
        # False means that our lease ran out meanwhile: whoever claims it next comes to the same conclusion.
        self.query("bury", (number, token, cause.value, reason.replace("\0", "\ufffd")))

    def adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        if self.polls.closed:
            self._refuse()
        return PostgresMessage.adopted(self, ticket)

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        receipts = [message.receipt for message in messages if isinstance(message, PostgresMessage)]
        if not receipts:
            return list(messages)
        rows, tokens = map(list, zip(*receipts, strict=True))
        held = {str(number) for (number,) in self.query("acknowledge_many", (rows, tokens))}
        return [message for message in messages if message.id not in held]

    def wake(self) -> None:
        if self.polls.closed:
            self._refuse()
        self.polls.wake()

    def revoke(self, key: str) -> bool:
        check_key(key)
        return bool(self.asked("revoke", (self.name, key))[0][0])

    def depth(self) -> Depth:
        return Depth(*self.asked("depth", (self.name,))[0])

    def purge(self) -> int:
        return int(self.asked("purge", (self.name,))[0][0])

    @property
    def dead_letters(self) -> DeadLetters:
        return PostgresDeadLetters(self)

    @property
    def closed(self) -> bool:
        return self.polls.closed

    def close(self) -> None:
        self.polls.close()

    def asked(self, operation: str, values: Sequence[Any]) -> Rows:
        """One round trip for the handle itself, which must be open."""
        if self.polls.closed:
            self._refuse()
        return self.query(operation, values)

    def _refuse(self) -> NoReturn:
        self.engine.connections.check_open()
        raise MailboxClosedError(f"mailbox {self.name!r} was closed", remedy="Open it again from its engine")
