"""A mailbox in the log: one command per operation, and a claim only when there is something to claim.

A delivery is known by the message's id and the receipt, which is the id of the claim that brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from tenure.engines.checked_mailbox import (
    NO_CONTENT,
    CheckedMailbox,
    CheckedMessage,
    DecodedBody,
    DeliveredContent,
    LeasedMessage,
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
from tenure.engines.nats import commands as c
from tenure.engines.nats.entry_parts import EntryParts
from tenure.engines.nats.ledger_records import Delivery
from tenure.engines.nats.pending_commands import Claimed, LogPoll
from tenure.engines.nats.polls import RECENT_S, NatsPolls
from tenure.errors import ReceiptHandleExpiredError

if TYPE_CHECKING:
    from tenure.engines.nats.engine import NatsEngine

PartT = TypeVar("PartT")


class NatsMessage(LeasedMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Asks the log each time: the fold knows whether this receipt still holds."""

    __slots__ = ("_confirmed", "_lease_until", "_mailbox", "given_up", "held")
    _mailbox: NatsMailbox[Any, Any]

    def __init__(self, mailbox: NatsMailbox[Any, Any], ticket: Ticket, content: DeliveredContent = NO_CONTENT) -> None:
        super().__init__(ticket, content, mailbox.reply_codec, mailbox.engine.clock)
        self._mailbox = mailbox
        self.held = (ticket.id, ticket.receipt_handle)
        self.given_up = ""
        self._confirmed: dict[str, float] = {}  # filled when what was handed over is confirmed

    @classmethod
    def of(cls, mailbox: NatsMailbox[Any, Any], delivery: Delivery, claimed: Claimed, opened: DecodedBody) -> Self:
        ticket = Ticket(
            id=delivery.id,
            receipt_handle=claimed.receipt,
            delivery_count=delivery.delivery_count,
            enqueued_at=delivery.enqueued_at,
            lease_until=claimed.lease_until,
            reply_to=delivery.reply_to,
            key=delivery.key,
            generation=delivery.generation,
            forgiven=delivery.forgiven,
        )
        message = cls(mailbox, ticket, DeliveredContent(*opened, delivery.checkpoint, delivery.suspect))
        message._confirmed = claimed.confirmed
        return message

    def is_of(self, engine: NatsEngine) -> bool:
        return self._mailbox.engine is engine

    @property
    def lease_until(self) -> float:
        return max(self._lease_until, self._confirmed.get(self.id, 0.0))

    @lease_until.setter
    def lease_until(self, boottime: float) -> None:
        self._lease_until = boottime

    def acknowledge(self) -> None:
        self._ask("acknowledge", c.End, [self.held])
        self.given_up = "it was acknowledged"

    def _nack(self, delay_s: float) -> None:
        self._ask("nack", c.Nack, *self.held, delay_s, self._mailbox.max_delivery_count)
        self.given_up = "it was nacked"

    def release(self) -> None:
        self._ask("release", c.Release, [self.held])
        self.given_up = "it was released"

    def _extend(self, seconds: float, checkpoint: bytes | None) -> None:
        self._ask("extend", c.Extend, *self.held, seconds, checkpoint)

    def _append_step(self, key: str, seconds: float, record: bytes) -> None:
        self._ask("append_step", c.AppendStep, *self.held, seconds, record)

    def _steps(self, key: str) -> list[bytes]:
        return self._mailbox.engine.call("steps", self._read_steps, key)

    async def _read_steps(self, key: str) -> list[bytes]:
        """On the loop."""
        log = self._mailbox.engine.log
        await log.catch_up()
        box = log.ledger.box(self._mailbox.name)
        record = box.held(*self.held)
        if record is None or not record.is_held(self.held[1], log.about_now()):
            self._refuse()
        return list(box.keys.records[key].steps)

    def _reply(self, encoded: bytes) -> None:
        self._ask("reply", c.SettleWithReply, *self.held, encoded)

    def _settle(self, encoded: bytes) -> None:
        self._ask("settle", c.End, [self.held], encoded)
        self.given_up = "it was settled"

    def _give_up(self, cause: FailureCause, reason: str) -> None:
        self._ask("dead_letter", c.Bury, *self.held, cause, reason)
        self.given_up = "it is a dead letter"

    def _ask(self, operation: str, kind: Callable[..., c.AnyCommand], *values: Any) -> None:
        try:
            self._mailbox.engine.ask(operation, kind, self._mailbox.name, *values)
        except ReceiptHandleExpiredError:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise ReceiptHandleExpiredError(self.id, self.given_up or "its lease ran out")


Page = list[DeadLetter]  # inside the class, `list` is its method


class NatsDeadLetters(DeadLetters):
    def __init__(self, mailbox: NatsMailbox[Any, Any]) -> None:
        self._mailbox, self._engine = mailbox, mailbox.engine

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        check_max_messages(limit)
        self._mailbox.check_open()
        return self._engine.call("dead_letters", self._page, limit, after)

    async def _page(self, limit: int, after: str | None) -> Page:
        await self._engine.log.catch_up()
        return self._engine.log.ledger.box(self._mailbox.name).dead_letters(limit, after)

    def count(self) -> int:
        self._mailbox.check_open()
        return self._engine.call("dead_letters", self._count)

    async def _count(self) -> int:
        await self._engine.log.catch_up()
        return len(self._engine.log.ledger.box(self._mailbox.name).dead)

    def replay(self, message_id: str) -> bool:
        self._mailbox.check_open()
        return bool(self._engine.ask("replay", c.Replay, self._mailbox.name, message_id))

    def delete(self, message_id: str) -> bool:
        self._mailbox.check_open()
        return bool(self._engine.ask("delete", c.Forget, self._mailbox.name, message_id))

    def purge(self) -> int:
        self._mailbox.check_open()
        return int(self._engine.ask("purge_dead", c.Forget, self._mailbox.name, None))


def send_across(engine: NatsEngine, batches: list[tuple[Any, list[CheckedMessage]]]) -> list[Sent]:
    """Queues messages of several mailboxes: usually all of them by one message of the log (decision 0520)."""
    sent: list[Sent] = []
    for runs in _runs(batches, engine.link.max_payload // 2):
        told = engine.ask("send_across", c.SendAcross, runs)
        sent += [Sent(message, None if refused is None else str(refused)) for message, refused in told]
    return sent


def entry_parts_of(batches: list[tuple[Any, list[CheckedMessage]]], acknowledges: Sequence[Any]) -> EntryParts:
    runs = [(mailbox.name, [_item(message) for message in messages]) for mailbox, messages in batches]
    return EntryParts(runs, [(message.mailbox, *message.held) for message in acknowledges])


Run = tuple[str, list[c.Item]]


def _runs(batches: list[tuple[Any, list[CheckedMessage]]], most: int) -> Iterator[list[Run]]:
    """Yields (mailbox, messages) in order, together small enough for one message of the stream."""
    named = [(mailbox.name, _item(message)) for mailbox, messages in batches for message in messages]
    for part in _parts(named, most, lambda one: _size(one[1]) + 4 * len(one[0])):
        yield [(name, [item for _, item in run]) for name, run in groupby(part, key=lambda one: one[0])]


_ITEM_ROOM = 64  # of one item beside its body, key and reply_to


class NatsMailbox(NatsPolls, CheckedMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox."""

    def __init__(self, engine: NatsEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        CheckedMailbox.__init__(self, name, body, reply, max_delivery_count)
        NatsPolls.__init__(self, engine, name, f"mailbox {name!r}")
        self._given_at = -inf
        """When it last got messages."""

    def _send(self, message: CheckedMessage) -> str:
        ((message_id, refused),) = self.engine.ask("send", c.Send, self.name, [_item(message)])
        if refused is not None:
            raise refused
        return str(message_id)

    def _send_many(self, messages: list[CheckedMessage]) -> list[Sent]:
        sent: list[Sent] = []
        for part in _parts([_item(message) for message in messages], self.engine.link.max_payload // 2, _size):
            told = self.engine.ask("send_many", c.Send, self.name, part)
            sent += [Sent(message, None if refused is None else str(refused)) for message, refused in told]
        return sent

    def _receive(self, most: int, lease_s: float, wait_s: float, *, provisional: bool) -> list[Message[BodyT, ReplyT]]:
        clock = self.engine.clock
        end = clock.monotonic() + wait_s
        while True:
            claimed = self.engine.wait(self._claim, most, lease_s, provisional, wait_s)
            if claimed is None:
                return []
            self._given_at = clock.monotonic()
            made = [self.message(claimed, delivery) for delivery in claimed.deliveries]
            if messages := [message for message in made if message is not None]:
                return messages
            wait_s = max(0.0, end - clock.monotonic())  # none of them could be decoded

    async def _claim(
        self, answer: Callable[[Claimed], None], most: int, lease: float, provisional: bool, wait: float
    ) -> Claimed | None:
        """On the loop. What was claimed; None when there was nothing, or the handle was woken."""
        if not wait or self.handle.ended:
            found = await self._look(most, lease, provisional)
            if found is None and wait:
                self.handle.begin(LogPoll())  # it was woken before: that was for this poll
            return found

        def command(receipt: str, seconds: float) -> c.AnyCommand:
            return c.AwaitApart(receipt, self.name, most, lease, self.max_delivery_count, provisional, seconds)

        now = self.engine.clock.monotonic()
        # A node that just took results is likely to say something more in this moment.
        rides = provisional and now - self._given_at < RECENT_S
        return await self.stand(answer, command, lease, now + wait, rides=rides)

    def watched(self) -> tuple[str, ...]:
        return (self.name,)

    async def _look(self, most: int, lease: float, provisional: bool) -> Claimed | None:
        """Returns the messages that are there now. A claim is appended only where the fold shows a message to claim."""
        log, clock = self.engine.log, self.engine.clock
        current = False  # whether we know all that was sent before this call
        while True:
            if log.may_hold(self.name):
                asked, receipt = clock.boottime(), log.new_id()
                command = c.ClaimApart(receipt, self.name, most, lease, self.max_delivery_count, provisional)
                if deliveries := await self.engine.timed("receive", log.ask(command)):
                    return Claimed(receipt, asked + lease, deliveries, {})
                current = True
                if not log.ledger.box(self.name).ready_count:
                    return None
            elif current:
                return None
            else:
                await log.catch_up()
                current = True

    def message(self, claimed: Claimed, delivery: Delivery) -> Message[BodyT, ReplyT] | None:
        def bury(reason: str) -> None:
            self._bury(delivery.id, claimed.receipt, reason)

        opened = self.open_or_bury(delivery.body, delivery.is_failure, bury)
        return NatsMessage.of(self, delivery, claimed, opened) if opened is not None else None

    def _bury(self, message: str, receipt: str, reason: str) -> None:
        try:
            self.engine.ask("bury", c.Bury, self.name, message, receipt, FailureCause.UNDECODABLE, reason)
        except ReceiptHandleExpiredError:
            return  # our lease ran out meanwhile: whoever claims it next comes to the same conclusion

    def _adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        return NatsMessage(self, ticket)

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        mine = [m for m in messages if isinstance(m, NatsMessage)]
        if len(mine) < 2 or len(mine) < len(messages):
            return super().acknowledge_many(messages)
        lost = set(self.engine.ask("acknowledge_many", c.End, self.name, [message.held for message in mine]))
        for message in mine:
            message.given_up = "it was acknowledged"
        return [message for message in messages if message.id in lost]

    def revoke(self, key: str) -> bool:
        check_key(key)
        self.check_open()
        return bool(self.engine.ask("revoke", c.Revoke, self.name, key))

    def _withdraw_key(self, key: str, generation: int) -> Withdrawal:
        return Withdrawal(self.engine.ask("withdraw", c.WithdrawKey, self.name, key, generation))

    def depth(self) -> Depth:
        self.check_open()
        return self.engine.call("depth", self._depth)

    async def _depth(self) -> Depth:
        now = await self.engine.log.catch_up()
        return self.engine.log.ledger.box(self.name).depth(now)

    def purge(self) -> int:
        self.check_open()
        return int(self.engine.ask("purge", c.Purge, self.name))

    @property
    def dead_letters(self) -> DeadLetters:
        return NatsDeadLetters(self)


def _item(message: CheckedMessage) -> c.Item:
    return c.Item(message.body, message.key, message.generation, message.reply_to, message.delay)


def _size(item: c.Item) -> int:
    """Returns the most bytes that an item takes in a command."""
    return len(item.body) + 4 * len(item.key or "") + len(item.reply_to or "") + _ITEM_ROOM


def _parts(items: list[PartT], most: int, size_of: Callable[[PartT], int]) -> list[list[PartT]]:
    """Returns the items in order, in parts that are each small enough for one message of the stream: usually all of them in one."""
    parts: list[list[PartT]] = []
    size = most
    for item in items:
        need = size_of(item)
        if size + need > most:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += need
    return parts
