"""Handles on mailboxes that live in this process: `InMemoryMailbox` alone, or many of one `MemoryEngine`, and the consumer of many of them.

The consumer settles and claims under one lock, at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tenure.clock import Clock
from tenure.engines.checked_consumer import CheckedConsumer, CheckedSettlement, ClaimWish, Dead, Ranks
from tenure.engines.checked_mailbox import UNDECODABLE, CheckedMailbox, CheckedMessage, decode_failure
from tenure.engines.checks import check_key, check_max_messages
from tenure.engines.contracts import (
    BodyT,
    DeadLetter,
    DeadLetters,
    Depth,
    FailureCause,
    Mailbox,
    Message,
    ReplyT,
    Sent,
    Ticket,
    Withdrawal,
)
from tenure.engines.mailbox_records import HELD, UNSTARTED, DeliveryStage, MessageRecord, claim_ranked
from tenure.engines.mailbox_state import MailboxState
from tenure.engines.memory.shared_mailbox import ForeignMailboxName, MemoryMessage, MemoryPolls, SharedMailbox
from tenure.errors import KeyRefusedError

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine


ResultT = TypeVar("ResultT")


class MemoryMailbox(MemoryPolls, CheckedMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox of a memory engine."""

    message_class: type[MemoryMessage[Any, Any]] = MemoryMessage

    def __init__(
        self, engine: MemoryEngine, name: str, body: Any = Any, reply: Any = Any, max_delivery_count: int | None = None
    ) -> None:
        CheckedMailbox.__init__(self, name, body, reply, max_delivery_count)
        self.box: SharedMailbox = engine.box(name)
        MemoryPolls.__init__(self, engine, (self.box,))
        self.what = f"mailbox {name!r}"
        self._epoch, self._prefix, self._next_number = engine.epoch, engine.prefix, engine.next_number
        self._decode = self.body_codec.decode

    # Sending

    def _send(self, message: CheckedMessage) -> str:
        self._lock.acquire()
        try:
            now, box = self._boottime(), self.box
            at, timers = self._epoch + now, box.state.timers
            record = MessageRecord(f"{self._prefix}{self._next_number()}", message.body, at)
            if message.is_plain and not box.waiters and (not timers or timers[0][0] > now):
                box.state.add(record, now)
            else:
                record.reply_to, record.key, record.generation = message.reply_to, message.key, message.generation
                box.add(record, now, message.delay)
            return record.id
        finally:
            self._lock.release()

    def _send_many(self, messages: list[CheckedMessage]) -> list[Sent]:
        with self._lock:
            now = self._boottime()
            return [self.add_locked(message, now) for message in messages]

    def add_locked(self, message: CheckedMessage, now: float) -> Sent:
        """Queues a message, or tells why not. The caller holds the lock."""
        record = self._record(message, now)
        try:
            self.box.add(record, now, message.delay)
        except KeyRefusedError as refused:
            return Sent(record.id, str(refused))
        return Sent(record.id)

    def _record(self, message: CheckedMessage, now: float) -> MessageRecord:
        message_id, at = f"{self._prefix}{self._next_number()}", self._epoch + now
        return MessageRecord(message_id, message.body, at, message.reply_to, message.key, message.generation)

    def reply_address(self, reply_to: Mailbox[ReplyT, Any] | str) -> str:
        if isinstance(reply_to, MemoryMailbox) and reply_to.engine is not self.engine:
            return ForeignMailboxName.of(reply_to)
        return super().reply_address(reply_to)

    # Receiving

    def _receive(self, most: int, lease_s: float, wait_s: float, *, provisional: bool) -> list[Message[BodyT, ReplyT]]:
        stage = UNSTARTED if provisional else HELD
        self._lock.acquire()
        try:
            found = self._take(most, lease_s, stage)
            if not found and wait_s:
                found = self._poll(wait_s, lambda: self._take(most, lease_s, stage))
            if found and self.box.waiters:
                self.box.alert()  # for the watch over the timers: a claim has made one
        finally:
            self._lock.release()
        if self.engine.outbox:
            self.engine.forward()
        return found

    def _take(self, most: int, lease: float, stage: DeliveryStage) -> list[Message[BodyT, ReplyT]]:
        """Claims what is ready. The caller holds the lock."""
        found: list[Message[BodyT, ReplyT]] = []
        now, state = self._boottime(), self.box.state
        if state.timers and state.timers[0][0] <= now:
            state.promote(now)
        if not state.ready:
            return found
        limit, receipt = self.max_delivery_count, str(self._next_number())  # one receipt for all of them
        while record := state.claim(now, lease, receipt, stage, limit, True, not found):
            try:  # as `open_or_bury`, in fewer words: that would be a tenth of a receive
                body, failure = (
                    (None, decode_failure(record.body)) if record.is_failure else (self._decode(record.body), None)
                )
            except UNDECODABLE as error:
                state.bury(record, FailureCause.UNDECODABLE, self.why_undecodable(error), now)
                continue
            found.append(self.message_class(self, record, body, failure))
            if record.suspect or len(found) == most:
                break
        return found

    # The rest of the contract

    def _adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        with self._lock:
            return self.message_class.adopted(self, ticket)

    def locked(self, act: Callable[[MailboxState, float], ResultT]) -> ResultT:
        """Returns what `act` makes of the state, under the lock and at its time."""
        self.check_open()
        with self._lock:
            now = self._boottime()
            return act(self.box.at(now), now)

    def revoke(self, key: str) -> bool:
        check_key(key)
        return self.locked(lambda state, now: state.revoke(key, now))

    def _withdraw_key(self, key: str, generation: int) -> Withdrawal:
        return self.locked(lambda state, now: state.withdraw(key, generation, now))

    def depth(self) -> Depth:
        return self.locked(lambda state, now: state.depth(now))

    def purge(self) -> int:
        return self.locked(lambda state, now: state.purge(now))

    @property
    def dead_letters(self) -> DeadLetters:
        return MemoryDeadLetters(self)


class MemoryDeadLetters(DeadLetters):
    """The dead letters of one mailbox."""

    def __init__(self, mailbox: MemoryMailbox[Any, Any]) -> None:
        self._mailbox = mailbox

    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        check_max_messages(limit)
        return self._mailbox.locked(lambda state, _: state.dead_letters(limit, after))

    def count(self) -> int:
        return self._mailbox.locked(lambda state, _: len(state.dead))

    def replay(self, message_id: str) -> bool:
        def replay(state: MailboxState, now: float) -> bool:
            found = state.replay(message_id, now)
            self._mailbox.box.alert()
            return found

        return self._mailbox.locked(replay)

    def delete(self, message_id: str) -> bool:
        return self._mailbox.locked(lambda state, _: state.forget(message_id)) == 1

    def purge(self) -> int:
        return self._mailbox.locked(lambda state, _: state.forget(None))


class InMemoryMailbox(MemoryMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A mailbox on its own, as the documents use it: `InMemoryMailbox(name="requests", body=Request)`."""

    def __init__(
        self,
        name: str = "mailbox",
        body: Any = Any,
        reply: Any = Any,
        clock: Clock | None = None,
        max_delivery_count: int | None = None,
        *,
        engine: MemoryEngine | None = None,
    ) -> None:
        from tenure.engines.memory.engine import MemoryEngine

        super().__init__(engine or MemoryEngine(clock), name, body, reply, max_delivery_count)


Deliveries = list[Message[BodyT, ReplyT]]


class MemoryConsumer(MemoryPolls, CheckedConsumer[BodyT, ReplyT, Deliveries[BodyT, ReplyT]], Generic[BodyT, ReplyT]):
    """Settles and claims over many mailboxes under one lock. It knows a claim by its deliveries."""

    engine: MemoryEngine
    what = "this consumer"

    def __init__(self, engine: MemoryEngine, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        CheckedConsumer.__init__(self, engine, body, reply, max_delivery_count)
        MemoryPolls.__init__(self, engine, ())
        self._looked_up: tuple[Ranks, list[list[SharedMailbox]]] = ((), [])

    def _cover(self, names: tuple[str, ...]) -> None:
        boxes = tuple(self.handle_of(name).box for name in names)  # before a claim needs them: it holds the lock
        with self._lock:
            self._looked_up = ((), [])
            self._move(boxes)

    def _is_ours(self, message: Any) -> bool:
        return isinstance(message, MemoryMessage) and message.is_in(self.engine)

    def _exchange(
        self,
        group: Sequence[CheckedSettlement],
        wish: ClaimWish | None,
        wait_s: float,
        claims: list[Deliveries[BodyT, ReplyT]],
    ) -> tuple[Deliveries[BodyT, ReplyT], Dead]:
        found: Deliveries[BodyT, ReplyT] = []
        with self._lock:
            outcomes = [message.settle_now(reply) for message, reply in group]
            if wish is not None:
                found = self._take(wish)
                if not found and wait_s:
                    found = self._poll(wait_s, lambda: self._take(wish._replace(ranks=self._order(wish.fair))))
                # A claim has made timers, for the oldest in line to watch. One that found nothing has left all as it was.
                for box in self.boxes if found else ():
                    if box.waiters:
                        box.alert()
        if found:
            claims.append(found)
        if self.engine.outbox:
            self.engine.forward()
        return found, {place: gone for place, gone in enumerate(outcomes) if gone is not None}

    def _take(self, wish: ClaimWish) -> Deliveries[BodyT, ReplyT]:
        """Claims what is ready. The caller holds the lock."""
        now, stage = self._boottime(), UNSTARTED if wish.provisional else HELD
        receipt, limit = str(self.engine.next_number()), self.max_delivery_count
        found: Deliveries[BodyT, ReplyT] = []

        def claim(state: MailboxState, first: bool) -> MessageRecord | None:
            return state.claim(now, wish.lease_s, receipt, stage, limit, True, first)

        def take(state: MailboxState, record: MessageRecord) -> bool:
            handle = self.handle_of(state.name)

            def bury(reason: str) -> None:
                state.bury(record, FailureCause.UNDECODABLE, reason, now)

            if (opened := handle.open_or_bury(record.body, record.is_failure, bury)) is None:
                return False
            found.append(handle.message_class(handle, record, *opened))
            return True

        states = [[box.at(now) for box in rank if box.state.records] for rank in self._ranked(wish)]
        claim_ranked(states, wish.most, claim, take)
        return found

    def _ranked(self, wish: ClaimWish) -> list[list[SharedMailbox]]:
        """Returns the mailboxes in the order of this claim. The names of the cover are looked up once."""
        if self._looked_up[0] is not wish.ranks:
            boxes = {box.state.name: box for box in self.boxes}
            self._looked_up = wish.ranks, [[boxes[name] for name in rank if name in boxes] for rank in wish.ranks]
        return self._looked_up[1]

    def _still_held(self, claims: list[Deliveries[BodyT, ReplyT]]) -> Deliveries[BodyT, ReplyT]:
        given: list[Any] = [message for found in claims for message in found]
        with self._lock:
            return [message for message in given if message.is_held()]

    def _extend_many(self, messages: Sequence[Any], seconds: float) -> set[int]:
        with self._lock:
            return {place for place, message in enumerate(messages) if not message.extend_now(seconds)}
