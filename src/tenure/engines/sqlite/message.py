"""One delivery of one message, what its holder may do with it, and the steps that mailbox and message take inside one transaction.

The steps (queue a message, remember its key, bury it) take the connection of a write transaction and `now` in microseconds; none commits.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self

import msgspec

from tenure.engines.checked_mailbox import NO_CONTENT, DeliveredContent, LeasedMessage
from tenure.engines.contracts import KEY_MEMORY_S, BodyT, Failure, FailureCause, ReplyT, Ticket, why_given_up
from tenure.engines.sqlite import statements as sql
from tenure.engines.sqlite.database import micros
from tenure.errors import KeyRefusedError, ReceiptHandleExpiredError

if TYPE_CHECKING:
    from tenure.engines.sqlite.database import Database
    from tenure.engines.sqlite.mailbox import SqliteMailbox

_LONGEST_REASON = 10_000
KEY_MEMORY_US = KEY_MEMORY_S * 1_000_000


@dataclass(slots=True)
class NewMessage:
    """The values of `INSERT_MESSAGE` beside the mailbox and the time."""

    id: str
    body: bytes
    key: str | None = None
    generation: int = 0
    reply_to: str | None = None
    delay_us: int = 0
    deliveries: int = 0
    failure: bool = False
    checkpoint: bytes | None = None
    enqueued_at: int | None = None  # when it was first sent, where that was not now

    def row(self, mailbox: str, now: int) -> tuple[object, ...]:
        return (
            mailbox,
            now + self.delay_us,
            self.deliveries,
            self.deliveries,
            self.generation,
            self.failure,
            now if self.enqueued_at is None else self.enqueued_at,
            self.id,
            self.key,
            self.reply_to,
            self.checkpoint,
            self.body,
        )


def queue(tx: sqlite3.Connection, mailbox: str, message: NewMessage, now: int) -> None:
    """Queue one message, replacing what has its key. Raises `KeyRefusedError`, having written nothing."""
    if message.key is None:
        tx.execute(sql.INSERT_MESSAGE, message.row(mailbox, now))
        return
    known = select_key(tx, mailbox, message.key, now)
    if known is not None:
        generation, revoked, live, message.checkpoint = known
        if revoked or message.generation <= generation:
            raise KeyRefusedError(message.key, message.generation, generation, revoked=bool(revoked))
        if live is not None:
            (message.checkpoint,) = tx.execute(sql.SELECT_CHECKPOINT, (live,)).fetchone()
            tx.execute(sql.DELETE_MESSAGE, (live,))
    insert_keyed(tx, mailbox, message, now)


def select_key(
    tx: sqlite3.Connection, mailbox: str, key: str, now: int
) -> tuple[int, int, int | None, bytes | None] | None:
    """Generation, revoked, live message, inherited checkpoint; None for a key that is unknown or forgotten."""
    row: tuple[int, int, int | None, bytes | None] | None
    row = tx.execute(sql.SELECT_KEY, (mailbox, key, now - KEY_MEMORY_US)).fetchone()
    return row


def insert_keyed(tx: sqlite3.Connection, mailbox: str, message: NewMessage, now: int) -> None:
    seq = tx.execute(sql.INSERT_MESSAGE, message.row(mailbox, now)).lastrowid
    tx.execute(sql.SET_KEY, (mailbox, message.key, message.generation, seq))


@dataclass(frozen=True, slots=True)
class Death:
    """Why a message is given up, and how many deliveries it had."""

    cause: FailureCause
    reason: str
    deliveries: int


def bury(tx: sqlite3.Connection, mailbox: str, seq: int, death: Death, failure_id: str, now: int) -> str | None:
    """Move a message to the dead letters and post its `Failure`; the mailbox that got it, to be rung."""
    reason = death.reason[:_LONGEST_REASON]
    rows = tx.execute(sql.BURY, (death.cause.value, reason, now, death.deliveries, seq)).fetchall()
    message_id, key, generation, reply_to, checkpoint = rows[0]
    tx.execute(sql.DELETE_MESSAGE, (seq,))
    if key is not None:
        tx.execute(sql.END_KEY, (now, checkpoint, mailbox, key, generation))
    if reply_to is None:
        return None
    failure = Failure(
        message_id=message_id,
        mailbox=mailbox,
        cause=death.cause,
        reason=reason,
        key=key,
        generation=generation,
        delivery_count=death.deliveries,
    )
    queue(tx, reply_to, NewMessage(failure_id, msgspec.json.encode(failure), failure=True), now)
    return str(reply_to)


Ranks = Sequence[Sequence[str]]


@dataclass(slots=True)
class RankedClaim:
    """One claim over mailboxes in ranks, inside a write transaction."""

    ranks: Ranks
    most: int
    lease_us: int
    provisional: bool
    limit: int | None
    new_id: Callable[[], str]
    rings: list[str] = field(default_factory=list)
    """Mailboxes that got the news of a dead letter."""
    counted: bool = False
    """True once a provisional claim was counted all the same, because its message is suspect. It has to be synced."""

    def take(self, tx: sqlite3.Connection, now: int) -> list[Any]:
        """Leases, and returns the rows of `SELECT_CLAIMABLE` as they were before. Those that used up their deliveries are buried."""
        rows = self._select(tx, now)
        while spent := [row for row in rows if self.limit is not None and row[3] - row[4] >= self.limit]:
            for row in spent:
                told = bury(tx, row[13], row[0], exhausted(row[3], row[4], expired=bool(row[12])), self.new_id(), now)
                self.rings += [told] if told is not None else []
            rows = self._select(tx, now)
        rows = _up_to_a_suspect(rows)
        suspect = bool(rows and rows[0][12])
        uncounted, self.counted = self.provisional and not suspect, self.provisional and suspect
        until, state, counted = now + self.lease_us, 1 if uncounted else 2, 0 if uncounted else 1
        if len(rows) == 1:
            tx.execute(sql.CLAIM, (until, state, counted, rows[0][0]))
        elif rows:
            tx.executemany(sql.CLAIM, [(until, state, counted, row[0]) for row in rows])
        return rows

    def _select(self, tx: sqlite3.Connection, now: int) -> list[Any]:
        names = [name for rank in self.ranks for name in rank]
        if len(names) == 1:
            return tx.execute(sql.SELECT_CLAIMABLE, (names[0], now, self.most)).fetchall()
        heads = dict(tx.execute(sql.SELECT_HEADS, (json.dumps(names),)).fetchall())
        rows: list[Any] = []
        for rank in self.ranks:
            left = self.most - len(rows)
            ready = sorted((heads[name], name) for name in rank if heads.get(name, math.inf) <= now)
            if len(ready) == 1:
                rows += tx.execute(sql.SELECT_CLAIMABLE, (ready[0][1], now, left)).fetchall()
            elif ready:
                # The oldest of all come from mailboxes whose first one is among them.
                places = (tx.execute(sql.SELECT_PLACES, (name, now, left)).fetchall() for _, name in ready[:left])
                for _, seq in sorted(place for found in places for place in found)[:left]:
                    rows += tx.execute(sql.SELECT_CLAIMABLE_ONE, (seq,)).fetchall()
            if len(rows) == self.most:
                break
        return rows


def exhausted(deliveries: int, forgiven: int, *, expired: bool) -> Death:
    return Death(FailureCause.DELIVERIES, why_given_up(deliveries - forgiven, expired=expired), deliveries)


def _up_to_a_suspect(rows: list[Any]) -> list[Any]:
    """The rows of one claim: those before the first suspect one, or that one alone."""
    for place, row in enumerate(rows):
        if row[12]:
            return rows[: place or 1]
    return rows


class SqliteMessage(LeasedMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A receipt is the row, its random id and the number of the claim: see statements.py."""

    __slots__ = ("_claim", "_mailbox", "_seq")
    _mailbox: SqliteMailbox[Any, Any]

    def __init__(
        self, mailbox: SqliteMailbox[BodyT, ReplyT], ticket: Ticket, content: DeliveredContent = NO_CONTENT
    ) -> None:
        super().__init__(ticket, content, mailbox.reply_codec, mailbox.clock)
        seq, _, rest = ticket.receipt_handle.partition("-")
        claim = rest.partition("-")[0]
        known = seq.isdecimal() and claim.isdecimal()  # another engine's receipt names no row of ours
        self._mailbox, self._seq, self._claim = mailbox, int(seq) if known else -1, int(claim) if known else -1

    @classmethod
    def claimed(cls, mailbox: SqliteMailbox[BodyT, ReplyT], row: Any, lease_until: float) -> Self:
        """From a row of `SELECT_CLAIMABLE`, as it was before the claim. Its body is not decoded yet."""
        (
            seq,
            name,
            claims,
            deliveries,
            forgiven,
            generation,
            _,
            enqueued_at,
            key,
            reply_to,
            checkpoint,
            _,
            suspect,
            _,
        ) = row
        ticket = Ticket(
            id=name,
            receipt_handle=f"{seq}-{claims + 1}-{name}",
            delivery_count=deliveries + 1,
            enqueued_at=enqueued_at / 1e6,
            lease_until=lease_until,
            reply_to=reply_to,
            key=key,
            generation=generation,
            forgiven=forgiven,
        )
        return cls(mailbox, ticket, DeliveredContent(checkpoint=checkpoint, suspect=bool(suspect)))

    def is_in(self, database: Database) -> bool:
        """Returns True when a transaction of this database can act on it."""
        return self._mailbox.database is database

    def __repr__(self) -> str:
        return f"<message {self.id} of {self._mailbox.name!r}, delivery {self.delivery_count}>"

    def receipt(self, now: int) -> tuple[int, str, int, int]:
        """The last four arguments of every statement on a receipt."""
        return self._seq, self.id, self._claim, now

    def acknowledge(self) -> None:
        database = self._mailbox.database
        if self.key is None:
            if database.writer.once(sql.DELETE_OURS, self._seq, self.id, self._claim) != 1:
                with database.reader as tx:
                    raise self._expired(tx, database.now())
            return
        with database.writer as tx:
            self._end(tx, database.now())

    def _end(self, tx: sqlite3.Connection, now: int) -> None:
        if self.key is None:
            if tx.execute(sql.DELETE_OURS, self.receipt(now)).rowcount != 1:
                raise self._expired(tx, now)
            return
        rows = tx.execute(sql.DELETE_OURS_KEYED, self.receipt(now)).fetchall()
        if not rows:
            raise self._expired(tx, now)
        tx.execute(sql.END_KEY, (now, rows[0][0], self._mailbox.name, self.key, self.generation))

    def settle_in(self, tx: sqlite3.Connection, now: int, reply: bytes | None) -> bool | None:
        """As settle, or acknowledge where there is no reply, inside the caller's transaction.

        Returns None when it is done; otherwise nothing was changed, and True says that the message is gone.
        """
        try:
            self._end(tx, now)
        except ReceiptHandleExpiredError:
            return tx.execute(sql.SELECT_FOR_REASON, (self._seq, self.id)).fetchone() is None
        if reply is not None:
            answer, reply_to = self._answer(reply)
            queue(tx, reply_to, answer, now)
        return None

    def extend_in(self, tx: sqlite3.Connection, now: int, seconds: float) -> bool:
        return tx.execute(sql.EXTEND_OURS, (now + micros(seconds), *self.receipt(now))).rowcount == 1

    def is_held_in(self, tx: sqlite3.Connection, now: int) -> bool:
        return tx.execute(sql.SELECT_OURS, self.receipt(now)).fetchone() is not None

    def _expired(self, tx: sqlite3.Connection, now: int) -> ReceiptHandleExpiredError:
        row = tx.execute(sql.SELECT_FOR_REASON, (self._seq, self.id)).fetchone()
        if row is None:
            reason = "it was settled, replaced by a newer generation, revoked or purged"
        elif row[0] != self._claim:
            reason = "another delivery has begun since"
        elif row[1] == 0:
            reason = "it was given back"
        else:
            reason = f"its lease ran out {(now - row[2]) / 1e6:.3f} s ago"
        return ReceiptHandleExpiredError(self.id, reason)

    def _nack(self, delay_s: float) -> None:
        delay = micros(delay_s)
        database, most = self._mailbox.database, self._mailbox.max_delivery_count
        told: str | None = None
        with database.writer as tx:
            now = database.now()
            deliveries, forgiven = self._deliveries(tx, now)
            if most is not None and deliveries - forgiven >= most:
                told = self._bury(tx, exhausted(deliveries, forgiven, expired=False), now)
            else:
                tx.execute(sql.NACK_OURS, (now + delay, *self.receipt(now)))
        self._mailbox.ring(told)

    def _deliveries(self, tx: sqlite3.Connection, now: int) -> tuple[int, int]:
        """Returns the deliveries, this one included, and the number of them that were forgiven."""
        row = tx.execute(sql.SELECT_OURS, self.receipt(now)).fetchone()
        if row is None:
            raise self._expired(tx, now)
        deliveries, forgiven, state = row
        return deliveries + (state == 1), forgiven

    def release(self) -> None:
        database = self._mailbox.database
        with database.writer as tx:
            now = database.now()
            if tx.execute(sql.RELEASE_OURS, self.receipt(now)).rowcount != 1:
                raise self._expired(tx, now)
        self._mailbox.ring()

    def _extend(self, seconds: float, checkpoint: bytes | None) -> None:
        database = self._mailbox.database
        with database.writer as tx:
            now = database.now()
            until, receipt = now + micros(seconds), self.receipt(now)
            if checkpoint is None:
                extended = tx.execute(sql.EXTEND_OURS, (until, *receipt))
            else:
                extended = tx.execute(sql.EXTEND_OURS_WITH_CHECKPOINT, (until, checkpoint, *receipt))
            if extended.rowcount != 1:
                raise self._expired(tx, now)

    def _append_step(self, key: str, seconds: float, record: bytes) -> None:
        database, name = self._mailbox.database, self._mailbox.name
        with database.writer as tx:
            now = database.now()
            if tx.execute(sql.EXTEND_OURS, (now + micros(seconds), *self.receipt(now))).rowcount != 1:
                raise self._expired(tx, now)
            tx.execute(sql.INSERT_STEP, (name, key, name, key, record))

    def _steps(self, key: str) -> list[bytes]:
        database = self._mailbox.database
        with database.reader as tx:
            now = database.now()
            if not self.is_held_in(tx, now):
                raise self._expired(tx, now)
            return [record for (record,) in tx.execute(sql.SELECT_STEPS, (self._mailbox.name, key)).fetchall()]

    def _reply(self, encoded: bytes) -> None:
        answer, reply_to = self._answer(encoded)
        database = self._mailbox.database
        with database.writer as tx:
            now = database.now()
            if tx.execute(sql.SELECT_OURS, self.receipt(now)).fetchone() is None:
                raise self._expired(tx, now)
            queue(tx, reply_to, answer, now)
        self._mailbox.ring_mailbox(reply_to)

    def _settle(self, encoded: bytes) -> None:
        answer, reply_to = self._answer(encoded)
        database = self._mailbox.database
        with database.writer as tx:
            now = database.now()
            self._end(tx, now)
            queue(tx, reply_to, answer, now)
        self._mailbox.ring_mailbox(reply_to)

    def _answer(self, encoded: bytes) -> tuple[NewMessage, str]:
        assert self.reply_to is not None
        return NewMessage(self._mailbox.new_id(), encoded), self.reply_to

    def bury_undecodable(self, reason: str) -> None:
        with contextlib.suppress(ReceiptHandleExpiredError):  # its lease is over: whoever claims it next does the same
            self._give_up(FailureCause.UNDECODABLE, reason)

    def _give_up(self, cause: FailureCause, reason: str) -> None:
        """Bury it, whatever the cause."""
        database = self._mailbox.database
        with database.writer as tx:
            now = database.now()
            deliveries, _ = self._deliveries(tx, now)
            told = self._bury(tx, Death(cause, reason, deliveries), now)
        if told is not None:
            self._mailbox.ring_mailbox(told)

    def _bury(self, tx: sqlite3.Connection, death: Death, now: int) -> str | None:
        return bury(tx, self._mailbox.name, self._seq, death, self._mailbox.new_id(), now)
