"""A mailbox in PostgreSQL, its deliveries and its dead letters: one function call per operation, and a claim that waits for a wake-up when there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from tenure.engines.checked_mailbox import (
    NO_CONTENT,
    CheckedMessage,
    DeliveredContent,
    LeasedMessage,
    LostClaims,
    PolledMailbox,
    dead_letter,
    sent_or_refused,
)
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
    Withdrawal,
    why_given_up,
)
from tenure.engines.long_poll import LookResult
from tenure.engines.postgres.connections import Rows
from tenure.errors import (
    EngineUnavailableError,
    KeyRefusedError,
    MailboxConnectionError,
    ReceiptHandleExpiredError,
    TenureError,
)

if TYPE_CHECKING:
    from tenure.engines.postgres.engine import PostgresEngine


_FULL_EVERY_S = 0.5
_SHARE = 20.0
"""A full look takes at most one part in this many of the time."""
_SLOW_S = 0.02
_LOOK_AT_LEAST_EVERY_S = 1.0


class ClaimPace:
    """Keeps claims fast while dead rows wait for vacuum, by hints that the consumers of one mailbox in one engine have learned.

    Claimed and settled messages leave entries in the index until vacuum has been there; a claim that begins at the oldest entry walks over
    all of them. So a claim begins at the place where the last one found something, and only now and then at the very
    beginning, for what lies before it: unstarted work given back, a lease that ran out, a send that committed late. These are looks that
    cost something only when there is something to walk over, so they are spaced by what the last one took.

    This decides where to look first, never what is there: a claim that finds less than it was asked for looks everywhere. Threads may
    share it: a wrong hint costs a query.
    """

    def __init__(self) -> None:
        self._floor: float | None = None
        self._full_at = 0.0
        self._look_at = 0.0
        self.moves = 0
        """How often something was put before where we would look."""
        self.lost_claims: LostClaims[int] = LostClaims()

    def floor(self, now: float) -> float | None:
        """Where to begin: engine time, or None for the very beginning."""
        return self._floor if now < self._full_at else None

    def look_in(self, now: float) -> float:
        """In how many seconds to ask when the next message is due: 0 for now; not again at once if that was slow."""
        return max(0.0, self._look_at - now)

    def claimed(self, now: float, took: float, floor: float | None, first_due: float | None, *, filled: bool) -> None:
        if floor is None or not filled:
            self._full_at = now + max(_FULL_EVERY_S, _SHARE * took)
        # A little below, because times lose a fraction of a microsecond on their way.
        self._floor = first_due - 0.001 if filled and first_due is not None else None

    def found_nothing(self, now: float, took: float) -> None:
        """`took` is the server's part of it."""
        if took > _SLOW_S:
            self._look_at = now + min(_LOOK_AT_LEAST_EVERY_S, _SHARE * took)

    def moved_back(self) -> None:
        """Something was put before where we would look."""
        self.moves += 1
        self._floor = None


class PostgresMessage(LeasedMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Named by its row's id and the token of the claim: a later claim has another token."""

    __slots__ = ("_mailbox", "_row", "_token")
    _mailbox: PostgresMailbox[Any, Any]

    def __init__(
        self, mailbox: PostgresMailbox[Any, Any], ticket: Ticket, content: DeliveredContent = NO_CONTENT
    ) -> None:
        super().__init__(ticket, content, mailbox.reply_codec, mailbox.engine.clock)
        row, _, token = ticket.receipt_handle.partition(".")
        known = row.isdecimal() and token.isdecimal()  # another engine's receipt names no row of ours
        self._mailbox, self._row, self._token = mailbox, int(row) if known else 0, int(token) if known else 0

    def is_of(self, engine: PostgresEngine) -> bool:
        return self._mailbox.engine is engine

    @property
    def receipt(self) -> tuple[int, int]:
        """Row and token, which name the delivery."""
        return self._row, self._token

    def acknowledge(self) -> None:
        self._ask("acknowledge", (self._row, self._token, self._mailbox.name, self.key))

    def _nack(self, delay_s: float) -> None:
        self._ask("nack", (self._row, self._token, delay_s, self._mailbox.max_delivery_count))

    def release(self) -> None:
        self._ask("release", (self._row, self._token))
        self._mailbox.pace.moved_back()

    def _extend(self, seconds: float, checkpoint: bytes | None) -> None:
        self._ask("extend", (self._row, self._token, seconds, checkpoint))

    def _append_step(self, key: str, seconds: float, record: bytes) -> None:
        self._ask("append_step", (self._row, self._token, self._mailbox.name, key, seconds, record))

    def _steps(self, key: str) -> list[bytes]:
        found = self._mailbox.query("steps", (self._row, self._token, self._mailbox.name, key))[0][0]
        if found is None:
            self._refuse()
        return [bytes(record) for record in found]

    def _reply(self, encoded: bytes) -> None:
        self._ask("reply", (self._row, self._token, self.reply_to, encoded))

    def _settle(self, encoded: bytes) -> None:
        self._ask("settle", (self._row, self._token, self._mailbox.name, self.key, self.reply_to, encoded))

    def _give_up(self, cause: FailureCause, reason: str) -> None:
        self._ask("bury", (self._row, self._token, cause.value, reason))

    def _ask(self, operation: str, values: tuple[Any, ...]) -> None:
        if not self._mailbox.query(operation, values)[0][0]:
            self._refuse()

    def _refuse(self) -> NoReturn:
        try:
            reason = self._mailbox.query("why_dead", (self._row, self._token))[0][0]
        except TenureError:
            reason = "its lease ran out, or it was settled"
        raise ReceiptHandleExpiredError(self.id, reason)


class PostgresDeadLetters(DeadLetters):
    def __init__(self, mailbox: PostgresMailbox[Any, Any]) -> None:
        self._mailbox = mailbox

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        check_max_messages(limit)
        rows = self._mailbox.asked("dead_letters", (self._mailbox.name, limit, _number(after)))
        return [dead_letter(str(number), body, cause, *rest) for number, body, cause, *rest in rows]

    def count(self) -> int:
        return int(self._mailbox.asked("dead_count", (self._mailbox.name,))[0][0])

    def replay(self, message_id: str) -> bool:
        row = self._mailbox.asked("replay", (self._mailbox.name, _number(message_id)))[0]
        found, key, generation, current, revoked = row
        if current is not None:
            raise KeyRefusedError(key, generation, current, revoked=revoked)
        self._mailbox.pace.moved_back()
        return bool(found)

    def delete(self, message_id: str) -> bool:
        return bool(self._mailbox.asked("dead_delete", (self._mailbox.name, _number(message_id))))

    def purge(self) -> int:
        return int(self._mailbox.asked("dead_purge", (self._mailbox.name,))[0][0])


def _number(message_id: str | None) -> int:
    """The row's id; 0, which no row has, for a name that cannot be one of ours."""
    return int(message_id) if message_id is not None and message_id.isdecimal() and len(message_id) < 19 else 0


_PROVISIONAL, _HELD = 0, 1


class PostgresMailbox(PolledMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox."""

    topic_prefix = "m/"
    engine: PostgresEngine

    def __init__(
        self, engine: PostgresEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None
    ) -> None:
        super().__init__(engine, name, body, reply, max_delivery_count)
        self.pace = engine.pace(name)

    def query(self, operation: str, values: Sequence[Any]) -> Rows:
        """One round trip. For messages too: they stay valid when the handle is closed, not when the engine is."""
        statement = getattr(self.engine.statements, operation)
        return self.engine.connections.query(operation, statement, values, MailboxConnectionError)

    def _send(self, message: CheckedMessage) -> str:
        values = (self.name, message.body, message.delay, message.reply_to, message.generation)
        if message.key is None:
            return str(self.query("send", values)[0][0])
        number, current, revoked = self.query("send_keyed", (*values, message.key))[0]
        if current is not None:
            raise KeyRefusedError(message.key, message.generation, current, revoked=revoked)
        return str(number)

    def _send_many(self, messages: list[CheckedMessage]) -> list[Sent]:
        bodies = [m.body for m in messages]
        if all(m.is_plain for m in messages):
            rows = self.query("send_plain", (self.name, bodies, None, None, None))
            return [Sent(str(number)) for (number,) in rows]
        delays, answers, generations, keys = _columns(messages)
        if not any(key is not None for key in keys):
            rows = self.query("send_plain", (self.name, bodies, delays, answers, generations))
            return [Sent(str(number)) for (number,) in rows]
        rows = self.query("send_mixed", (self.name, bodies, delays, answers, generations, keys))
        return outcomes(messages, rows)

    def _receive(self, most: int, lease_s: float, wait_s: float, *, provisional: bool) -> list[Message[BodyT, ReplyT]]:
        self.engine.tidy_if_due()
        stage = _PROVISIONAL if provisional else _HELD
        if wait_s:
            return self.polls.poll(wait_s, partial(self._claim, most, lease_s, stage, look=True))
        while True:
            claimed = self._claim(most, lease_s, stage, look=False)
            if not claimed.again:
                return claimed.found

    def _claim(self, most: int, lease: float, stage: int, *, look: bool) -> LookResult[Message[BodyT, ReplyT]]:
        """One claim. Poison and exhausted messages among it become dead letters; then there may be more to claim."""
        engine, pace = self.engine, self.pace
        pace.lost_claims.give_back(lambda tokens: self.query("give_back", (self.name, tokens)))
        token = engine.new_token()
        now, asked = engine.clock.monotonic(), engine.clock.boottime()
        floor, look_in = pace.floor(now), pace.look_in(now)
        values = (self.name, most, lease, token, stage, self.max_delivery_count, floor, look and not look_in)
        try:
            rows = self.query("claim", values)
        except EngineUnavailableError:
            pace.lost_claims.add(token)
            raise
        took = engine.clock.monotonic() - now
        if rows[0][0] is None:
            pace.claimed(now, took, floor, None, filled=False)
            pace.found_nothing(now, rows[0][3])
            return LookResult([], False, look_in or rows[0][1])
        if len(rows) > 1:
            rows.sort(key=lambda row: (row[1], row[0]))
        pace.claimed(now, took, floor, rows[0][1], filled=len(rows) == most)
        messages = [made for row in rows if (made := self.message(row, token, asked + lease)) is not None]
        return LookResult(messages, not messages)

    def message(self, row: tuple[Any, ...], token: int, lease_until: float) -> Message[BodyT, ReplyT] | None:
        """A delivery as the server tells it; None when it was given up, because it is exhausted or its body of no use."""
        number, _, count, sent_at, spent, generation, is_failure, key, reply_to, checkpoint, body, forgiven, suspect = (
            row
        )
        if spent is not None:
            self._bury(number, token, FailureCause.DELIVERIES, why_given_up(spent, expired=suspect))
            return None
        opened = self.open_or_bury(body, is_failure, partial(self._bury, number, token, FailureCause.UNDECODABLE))
        if opened is None:
            return None
        ticket = Ticket(
            id=str(number),
            receipt_handle=f"{number}.{token}",
            delivery_count=count,
            enqueued_at=sent_at,
            lease_until=lease_until,
            reply_to=reply_to,
            key=key,
            generation=generation,
            forgiven=forgiven,
        )
        return PostgresMessage(self, ticket, DeliveredContent(*opened, checkpoint, suspect))

    def _bury(self, number: int, token: int, cause: FailureCause, reason: str) -> None:
        # False means that our lease ran out meanwhile: whoever claims it next comes to the same conclusion.
        self.query("bury", (number, token, cause.value, reason))

    def _adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        return PostgresMessage(self, ticket)

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        receipts = [message.receipt for message in messages if isinstance(message, PostgresMessage)]
        if not receipts:
            return list(messages)
        rows, tokens = map(list, zip(*receipts, strict=True))
        held = {str(number) for (number,) in self.query("acknowledge_many", (rows, tokens))}
        return [message for message in messages if message.id not in held]

    def revoke(self, key: str) -> bool:
        check_key(key)
        return bool(self.asked("revoke", (self.name, key))[0][0])

    def _withdraw_key(self, key: str, generation: int) -> Withdrawal:
        return Withdrawal(self.query("withdraw", (self.name, key, generation))[0][0])

    def depth(self) -> Depth:
        return Depth(*self.asked("depth", (self.name,))[0])

    def purge(self) -> int:
        return int(self.asked("purge", (self.name,))[0][0])

    @property
    def dead_letters(self) -> DeadLetters:
        return PostgresDeadLetters(self)

    def asked(self, operation: str, values: Sequence[Any]) -> Rows:
        """One round trip for the handle itself, which must be open."""
        self.check_open()
        return self.query(operation, values)


def send_across(engine: PostgresEngine, batches: list[tuple[Any, list[CheckedMessage]]]) -> list[Sent]:
    """Queues messages of several mailboxes with one call and one commit, in order."""
    all_of_them, values = across(batches)
    statement = engine.statements.send_across
    return outcomes(all_of_them, engine.connections.query("send_across", statement, values, MailboxConnectionError))


def across(batches: list[tuple[Any, list[CheckedMessage]]]) -> tuple[list[CheckedMessage], tuple[Any, ...]]:
    """Returns the messages of several mailboxes, and the arguments with which the functions take them."""
    names = [mailbox.name for mailbox, messages in batches for _ in messages]
    all_of_them = [message for _, messages in batches for message in messages]
    return all_of_them, (names, [m.body for m in all_of_them], *_columns(all_of_them))


def _columns(messages: list[CheckedMessage]) -> tuple[list[float], list[str | None], list[int], list[str | None]]:
    """Returns delays, reply addresses, generations and keys, as the functions that send several take them."""
    delays, answers = [m.delay for m in messages], [m.reply_to for m in messages]
    return delays, answers, [m.generation for m in messages], [m.key for m in messages]


def outcomes(messages: list[CheckedMessage], rows: Rows) -> list[Sent]:
    """Returns what became of each message, from the rows that the functions which send several tell."""
    return [
        sent_or_refused(message, str(number), newest, revoked=bool(revoked))
        for message, (number, newest, revoked) in zip(messages, rows, strict=True)
    ]
