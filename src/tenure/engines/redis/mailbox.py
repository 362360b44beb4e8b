"""A mailbox in Redis, its deliveries and its dead letters: one script per operation, and a claim that waits for a wake-up when there is nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.checked_mailbox import (
    NO_CONTENT,
    CheckedMessage,
    DeliveredContent,
    LeasedMessage,
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
)
from tenure.engines.long_poll import LookResult
from tenure.engines.redis.connections import Answer
from tenure.engines.redis.handover import HandoverPoll, Offer
from tenure.engines.redis.session import Argument
from tenure.errors import (
    EngineUnavailableError,
    KeyRefusedError,
    ReceiptHandleExpiredError,
)

if TYPE_CHECKING:
    from tenure.engines.redis.engine import RedisEngine
    from tenure.engines.redis.pipelined_commands import PipelinedCommands


class RedisMessage(LeasedMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Named by its id and the token of the claim: a later claim has another token."""

    __slots__ = ("_confirming", "_mailbox", "_token")
    _mailbox: RedisMailbox[Any, Any]

    def __init__(self, mailbox: RedisMailbox[Any, Any], ticket: Ticket, content: DeliveredContent = NO_CONTENT) -> None:
        super().__init__(ticket, content, mailbox.reply_codec, mailbox.engine.clock)
        self._mailbox, self._token = mailbox, ticket.receipt_handle.rpartition(".")[2]
        self._confirming: PipelinedCommands | None = None
        """The commands among which the confirmation of a handed-over message waits for its answer."""

    def confirming(self, commands: PipelinedCommands) -> None:
        """The message was handed over: its lease is a short one until `confirmed`."""
        self._confirming = commands

    def confirmed(self, lease_until: float | None) -> None:
        """The server's answer was read, by any thread: the whole lease, or None where the receipt is dead."""
        self._confirming = None
        if lease_until is not None:
            self.lease_until = max(self.lease_until, lease_until)

    def lease_left(self, now: float) -> float:
        if (commands := self._confirming) is not None:
            commands.read_answers()
        return self.lease_until - now

    @property
    def receipt(self) -> tuple[str, str]:
        """Id and token, which name the delivery."""
        return self.id, self._token

    def acknowledge(self) -> None:
        self._end(None)

    def _nack(self, delay_s: float) -> None:
        self._ask("nack", round(delay_s * 1e6), self._mailbox.limit)

    def release(self) -> None:
        self._ask("release")

    def _extend(self, seconds: float, checkpoint: bytes | None) -> None:
        kept = (microseconds(seconds), int(checkpoint is not None), checkpoint or b"")
        answer = self._mailbox.engine.call("extend", *kept, *self.address)
        if answer[1]:
            raise ReceiptHandleExpiredError(self.id, answer[1][1].decode())

    def _append_step(self, key: str, seconds: float, record: bytes) -> None:
        self._ask("append_step", microseconds(seconds), key, record)

    def _steps(self, key: str) -> list[bytes]:
        answer = self._mailbox.call("steps", self.id, self._token, key)
        if answer[1] is not None:
            raise ReceiptHandleExpiredError(self.id, answer[1].decode())
        return list(answer[2])

    def _reply(self, encoded: bytes) -> None:
        self._ask("reply", self.reply_to or "", encoded)

    def _settle(self, encoded: bytes) -> None:
        self._end(encoded)

    def _end(self, reply: bytes | None) -> None:
        if refused := settle(self._mailbox.engine, [(self, reply)]):
            raise ReceiptHandleExpiredError(self.id, refused[0])

    def is_of(self, engine: RedisEngine) -> bool:
        return self._mailbox.engine is engine

    @property
    def address(self) -> tuple[str, str, str]:
        """Mailbox, id and token, by which scripts find it."""
        return self._mailbox.name, self.id, self._token

    def settlement(self, reply: bytes | None) -> tuple[Argument, ...]:
        """Returns it as `exchange` takes it. Without a reply it is acknowledged only."""
        return *self.address, "" if reply is None else self.reply_to or "", reply or b""

    def _give_up(self, cause: FailureCause, reason: str) -> None:
        self._ask("bury", cause.value, reason)

    def _ask(self, operation: str, *values: Argument) -> None:
        answer = self._mailbox.call(operation, self.id, self._token, *values)
        if len(answer) > 1:
            raise ReceiptHandleExpiredError(self.id, answer[1].decode())


class RedisDeadLetters(DeadLetters):
    def __init__(self, mailbox: RedisMailbox[Any, Any]) -> None:
        self._mailbox = mailbox

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        check_max_messages(limit)
        return [_letter(*row) for row in self._mailbox.asked("dead_letters", limit, after or "")[1]]

    def count(self) -> int:
        return int(self._mailbox.asked("dead_count")[1])

    def replay(self, message_id: str) -> bool:
        _, found, *refused = self._mailbox.asked("replay", message_id)
        if refused:
            key, generation, current, revoked = refused
            raise KeyRefusedError(key.decode(), int(generation), int(current), revoked=bool(revoked))
        return bool(found)

    def delete(self, message_id: str) -> bool:
        return bool(self._mailbox.asked("dead_delete", message_id)[1])

    def purge(self) -> int:
        return self._mailbox.in_steps("dead_purge")


def _letter(
    cause: bytes,
    reason: bytes,
    died: bytes,
    enqueued: bytes,
    deliveries: bytes | None,
    generation: bytes | None,
    key: bytes | None,
    reply_to: bytes | None,
    checkpoint: bytes | None,
    body: bytes,
    name: bytes,
) -> DeadLetter:
    return dead_letter(
        name.decode(),
        body,
        cause.decode(),
        reason.decode(),
        int(died) / 1e6,
        int(enqueued) / 1e6,
        int(deliveries or 0),
        _text(key),
        int(generation or 0),
        _text(reply_to),
        checkpoint,
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


_PROVISIONAL, _HELD = 0, 1
PURGE_STEP = 1_000
"""The messages that one script removes: other clients get their turn in between."""


class RedisMailbox(PolledMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox."""

    topic_prefix = "m:"
    engine: RedisEngine

    def __init__(self, engine: RedisEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        super().__init__(engine, name, body, reply, max_delivery_count)
        self.server_topic = engine.wakeups.topic(self.topic)
        self.limit: Argument = "" if max_delivery_count is None else max_delivery_count
        self.lost_claims = engine.lost_claims(name)

    def call(self, operation: str, *values: Argument) -> Answer:
        """One round trip. For messages too: they stay valid when the handle is closed, not when the engine is."""
        return self.engine.call(operation, self.name, *values)

    def asked(self, operation: str, *values: Argument) -> Answer:
        self.check_open()
        return self.call(operation, *values)

    def _send(self, message: CheckedMessage) -> str:
        if message.key is None:
            return str(self.call("send", *_arguments(message))[1].decode())
        answer = self.call("send_keyed", *_arguments(message), message.key)
        if len(answer) > 2:
            raise KeyRefusedError(message.key, message.generation, int(answer[2]), revoked=bool(answer[3]))
        return str(answer[1].decode())

    def _send_many(self, messages: list[CheckedMessage]) -> list[Sent]:
        if all(m.is_plain for m in messages):
            first = self.call("send_plain", *(m.body for m in messages))[1]
            return [Sent(f"{number:016d}") for number in range(first, first + len(messages))]
        answers = self.call("send_mixed", *(word for m in messages for word in (*_arguments(m), m.key or "")))[1]
        return [_outcome(message, *answer) for message, answer in zip(messages, answers, strict=True)]

    def _receive(self, most: int, lease_s: float, wait_s: float, *, provisional: bool) -> list[Message[BodyT, ReplyT]]:
        stage = _PROVISIONAL if provisional else _HELD
        if wait_s and self.engine.hands_over:
            look = partial(self.claim, most, lease_s, stage)
            return HandoverPoll(self, lease_s, stage, self.server_topic, look).poll(self.polls, wait_s)
        if wait_s:
            return self.polls.poll(wait_s, lambda: self.claim(most, lease_s, stage))
        while True:
            claimed = self.claim(most, lease_s, stage)
            if not claimed.again:
                return claimed.found

    def claim(
        self, most: int, lease: float, stage: int, offer: Offer | None = None, withdrawn: Sequence[str] = ()
    ) -> LookResult[Message[BodyT, ReplyT]]:
        """One claim. Poison messages among it become dead letters; then there may be more to claim."""
        self.lost_claims.give_back(lambda tokens: self.engine.call("give_back", 1, self.name, *tokens))
        token, text = (offer.token, offer.text) if offer is not None else (self.engine.new_token(), "")
        asked, limits = self.engine.clock.boottime(), (most, microseconds(lease), token, stage, self.limit)
        try:
            counts = ("", text, self.name, "", 1, len(withdrawn), 0, 1)
            _, due, rows, at, _ = self.engine.call("exchange", *limits, *counts, *withdrawn, 1, self.name)
        except EngineUnavailableError:
            self.lost_claims.add(token)
            raise
        if not rows:
            if offer is not None and due != 0:
                offer.asked_at, offer.left_at = asked, at
            return LookResult([], due == 0, due / 1e6 if due > 0 else None)
        messages: list[Message[BodyT, ReplyT]] = [
            made for row in rows if (made := self.message(row, token, asked + lease)) is not None
        ]
        return LookResult(messages, not messages)

    def message(self, row: list[Any], token: str, lease_until: float) -> RedisMessage[BodyT, ReplyT] | None:
        """A delivery as the server tells it; None when its body is of no use, and it was given up."""
        (
            deliveries,
            forgiven,
            name,
            enqueued,
            generation,
            is_failure,
            key,
            reply_to,
            checkpoint,
            encoded,
            suspect,
            *_,
        ) = row
        message_id = name.decode()

        def bury(reason: str) -> None:
            # A refusal means that our lease ran out meanwhile: whoever claims it next comes to the same conclusion.
            self.call("bury", message_id, token, FailureCause.UNDECODABLE.value, reason)

        opened = self.open_or_bury(encoded, bool(is_failure), bury)
        if opened is None:
            return None
        ticket = Ticket(
            id=message_id,
            receipt_handle=f"{message_id}.{token}",
            delivery_count=deliveries,
            enqueued_at=int(enqueued) / 1e6,
            lease_until=lease_until,
            reply_to=_text(reply_to),
            key=_text(key),
            generation=int(generation or 0),
            forgiven=int(forgiven or 0),
        )
        return RedisMessage(self, ticket, DeliveredContent(*opened, checkpoint, bool(suspect)))

    def _adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        return RedisMessage(self, ticket)

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        ours = [message for message in messages if isinstance(message, RedisMessage)]
        if not ours:
            return list(messages)
        refused = {ours[place].receipt_handle for place in settle(self.engine, [(message, None) for message in ours])}
        return [m for m in messages if not isinstance(m, RedisMessage) or m.receipt_handle in refused]

    def revoke(self, key: str) -> bool:
        check_key(key)
        return bool(self.asked("revoke", key)[1])

    def _withdraw_key(self, key: str, generation: int) -> Withdrawal:
        return Withdrawal(self.call("withdraw_key", key, generation)[1].decode())

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


def settle(engine: RedisEngine, group: Sequence[tuple[RedisMessage[Any, Any], bytes | None]]) -> dict[int, str]:
    """Settles in one round trip. Returns the places of those that were not held, and why."""
    words = (word for message, reply in group for word in message.settlement(reply))
    answer = engine.call("exchange", 0, 0, "", "", "", "", "", "", "", 0, 0, len(group), 0, *words)
    return refusals(answer[4])


def refusals(told: list[Any]) -> dict[int, str]:
    """As scripts tell them: place and reason by turns."""
    return {place: why.decode() for place, why in zip(told[::2], told[1::2], strict=True)}


def _outcome(message: CheckedMessage, name: bytes, newest: bytes | None = None, revoked: int = 0) -> Sent:
    return sent_or_refused(message, name.decode(), None if newest is None else int(newest), revoked=bool(revoked))


def send_across(engine: RedisEngine, batches: list[tuple[Any, list[CheckedMessage]]]) -> list[Sent]:
    """Queues messages of several mailboxes with one script, in order."""
    return sent_outcomes(batches, engine.call("send_across", *message_words(batches))[1])


def message_words(batches: list[tuple[Any, list[CheckedMessage]]]) -> Iterator[Argument]:
    """Yields the arguments with which scripts take messages of several mailboxes."""
    for mailbox, messages in batches:
        for message in messages:
            yield from (mailbox.name, *_arguments(message), message.key or "")


def sent_outcomes(batches: list[tuple[Any, list[CheckedMessage]]], answers: list[Any]) -> list[Sent]:
    """Returns what became of each message, as the scripts tell it."""
    each = [message for _, messages in batches for message in messages]
    return [_outcome(message, *answer) for message, answer in zip(each, answers, strict=True)]


def _arguments(message: CheckedMessage) -> tuple[Argument, ...]:
    """The message as the scripts that send take it, without its key."""
    return message.body, microseconds(message.delay), message.reply_to or "", message.generation


def microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
