"""A mailbox in Redis, its deliveries and its dead letters: one script per operation, and a claim that waits for a wake-up when there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from tenure.engines.checked_mailbox import (
    NO_CONTENT,
    CheckedMessage,
    DeliveredContent,
    LeasedMessage,
    PolledMailbox,
    sent_or_refused,
)
from tenure.engines.checks import check_key, check_max_messages
from tenure.engines.contracts import BodyT, DeadLetter, DeadLetters, Depth, FailureCause, Message, ReplyT, Sent, Ticket
from tenure.engines.long_poll import LookResult
from tenure.engines.redis.connections import Answer, Argument
from tenure.engines.redis.handover import HandoverPoll, Offer
from tenure.errors import (
    EngineUnavailableError,
    KeyRefusedError,
    MailboxConnectionError,
    ReceiptHandleExpiredError,
)

if TYPE_CHECKING:
    from tenure.engines.redis.engine import RedisEngine
    from tenure.engines.redis.pipelined_commands import PipelinedCommands


class RedisMessage(LeasedMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Named by its id and the token of the claim: a later claim has another token."""

    __slots__ = ("_confirming", "_mailbox", "_token")

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
        self._ask("acknowledge")

    def _nack(self, delay_s: float) -> None:
        self._ask("nack", round(delay_s * 1e6), self._mailbox.limit)

    def release(self) -> None:
        self._ask("release")

    def _extend(self, seconds: float, checkpoint: bytes | None) -> None:
        kept: tuple[Argument, ...] = () if checkpoint is None else (checkpoint,)
        self._ask("extend", round(seconds * 1e6), *kept)

    def _reply(self, encoded: bytes) -> None:
        self._ask("reply", self.reply_to or "", encoded)

    def _settle(self, encoded: bytes) -> None:
        self._ask("settle", self.reply_to or "", encoded)

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
    return DeadLetter(
        id=name.decode(),
        body=body,
        cause=FailureCause(cause.decode()),
        reason=reason.decode(),
        died_at=int(died) / 1e6,
        enqueued_at=int(enqueued) / 1e6,
        delivery_count=int(deliveries or 0),
        key=None if key is None else key.decode(),
        generation=int(generation or 0),
        reply_to=None if reply_to is None else reply_to.decode(),
        checkpoint=checkpoint,
    )


_PROVISIONAL, _HELD = 0, 1
PURGE_STEP = 1_000
"""The messages that one script removes: other clients get their turn in between."""


class RedisMailbox(PolledMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox."""

    def __init__(self, engine: RedisEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        super().__init__(name, body, reply, max_delivery_count, engine.wakeups, f"m:{name}")
        self.engine: RedisEngine = engine
        self.topic = engine.wakeups.topic(self.polls.topic.name)
        self.limit: Argument = "" if max_delivery_count is None else max_delivery_count
        self.lost_claims = engine.lost_claims(name)

    def call(self, operation: str, *values: Argument) -> Answer:
        """One round trip. For messages too: they stay valid when the handle is closed, not when the engine is."""
        return self.engine.connections.call(operation, (self.name, *values), MailboxConnectionError)

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
        if wait_s and most == 1 and self.engine.hands_over:
            return self._wait_for_one(wait_s, HandoverPoll(self, lease_s, stage))
        if wait_s:
            return self.polls.poll(wait_s, lambda: self.claim(most, lease_s, stage))
        while True:
            claimed = self.claim(most, lease_s, stage)
            if not claimed.again:
                return claimed.found

    def _wait_for_one(self, wait_s: float, poll: HandoverPoll[BodyT, ReplyT]) -> list[Message[BodyT, ReplyT]]:
        try:
            return self.polls.poll(wait_s, poll.look, handed=poll.handed)
        finally:
            poll.withdraw()

    def claim(
        self, most: int, lease: float, stage: int, offer: Offer | None = None, withdrawn: Sequence[str] = ()
    ) -> LookResult[Message[BodyT, ReplyT]]:
        """One claim. Poison messages among it become dead letters; then there may be more to claim."""
        self.lost_claims.give_back(lambda tokens: self.call("give_back", *tokens))
        token, text = (offer.token, offer.text) if offer is not None else (self.engine.new_token(), "")
        asked, values = self.engine.clock.boottime(), (most, microseconds(lease), token, stage, self.limit)
        try:
            _, due, rows, *at = self.call("claim", *values, text, *withdrawn)
        except EngineUnavailableError:
            self.lost_claims.add(token)
            raise
        if not rows:
            if offer is not None and at:
                offer.asked_at, offer.left_at = asked, at[0]
            return LookResult([], due == 0, due / 1e6 if due > 0 else None)
        messages: list[Message[BodyT, ReplyT]] = [
            made for row in rows if (made := self.message(row, token, asked + lease)) is not None
        ]
        return LookResult(messages, not messages)

    def message(self, row: list[Any], token: str, lease_until: float) -> RedisMessage[BodyT, ReplyT] | None:
        """A delivery as the server tells it; None when its body is of no use, and it was given up."""
        deliveries, forgiven, name, enqueued, generation, is_failure, key, reply_to, checkpoint, encoded, suspect = row
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
            reply_to=None if reply_to is None else reply_to.decode(),
            key=None if key is None else key.decode(),
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
        answer = self.call("acknowledge_many", *(word for message in ours for word in message.receipt))
        refused = {ours[position].receipt_handle for position in answer[1]}
        return [m for m in messages if not isinstance(m, RedisMessage) or m.receipt_handle in refused]

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

    def check_engine_open(self) -> None:
        self.engine.connections.check_open()


def _outcome(message: CheckedMessage, name: bytes, newest: bytes | None = None, revoked: int = 0) -> Sent:
    return sent_or_refused(message, name.decode(), None if newest is None else int(newest), revoked=bool(revoked))


def _arguments(message: CheckedMessage) -> tuple[Argument, ...]:
    """The message as the scripts that send take it, without its key."""
    return message.body, microseconds(message.delay), message.reply_to or "", message.generation


def microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
