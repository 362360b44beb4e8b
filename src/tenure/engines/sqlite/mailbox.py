"""The mailbox: a table of live messages in the order in which they become visible, and beside it one of dead letters in the order in which they died."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.checked_mailbox import CheckedMessage, PolledMailbox
from tenure.engines.checks import check_key, check_max_messages
from tenure.engines.contracts import (
    BodyT,
    DeadLetter,
    DeadLetters,
    Depth,
    FailureCause,
    Message,
    ReplyT,
    Sent,
    Ticket,
    why_given_up,
)
from tenure.engines.long_poll import LookResult
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.database import micros
from tenure.engines.sqlite.message import Death, NewMessage, SqliteMessage, bury, insert_keyed, queue, select_key
from tenure.errors import KeyRefusedError

if TYPE_CHECKING:
    import sqlite3

    from tenure.engines.sqlite.engine import SqliteEngine


class SqliteDeadLetters(DeadLetters):
    """A handle's dead letters; usable as long as the handle is."""

    def __init__(self, engine: SqliteEngine, mailbox: str, check_open: Callable[[], None]) -> None:
        self._engine, self._database, self._mailbox = engine, engine.database, mailbox
        self._check_open = check_open

    def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[DeadLetter]:
        self._check_open()
        check_max_messages(limit)
        with self._database.reader as tx:
            # One that was replayed or deleted meanwhile has no place any more: go on with the oldest that is left.
            found = tx.execute(sql.DEAD_POSITION, (self._mailbox, after)).fetchone() if after is not None else None
            rows = tx.execute(sql.LIST_DEAD, (self._mailbox, found[0] if found else 0, limit)).fetchall()
        return [_dead_letter(row) for row in rows]

    def count(self) -> int:
        self._check_open()
        (count,) = self._database.reader.read(sql.COUNT_DEAD, (self._mailbox,))[0]
        return int(count)

    def replay(self, message_id: str) -> bool:
        self._check_open()
        with self._database.writer as tx:
            row = tx.execute(sql.SELECT_DEAD, (self._mailbox, message_id)).fetchone()
            if row is None:
                return False
            letter, failure = _dead_letter(row), bool(row[11])
            message = NewMessage(
                letter.id,
                letter.body,
                letter.key,
                letter.generation,
                letter.reply_to,
                deliveries=letter.delivery_count,
                failure=failure,
                checkpoint=letter.checkpoint,
                enqueued_at=row[5],
            )
            now = self._database.now()
            if letter.key is None:
                tx.execute(sql.INSERT_MESSAGE, message.row(self._mailbox, now))
            else:
                known = select_key(tx, self._mailbox, letter.key, now)
                if known is not None and (known[1] or known[0] > letter.generation or known[2] is not None):
                    raise KeyRefusedError(letter.key, letter.generation, known[0], revoked=bool(known[1]))
                insert_keyed(tx, self._mailbox, message, now)
            tx.execute(sql.DELETE_DEAD, (self._mailbox, message_id))
        self._engine.ring_mailbox(self._mailbox)
        return True

    def delete(self, message_id: str) -> bool:
        self._check_open()
        with self._database.writer as tx:
            return tx.execute(sql.DELETE_DEAD, (self._mailbox, message_id)).rowcount == 1

    def purge(self) -> int:
        self._check_open()
        with self._database.writer as tx:
            return tx.execute(sql.PURGE_DEAD, (self._mailbox,)).rowcount


def _dead_letter(row: Any) -> DeadLetter:
    return DeadLetter(
        id=row[0],
        body=row[1],
        cause=FailureCause(row[2]),
        reason=row[3],
        died_at=row[4] / 1e6,
        enqueued_at=row[5] / 1e6,
        delivery_count=row[6],
        key=row[7],
        generation=row[8],
        reply_to=row[9],
        checkpoint=row[10],
    )


def topic_of(mailbox: str) -> str:
    return f"mailbox/{mailbox}"


class SqliteMailbox(PolledMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on one mailbox of one engine. Safe to share between threads."""

    def __init__(self, engine: SqliteEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        self._topic = topic_of(name)
        super().__init__(name, body, reply, max_delivery_count, engine.wakeups, self._topic)
        self.engine, self.clock, self.database = engine, engine.clock, engine.database
        self.new_id = engine.new_id
        self._dead_letters = SqliteDeadLetters(engine, name, self.check_open)

    def check_engine_open(self) -> None:
        self.engine.check_open()

    def ring(self, other: str | None = None) -> None:
        """Tell those who wait for this mailbox, and for another one that got something in the same step."""
        self.engine.wakeups.ring(self._topic)
        if other is not None:
            self.ring_mailbox(other)

    def ring_mailbox(self, name: str) -> None:
        self.engine.wakeups.ring(topic_of(name))

    def _send(self, message: CheckedMessage) -> str:
        database, message_id = self.database, self.new_id()
        if message.is_plain:
            database.writer.once(sql.INSERT_PLAIN, self.name, message_id, message.body, stamps=2)
        else:
            with database.writer as tx:
                queue(tx, self.name, _new(message_id, message), database.now())
        self._sent()
        return message_id

    def _sent(self) -> None:
        self.engine.wakeups.ring(self._topic)
        self.engine.upkeep.after_write()

    def _send_many(self, messages: list[CheckedMessage]) -> list[Sent]:
        stem = self.new_id()  # one draw for the batch: a number makes each id its own
        database, named = self.database, [(f"{stem}.{number}", m) for number, m in enumerate(messages)]
        if all(m.is_plain for m in messages):
            with database.writer as tx:
                now = database.now()
                tx.executemany(sql.INSERT_PLAIN, [(self.name, each, m.body, now, now) for each, m in named])
            sent = [Sent(each) for each, _ in named]
        else:
            with database.writer as tx:
                now = database.now()
                sent = [self._queue_or_say_why(tx, _new(each, m), now) for each, m in named]
        self._sent()
        return sent

    def _queue_or_say_why(self, tx: sqlite3.Connection, message: NewMessage, now: int) -> Sent:
        try:
            queue(tx, self.name, message, now)
        except KeyRefusedError as error:
            return Sent(message.id, str(error))
        return Sent(message.id)

    def _receive(self, most: int, lease_s: float, wait_s: float, *, provisional: bool) -> list[Message[BodyT, ReplyT]]:
        def claim() -> LookResult[Message[BodyT, ReplyT]]:
            return LookResult(self._claim(most, lease_s, provisional))

        def look() -> LookResult[Message[BodyT, ReplyT]]:
            """Reads before it claims: of many who were woken for one message, one writes."""
            due_in = self._due_in()
            if due_in > 0 or self.polls.closed:
                return LookResult([], due_in=due_in)
            found = self._claim(most, lease_s, provisional)
            return LookResult(found, again=not found)  # another consumer was faster: see when the next one is due

        return self.polls.poll(wait_s, look, first=claim) if wait_s else claim().found

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
                message: SqliteMessage[BodyT, ReplyT] = SqliteMessage.claimed(self, row, lease_until)
                if (opened := self.open_or_bury(row[11], bool(row[6]), message.bury_undecodable)) is not None:
                    message.body, message.failure = opened
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

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        self.check_open()
        database = self.database
        ours = [message for message in messages if isinstance(message, SqliteMessage) and message.is_in(database)]
        if len(ours) != len(messages):
            return super().acknowledge_many(messages)  # wrapped ones, or of another file: one by one
        with database.writer as tx:
            now = database.now()
            return [message for message in ours if not message.try_end(tx, now)]

    def _adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        return SqliteMessage(self, ticket)

    def revoke(self, key: str) -> bool:
        self.check_open()
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
        self.check_open()
        with self.database.reader as tx:
            now = self.database.now()
            (ready,) = tx.execute(sql.COUNT_READY, (self.name, now)).fetchone()
            held, leased = tx.execute(sql.COUNT_HELD, (self.name, now)).fetchone()
        leased = leased or 0
        return Depth(ready=ready, delayed=held - leased, leased=leased)

    def purge(self) -> int:
        self.check_open()
        with self.database.writer as tx:
            tx.execute(sql.END_ALL_KEYS, (self.database.now(), self.name))
            return tx.execute(sql.PURGE_MESSAGES, (self.name,)).rowcount

    @property
    def dead_letters(self) -> SqliteDeadLetters:
        return self._dead_letters


def _new(message_id: str, message: CheckedMessage) -> NewMessage:
    delay_us = micros(message.delay)
    return NewMessage(message_id, message.body, message.key, message.generation, message.reply_to, delay_us)


def _up_to_a_suspect(rows: list[Any]) -> list[Any]:
    """The rows of one claim: those before the first suspect one, or that one alone."""
    for place, row in enumerate(rows):
        if row[12]:
            return rows[: place or 1]
    return rows
