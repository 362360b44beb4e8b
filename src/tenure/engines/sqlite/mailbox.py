"""The mailbox: a table of live messages in the order in which they become visible, and beside it one of dead letters in the order in which they died.

A consumer of many mailboxes of one file settles and claims in one transaction, hence with one sync.
"""

from __future__ import annotations

import builtins
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.checked_consumer import CheckedSettlement, ClaimWish, Dead, PolledConsumer
from tenure.engines.checked_mailbox import CheckedMessage, PolledMailbox, dead_letter
from tenure.engines.checks import check_key, check_max_messages
from tenure.engines.contracts import BodyT, DeadLetter, DeadLetters, Depth, Message, ReplyT, Sent, Ticket, Withdrawal
from tenure.engines.long_poll import LookResult
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.database import micros
from tenure.engines.sqlite.message import NewMessage, RankedClaim, SqliteMessage, insert_keyed, queue, select_key
from tenure.errors import KeyRefusedError

if TYPE_CHECKING:
    import sqlite3

    from tenure.engines.sqlite.database import Database
    from tenure.engines.sqlite.engine import SqliteEngine


class SqliteDeadLetters(DeadLetters):
    """A handle's dead letters; usable as long as the handle is."""

    def __init__(self, mailbox: SqliteMailbox[Any, Any]) -> None:
        self._handle, self._mailbox, self._database = mailbox, mailbox.name, mailbox.database

    def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[DeadLetter]:
        self._handle.check_open()
        check_max_messages(limit)
        with self._database.reader as tx:
            # One that was replayed or deleted meanwhile has no place any more: go on with the oldest that is left.
            found = tx.execute(sql.DEAD_POSITION, (self._mailbox, after)).fetchone() if after is not None else None
            rows = tx.execute(sql.LIST_DEAD, (self._mailbox, found[0] if found else 0, limit)).fetchall()
        return [dead_letter(*row) for row in rows]

    def count(self) -> int:
        self._handle.check_open()
        (count,) = self._database.reader.read(sql.COUNT_DEAD, (self._mailbox,))[0]
        return int(count)

    def replay(self, message_id: str) -> bool:
        self._handle.check_open()
        with self._database.writer as tx:
            row = tx.execute(sql.SELECT_DEAD, (self._mailbox, message_id)).fetchone()
            if row is None:
                return False
            letter, failure = dead_letter(*row[:11]), bool(row[11])
            message = NewMessage(
                letter.id,
                letter.body,
                letter.key,
                letter.generation,
                letter.reply_to,
                deliveries=letter.delivery_count,
                failure=failure,
                checkpoint=letter.checkpoint,
                enqueued_at=micros(letter.enqueued_at),
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
        self._handle.ring()
        return True

    def delete(self, message_id: str) -> bool:
        self._handle.check_open()
        with self._database.writer as tx:
            return tx.execute(sql.DELETE_DEAD, (self._mailbox, message_id)).rowcount == 1

    def purge(self) -> int:
        self._handle.check_open()
        with self._database.writer as tx:
            return tx.execute(sql.PURGE_DEAD, (self._mailbox,)).rowcount


class SqliteMailbox(PolledMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on one mailbox of one engine. Safe to share between threads."""

    topic_prefix = "mailbox/"
    engine: SqliteEngine

    def __init__(self, engine: SqliteEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        super().__init__(engine, name, body, reply, max_delivery_count)
        self.clock, self.database, self.new_id = engine.clock, engine.database, engine.new_id

    def ring(self, other: str | None = None) -> None:
        """Tell those who wait for this mailbox, and for another one that got something in the same step."""
        self.engine.wakeups.ring(self.topic)
        if other is not None:
            self.ring_mailbox(other)

    def ring_mailbox(self, name: str) -> None:
        self.engine.wakeups.ring(f"{self.topic_prefix}{name}")

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
        self.engine.wakeups.ring(self.topic)
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

    def send_with(self, batches: list[tuple[SqliteMailbox[Any, Any], list[CheckedMessage]]]) -> list[Sent]:
        """Queues messages of these mailboxes in one transaction: one sync to the disk, however many mailboxes there are."""
        with self.database.writer as tx:
            sent = self.queue_in(tx, batches, self.database.now())
        for topic in {mailbox.topic for mailbox, _ in batches}:
            self.engine.wakeups.ring(topic)
        self.engine.upkeep.after_write()
        return sent

    def queue_in(
        self, tx: sqlite3.Connection, batches: list[tuple[SqliteMailbox[Any, Any], list[CheckedMessage]]], now: int
    ) -> list[Sent]:
        """Queues messages of these mailboxes inside the caller's transaction."""
        stem, sent = self.new_id(), list[Sent]()
        for mailbox, messages in batches:
            for message in messages:
                sent.append(mailbox._queue_or_say_why(tx, _new(f"{stem}.{len(sent)}", message), now))
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
            due_in = self.due_in()
            if due_in > 0 or self.polls.closed:
                return LookResult([], due_in=due_in)
            found = self._claim(most, lease_s, provisional)
            return LookResult(found, again=not found)  # another consumer was faster: see when the next one is due

        return self.polls.poll(wait_s, look, first=claim) if wait_s else claim().found

    def due_in(self) -> float:
        return seconds_until_visible(self.database, (self.name,))

    def _claim(self, most: int, lease_s: float, provisional: bool) -> list[Message[BodyT, ReplyT]]:
        """Claim what is ready, until there is something that can be decoded or nothing left."""
        while True:
            claim = RankedClaim(
                ((self.name,),), most, micros(lease_s), provisional, self.max_delivery_count, self.new_id
            )
            lease_until = self.clock.boottime() + lease_s
            with self.database.claiming(provisional=provisional) as tx:
                rows = claim.take(tx, self.database.now())
            if claim.counted:
                self.database.sync()
            for name in claim.rings:
                self.ring_mailbox(name)
            opened = [self.delivery(row, lease_until) for row in rows]
            if (found := [message for message in opened if message is not None]) or not rows:
                return found

    def delivery(self, row: Any, lease_until: float) -> Message[BodyT, ReplyT] | None:
        """The message of a row that was claimed; None when its body is of no use, and it was given up."""
        message: SqliteMessage[BodyT, ReplyT] = SqliteMessage.claimed(self, row, lease_until)
        opened = self.open_or_bury(row[11], bool(row[6]), message.bury_undecodable)
        if opened is None:
            return None
        message.body, message.failure = opened
        return message

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        self.check_open()
        database = self.database
        ours = [message for message in messages if isinstance(message, SqliteMessage) and message.is_in(database)]
        if len(ours) != len(messages):
            return super().acknowledge_many(messages)  # wrapped ones, or of another file: one by one
        with database.writer as tx:
            now = database.now()
            return [message for message in ours if message.settle_in(tx, now, None) is not None]

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

    def _withdraw_key(self, key: str, generation: int) -> Withdrawal:
        database = self.database
        with database.writer as tx:
            now = database.now()
            known = select_key(tx, self.name, key, now)
            if known is None or known[2] is None or known[0] > generation:
                return Withdrawal.ABSENT
            leased, checkpoint = tx.execute(sql.SELECT_WITHDRAWN, (now, known[2])).fetchone()
            if leased:
                return Withdrawal.LEASED
            tx.execute(sql.DELETE_MESSAGE, (known[2],))
            tx.execute(sql.END_KEY, (now, checkpoint, self.name, key, known[0]))
        return Withdrawal.WITHDRAWN

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
    def dead_letters(self) -> DeadLetters:
        return SqliteDeadLetters(self)


def _new(message_id: str, message: CheckedMessage) -> NewMessage:
    delay_us = micros(message.delay)
    return NewMessage(message_id, message.body, message.key, message.generation, message.reply_to, delay_us)


def seconds_until_visible(database: Database, names: Sequence[str]) -> float:
    """Returns the seconds until something can be claimed from these mailboxes."""
    ((at,),) = database.reader.read(sql.NEXT_VISIBLE_AT, (json.dumps(names),))
    return math.inf if at is None else (at - database.now()) / 1e6


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
