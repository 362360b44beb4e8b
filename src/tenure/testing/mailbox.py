"""A real in-memory mailbox that misbehaves when a test asks it to, and counts what was asked of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, TypeVar

import msgspec

from tenure.clock import Clock
from tenure.engines.contracts import BodyT, DeadLetters, Mailbox, Message, ReplyT
from tenure.engines.mailbox_records import MessageRecord
from tenure.engines.mailbox_state import MailboxState
from tenure.engines.memory import InMemoryMailbox, MemoryEngine, MemoryMessage
from tenure.errors import ConfigurationError, MailboxConnectionError, ReceiptHandleExpiredError

ClassT = TypeVar("ClassT", bound="type[FakeMessage[Any, Any] | FakeMailbox[Any, Any]]")


def _counting(*names: str) -> Callable[[ClassT], ClassT]:
    """Has each of these methods, which a class inherits, note its call before it does what it does."""

    def noting(name: str, inherited: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: FakeMessage[Any, Any] | FakeMailbox[Any, Any], *args: Any, **options: Any) -> Any:
            self.note(name)
            return inherited(self, *args, **options)

        return wraps(inherited)(method)

    def count(kind: ClassT) -> ClassT:
        for name in names:
            setattr(kind, name, noting(name, getattr(kind, name)))
        return kind

    return count


@_counting("acknowledge", "nack", "release", "extend_visibility", "append_step", "reply", "settle", "dead_letter")
class FakeMessage(MemoryMessage[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A delivery that counts how often it was extended, refused calls included."""

    extend_visibility_calls = 0

    def note(self, call: str) -> None:
        assert isinstance(self._mailbox, FakeMailbox)
        self.extend_visibility_calls += call == "extend_visibility"
        self._mailbox.note(call)


@_counting("send", "send_many", "revoke", "depth", "purge")
class FakeMailbox(InMemoryMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Passes the conformance suite as it is; `expire`, `lose_connection` and `inject` are for what real life adds.

    Its messages know `extend_visibility_calls`; the mailbox has `extend_visibility_call_count`, and `calls` for the rest.
    """

    message_class = FakeMessage

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
        self.calls: Counter[str] = Counter()
        """How often each method of the mailbox and of its messages was called."""
        self._connected = True
        super().__init__(name, body, reply, clock, max_delivery_count, engine=engine)

    @property
    def extend_visibility_call_count(self) -> int:
        return self.calls["extend_visibility"]

    def note(self, call: str) -> None:
        """Count a call, and fail it when there is no connection."""
        self.calls[call] += 1
        self._check_connection()

    def _check_connection(self) -> None:
        if not self._connected:
            raise MailboxConnectionError(f"mailbox {self.name!r} lost its connection")

    # What a test makes happen

    def expire(self, message: Message[Any, Any]) -> None:
        """Let the lease of this delivery run out now: its receipt is dead and the message visible."""

        def expire(state: MailboxState, now: float) -> None:
            record = state.held(message.id, message.receipt_handle)
            if record is None:
                raise ReceiptHandleExpiredError(message.id, "it is over already")
            state.expire(record, now)
            self.box.alert()

        self.locked(expire)

    def lose_connection(self) -> None:
        """Has every call on this handle and its messages raise `MailboxConnectionError` from now on, long polls too."""
        with self.box.lock:
            self._connected = False
            self.end_polls()

    def restore_connection(self) -> None:
        self._connected = True

    def inject(
        self,
        body: Any,
        *,
        delivery_count: int = 0,
        checkpoint: bytes | None = None,
        reply_to: Mailbox[Any, Any] | str | None = None,
        enqueued_at: float | None = None,
    ) -> str:
        """Put in what no sender could send: bytes as they are, be they JSON or not; anything else unchecked by type."""
        if delivery_count < 0:
            raise ConfigurationError(f"delivery_count is {delivery_count}", remedy="Use 0 or more")
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        with self.box.lock:
            now = self.box.boottime()
            at = self.engine.epoch + now if enqueued_at is None else enqueued_at
            address = None if reply_to is None else self.reply_address(reply_to)
            record = MessageRecord(self.engine.next_id(), raw, at, address)
            record.count, record.checkpoint = delivery_count, checkpoint
            self.box.add(record, now)
        return record.id

    def receive(
        self,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        *,
        provisional: bool = False,
    ) -> list[Message[BodyT, ReplyT]]:
        self.note("receive")
        found = super().receive(max_messages, visibility_timeout, wait_time_seconds, provisional=provisional)
        self._check_connection()  # lost while it waited: what it claimed stays claimed, as in real life
        return found

    @property
    def dead_letters(self) -> DeadLetters:
        self.note("dead_letters")
        return super().dead_letters


class FakeEngine(MemoryEngine):
    """A memory engine whose mailboxes are fakes."""

    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> FakeMailbox[BodyT, ReplyT]:
        return FakeMailbox(name, body, reply, max_delivery_count=max_delivery_count, engine=self)


def create_test_message(
    body: Any = None,
    *,
    visibility_timeout: float = 300,
    clock: Clock | None = None,
    mailbox: FakeMailbox[Any, Any] | None = None,
    reply_to: Mailbox[Any, Any] | str | None = None,
    key: str | None = None,
    generation: int = 0,
) -> FakeMessage[Any, Any]:
    """Returns one delivery to try things on, from a mailbox of its own or the one given, which should be empty."""
    source = FakeMailbox[Any, Any](clock=clock) if mailbox is None else mailbox
    source.send(body, key=key, generation=generation, reply_to=reply_to)
    (message,) = source.receive(1, visibility_timeout)
    assert isinstance(message, FakeMessage)
    source.calls.clear()  # what the test does is counted, not what set it up
    return message
