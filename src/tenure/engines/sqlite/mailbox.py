"""The mailbox: a table of live messages in the order in which they become visible."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

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
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.dead_letters import SqliteDeadLetters
from tenure.engines.sqlite.message import SqliteMessage
from tenure.engines.sqlite.rows import Death, NewMessage, bury, queue, select_key
from tenure.engines.sqlite.timeline import micros
from tenure.errors import KeyRefusedError, MailboxClosedError, ReceiptHandleExpiredError

if TYPE_CHECKING:
    import sqlite3

    from tenure.engines.sqlite.engine import SqliteEngine

_failures = Codec(Failure)


def topic_of(mailbox: str) -> str:
    return f"mailbox/{mailbox}"


class SqliteMailbox(Mailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on one mailbox of one engine. Safe to share between threads."""

    def __init__(self, engine: SqliteEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        self.name = check_name(name, "mailbox")
        self.engine, self.clock, self.database = engine, engine.clock, engine.database
        self.max_delivery_count = check_delivery_limit(max_delivery_count)
        self.new_id = engine.new_id
        self._codec, self.reply_codec = Codec(body), Codec(reply)
        self._topic = topic_of(name)
        self._polls = engine.bells.polls(self._topic)
        self._dead_letters = SqliteDeadLetters(engine, name, lambda: self._check_open())

    def _check_open(self) -> None:
        if self._polls.closed:
            raise MailboxClosedError(f"mailbox {self.name!r} was closed", remedy="Ask the engine for it again")

    def ring(self, other: str | None = None) -> None:
        """Tell those who wait for this mailbox, and for another one that got something in the same step."""
        self.engine.bells.ring(self._topic)
        if other is not None:
            self.ring_mailbox(other)

    def ring_mailbox(self, name: str) -> None:
        self.engine.bells.ring(topic_of(name))

    def send(
        self,
        body: BodyT,
        *,
        key: str | None = None,
        generation: int = 0,
        reply_to: Mailbox[ReplyT, Any] | str | None = None,
        delay: float = 0,
    ) -> str:
        self._check_open()
        database = self.database
        if key is None and reply_to is None and not delay and not generation:
            message_id = self.new_id()
            database.writer.once(sql.INSERT_PLAIN, self.name, message_id, self._codec.encode(body), stamps=2)
        else:
            message = self._new(self.new_id(), body, key, generation, reply_to, delay)
            message_id = message.id
            with database.writer as tx:
                queue(tx, self.name, message, database.now())
        self._sent()
        return message_id

    def _sent(self) -> None:
        self.engine.bells.ring(self._topic)
        self.engine.upkeep.after_write()

    def _new(
        self,
        message_id: str,
        body: BodyT,
        key: str | None,
        generation: int,
        reply_to: Mailbox[ReplyT, Any] | str | None,
        delay: float,
    ) -> NewMessage:
        if key is not None:
            check_key(key)
        if generation:
            check_generation(generation)
        delay_us = micros(check_seconds("delay", delay)) if delay else 0
        return NewMessage(message_id, self._codec.encode(body), key, generation, check_reply_to(reply_to), delay_us)

    def send_many(self, messages: Sequence[Outgoing[BodyT]]) -> list[Sent]:
        self._check_open()
        check_batch(messages)
        if not messages:
            return []
        stem = self.new_id()  # one draw for the batch: a number makes each id its own
        database = self.database
        if all(m.key is None and m.reply_to is None and not m.delay and not m.generation for m in messages):
            encode = self._codec.encode
            plain = [(self.name, f"{stem}.{number}", encode(m.body)) for number, m in enumerate(messages)]
            with database.writer as tx:
                now = database.now()
                tx.executemany(sql.INSERT_PLAIN, [(*row, now, now) for row in plain])
            sent = [Sent(row[1]) for row in plain]
        else:
            new = [
                self._new(f"{stem}.{number}", m.body, m.key, m.generation, m.reply_to, m.delay)
                for number, m in enumerate(messages)
            ]
            with database.writer as tx:
                now = database.now()
                sent = [self._queue_or_say_why(tx, message, now) for message in new]
        self._sent()
        return sent

    def _queue_or_say_why(self, tx: sqlite3.Connection, message: NewMessage, now: int) -> Sent:
        try:
            queue(tx, self.name, message, now)
        except KeyRefusedError as error:
            return Sent(message.id, str(error))
        return Sent(message.id)

    def receive(
        self,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        *,
        provisional: bool = False,
    ) -> list[Message[BodyT, ReplyT]]:
        self._check_open()
        check_max_messages(max_messages)
        check_seconds("visibility_timeout", visibility_timeout)
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        found = self._claim(max_messages, visibility_timeout, provisional)
        if found or not wait_time_seconds:
            return found

        def look() -> tuple[list[Message[BodyT, ReplyT]], float]:
            """Reads before it claims: of many who were woken for one message, one writes."""
            due_in = self._due_in()
            if due_in > 0 or self._polls.closed:
                return [], due_in
            return self._claim(max_messages, visibility_timeout, provisional), 0.0

        return self.engine.bells.wait_for(self._polls, wait_time_seconds, look)

    def _due_in(self) -> float:
        """Seconds until something can be claimed."""
        rows = self.database.reader.read(sql.NEXT_VISIBLE_AT, (self.name,))
        return (rows[0][0] - self.database.now()) / 1e6 if rows else math.inf

    def _claim(self, most: int, visibility: float, provisional: bool) -> list[Message[BodyT, ReplyT]]:
        """Claim what is ready, until there is something that can be decoded or nothing left."""
        while True:
            lease_until = self.clock.boottime() + visibility
            rows = self._claim_rows(most, micros(visibility), provisional)
            if not rows:
                return []
            found: list[Message[BodyT, ReplyT]] = []
            for row in rows:
                message: SqliteMessage[BodyT, ReplyT] = SqliteMessage(self, row, lease_until)
                if self._decode(message, row[6], row[11]):
                    found.append(message)
            if found:
                return found

    def _claim_rows(self, most: int, visibility_us: int, provisional: bool) -> list[Any]:
        database = self.database
        told: list[str | None] = []
        with database.writer as tx:
            now = database.now()
            rows = tx.execute(sql.SELECT_CLAIMABLE, (self.name, now, most)).fetchall()
            while self.max_delivery_count is not None and (spent := [row for row in rows if self._is_spent(row)]):
                for row in spent:
                    death = self.exhausted(row[3], row[4], expired=bool(row[12]))
                    told.append(bury(tx, self.name, row[0], death, self.new_id(), now))
                rows = tx.execute(sql.SELECT_CLAIMABLE, (self.name, now, most)).fetchall()
            rows = _up_to_a_suspect(rows)
            uncounted = provisional and not (rows and rows[0][12])
            until, state, counted = now + visibility_us, 1 if uncounted else 2, 0 if uncounted else 1
            if len(rows) == 1:
                tx.execute(sql.CLAIM, (until, state, counted, rows[0][0]))
            elif rows:
                tx.executemany(sql.CLAIM, [(until, state, counted, row[0]) for row in rows])
        for name in told:
            if name is not None:
                self.ring_mailbox(name)
        return rows

    def _is_spent(self, row: Any) -> bool:
        return self.max_delivery_count is not None and row[3] - row[4] >= self.max_delivery_count

    def exhausted(self, deliveries: int, forgiven: int, *, expired: bool) -> Death:
        return Death(FailureCause.DELIVERIES, why_given_up(deliveries - forgiven, expired=expired), deliveries)

    def _decode(self, message: SqliteMessage[BodyT, ReplyT], failure: int, body: bytes) -> bool:
        """Fill in the body, or the failure; what cannot be decoded becomes a dead letter."""
        try:
            if failure:
                message.failure = _failures.decode(body)
                message.body = cast("BodyT", None)
            else:
                message.body = self._codec.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            # If its lease is over already, whoever claims it next does the same.
            with contextlib.suppress(ReceiptHandleExpiredError):
                message.give_up(FailureCause.UNDECODABLE, f"the body does not fit {self._codec.kind!r}: {error}")
            return False
        return True

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        self._check_open()
        database = self.database
        ours = [message for message in messages if isinstance(message, SqliteMessage) and message.is_in(database)]
        if len(ours) != len(messages):
            return super().acknowledge_many(messages)  # wrapped ones, or of another file: one by one
        with database.writer as tx:
            now = database.now()
            return [message for message in ours if not message.try_end(tx, now)]

    def adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        self._check_open()
        return SqliteMessage.adopted(self, ticket)

    def wake(self) -> None:
        self._check_open()
        self._polls.wake()

    def revoke(self, key: str) -> bool:
        self._check_open()
        check_key(key)
        database = self.database
        with database.writer as tx:
            now = database.now()
            known = select_key(tx, self.name, key, now)
            live = known[2] if known is not None else None
            if live is not None:
                tx.execute(sql.DELETE_MESSAGE, (live,))
            tx.execute(sql.REVOKE_KEY, (self.name, key, now))
        return live is not None

    def depth(self) -> Depth:
        self._check_open()
        with self.database.reader as tx:
            now = self.database.now()
            (ready,) = tx.execute(sql.COUNT_READY, (self.name, now)).fetchone()
            held, leased = tx.execute(sql.COUNT_HELD, (self.name, now)).fetchone()
        leased = leased or 0
        return Depth(ready=ready, delayed=held - leased, leased=leased)

    def purge(self) -> int:
        self._check_open()
        with self.database.writer as tx:
            tx.execute(sql.END_ALL_KEYS, (self.database.now(), self.name))
            return tx.execute(sql.PURGE_MESSAGES, (self.name,)).rowcount

    @property
    def dead_letters(self) -> SqliteDeadLetters:
        return self._dead_letters

    @property
    def closed(self) -> bool:
        return self._polls.closed

    def close(self) -> None:
        self._polls.close()


def _up_to_a_suspect(rows: list[Any]) -> list[Any]:
    """The rows of one claim: those before the first suspect one, or that one alone."""
    for place, row in enumerate(rows):
        if row[12]:
            return rows[: place or 1]
    return rows
