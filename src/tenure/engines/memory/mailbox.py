"""Handles on mailboxes that live in this process: `InMemoryMailbox` alone, or many of one `MemoryEngine`."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tenure.clock import Clock
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
)
from tenure.engines.mailbox_records import HELD, UNSTARTED, DeliveryStage, MessageRecord
from tenure.engines.mailbox_state import MailboxState
from tenure.engines.memory.shared_mailbox import ForeignMailboxName, MemoryMessage, SharedMailbox, Waiter
from tenure.errors import KeyRefusedError, MailboxClosedError

if TYPE_CHECKING:
    from tenure.engines.memory.engine import MemoryEngine

ResultT = TypeVar("ResultT")


class MemoryMailbox(CheckedMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox of a memory engine."""

    message_class: type[MemoryMessage[Any, Any]] = MemoryMessage

    def __init__(
        self, engine: MemoryEngine, name: str, body: Any = Any, reply: Any = Any, max_delivery_count: int | None = None
    ) -> None:
        super().__init__(name, body, reply, max_delivery_count)
        self.engine, self.clock = engine, engine.clock
        self.box: SharedMailbox = engine.box(name)
        self._lock, self._boottime, self._epoch = engine.lock, engine.clock.boottime, engine.epoch
        self._prefix, self._next_number = engine.prefix, engine.next_number
        self._decode = self.body_codec.decode
        self._closed = False
        self._woken = False
        self._polls: dict[Waiter, None] = {}
        engine.enlist(self)

    # Sending

    def _send_plain(self, encoded: bytes) -> str:
        self._lock.acquire()
        try:
            now, box = self._boottime(), self.box
            message_id = f"{self._prefix}{self._next_number()}"
            record, timers = MessageRecord(message_id, encoded, self._epoch + now), box.state.timers
            if box.waiters or (timers and timers[0][0] <= now):
                box.add(record, now)
            else:
                box.state.add(record, now)
            return message_id
        finally:
            self._lock.release()

    def _send(self, message: CheckedMessage) -> str:
        with self._lock:
            now = self._boottime()
            record = self._record(message, now)
            self.box.add(record, now, message.delay)
        return record.id

    def _send_many(self, messages: list[CheckedMessage]) -> list[Sent]:
        with self._lock:
            now = self._boottime()
            return [self._add(message, now) for message in messages]

    def _add(self, message: CheckedMessage, now: float) -> Sent:
        record = self._record(message, now)
        try:
            self.box.add(record, now, message.delay)
        except KeyRefusedError as refused:
            return Sent(record.id, str(refused))
        return Sent(record.id)

    def _record(self, message: CheckedMessage, now: float) -> MessageRecord:
        body, key, generation, reply_to, _ = message
        return MessageRecord(self.engine.next_id(), body, self._epoch + now, reply_to, key, generation)

    def reply_address(self, reply_to: Mailbox[ReplyT, Any] | str | None) -> str | None:
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
                found = self._poll(most, lease_s, stage, wait_s)
            elif self.box.waiters:
                self.box.alert()
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
        while record := state.claim(now, lease, receipt, stage, limit, first=not found):
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

    def _poll(self, most: int, lease: float, stage: DeliveryStage, wait: float) -> list[Message[BodyT, ReplyT]]:
        """Waits for the first message. The caller holds the lock, which the wait lets go of."""
        condition = Condition(self._lock)
        now = self._boottime()
        deadline = now + wait
        waiter = self._enter(condition.notify)
        found: list[Message[BodyT, ReplyT]] = []
        try:
            while waiter in self._polls and now < deadline:
                if self.engine.outbox:
                    self._forward()
                else:
                    self.clock.wait(condition, self._watch(waiter, deadline) - now)
                if self._closed or (found := self._take(most, lease, stage)):
                    break
                now = self._boottime()
        finally:
            self._leave(waiter)
        return found

    def _forward(self) -> None:
        """Sends the news of a dead letter before the poll is over. The lock is let go of meanwhile."""
        self._lock.release()
        try:
            self.engine.forward()
        finally:
            self._lock.acquire()

    def _enter(self, ring: Callable[[], object]) -> Waiter:
        """Begins a long poll; one that was woken before it began is over at once."""
        waiter = Waiter(ring)
        if self._woken:
            self._woken = False
        else:
            self._polls[waiter] = None
        return waiter

    def _watch(self, waiter: Waiter, deadline: float) -> float:
        """Lines up for the next message. Returns when to wake by itself: the first in line looks after the timers for all."""
        waiters = self.box.waiters
        waiters.setdefault(waiter)
        first = next(iter(waiters)) is waiter
        waiter.until = min(deadline, self.box.state.next_due()) if first else deadline
        return waiter.until

    def _leave(self, waiter: Waiter) -> None:
        self.box.waiters.pop(waiter, None)
        self._polls.pop(waiter, None)
        self.box.alert()

    def listen(self, ring: Callable[[], object], deadline: float) -> Waiter:
        """For asyncio, which must not wait on a lock: `ring` is called, under the lock, when it is time to look again.

        Look again at `Waiter.until`, too. Give it back to `unlisten` each time.
        """
        self.check_open()
        with self._lock:
            waiter = self._enter(ring)
            self._watch(waiter, deadline)
            if waiter not in self._polls or self.box.state.ready_count:
                waiter.ring()
            return waiter

    def waits(self, waiter: Waiter) -> bool:
        """Returns True while the waiter is in line: no message woke it, and its poll goes on."""
        with self._lock:
            return waiter in self.box.waiters and waiter in self._polls

    def unlisten(self, waiter: Waiter) -> bool:
        """Stops listening. Returns False when the poll is to end: it was woken, or the mailbox closed."""
        with self._lock:
            goes_on = waiter in self._polls
            self._leave(waiter)
            return goes_on

    def wake(self) -> None:
        self.check_open()
        with self._lock:
            self.end_polls(or_remember=True)

    def end_polls(self, *, or_remember: bool) -> None:
        """Ends the long polls of this handle; without one, the next may be ended instead. The caller holds the lock."""
        self._woken = or_remember and not self._polls
        polls, self._polls = self._polls, {}
        for waiter in polls:
            waiter.ring()

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

    def depth(self) -> Depth:
        return self.locked(lambda state, now: state.depth(now))

    def purge(self) -> int:
        return self.locked(lambda state, now: state.purge(now))

    @property
    def dead_letters(self) -> DeadLetters:
        return MemoryDeadLetters(self)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.end_polls(or_remember=False)

    def check_open(self) -> None:
        if self._closed:
            self.engine.check_open()
            raise MailboxClosedError(f"mailbox {self.name!r} was closed", remedy="Open it again from its engine")


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
