"""The front of a mailbox and of one delivery, the same on every engine: checks, codec, burying, and the lease by our own clock.

`CheckedMailbox` checks what it is given, encodes and decodes bodies, and asks the engine. It does not know how an engine keeps messages.
`LeasedMessage` has the fields of a delivery, the checks of its calls, and until when it is held by our own clock. It does not know how an
engine finds out whether the delivery is still held. An engine implements the methods that begin with `_`; they are given what was checked,
and those of a delivery raise `ReceiptHandleExpiredError`.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from tenure.clock import Clock
from tenure.engines.checked_handles import PolledEngine
from tenure.engines.checks import (
    BodyCodec,
    check_batch,
    check_checkpoint,
    check_delivery_limit,
    check_generation,
    check_has_key,
    check_key,
    check_max_messages,
    check_name,
    check_reply_to,
    check_seconds,
    check_step,
)
from tenure.engines.contracts import (
    MAX_VISIBILITY_S,
    MAX_WAIT_S,
    BodyT,
    DeadLetter,
    Failure,
    FailureCause,
    Mailbox,
    Message,
    Outgoing,
    ReplyT,
    Sent,
    Ticket,
    Withdrawal,
)
from tenure.engines.long_poll import HandlePolls, LongPolls
from tenure.errors import EngineUnavailableError, KeyRefusedError, MailboxClosedError, ReplyNotAvailableError


class DeliveredContent(NamedTuple):
    """The values that a claim brings beside the ticket. An adopted delivery has none of them."""

    body: Any = None
    failure: Failure | None = None
    checkpoint: bytes | None = None
    suspect: bool = False


NO_CONTENT = DeliveredContent()


class LeasedMessage(Message[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """Made from a ticket, by the claim that wrote it or by a process that adopts it; only a claim has a body."""

    __slots__ = (
        "_clock",
        "_reply_codec",
        "body",
        "checkpoint",
        "delivery_count",
        "enqueued_at",
        "failure",
        "forgiven",
        "generation",
        "id",
        "key",
        "lease_until",
        "receipt_handle",
        "reply_to",
        "suspect",
    )

    def __init__(self, ticket: Ticket, content: DeliveredContent, reply_codec: BodyCodec, clock: Clock) -> None:
        self._reply_codec, self._clock = reply_codec, clock
        self.id, self.receipt_handle = ticket.id, ticket.receipt_handle
        self.delivery_count, self.forgiven = ticket.delivery_count, ticket.forgiven
        self.enqueued_at, self.lease_until = ticket.enqueued_at, ticket.lease_until
        self.reply_to, self.key, self.generation = ticket.reply_to, ticket.key, ticket.generation
        self.body, self.failure, self.checkpoint, self.suspect = content

    _mailbox: CheckedMailbox[Any, Any]
    """The handle that it came from. An engine's class has its slot."""

    @property
    def mailbox(self) -> str:
        return self._mailbox.name

    # What an engine implements, beside `acknowledge` and `release`

    @abstractmethod
    def _nack(self, delay_s: float) -> None: ...

    @abstractmethod
    def _extend(self, seconds: float, checkpoint: bytes | None) -> None: ...

    @abstractmethod
    def _append_step(self, key: str, seconds: float, record: bytes) -> None: ...

    @abstractmethod
    def _steps(self, key: str) -> list[bytes]: ...

    @abstractmethod
    def _reply(self, encoded: bytes) -> None:
        """Posts it to `reply_to`, which is not None here."""

    @abstractmethod
    def _settle(self, encoded: bytes) -> None:
        """Posts it to `reply_to`, which is not None here, and removes the message: both or neither."""

    @abstractmethod
    def _give_up(self, cause: FailureCause, reason: str) -> None: ...

    # The contract

    def nack(self, visibility_timeout: float = 0) -> None:
        self._nack(float(check_seconds("visibility_timeout", visibility_timeout)))

    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        check_seconds("visibility_timeout", seconds)
        check_checkpoint(checkpoint)
        # Read before the engine is asked, so that we never take a lease for longer than it is.
        asked = self._clock.boottime()
        self._extend(float(seconds), None if checkpoint is None else bytes(checkpoint))
        self.lease_until = max(self.lease_until, asked + seconds)

    def append_step(self, record: bytes, seconds: float = 0) -> None:
        check_seconds("visibility_timeout", seconds)
        check_step(record)
        asked = self._clock.boottime()
        self._append_step(check_has_key(self.key, self.id), float(seconds), bytes(record))
        self.lease_until = max(self.lease_until, asked + seconds)

    def steps(self) -> list[bytes]:
        return self._steps(check_has_key(self.key, self.id))

    def reply(self, body: ReplyT) -> None:
        self._reply(self.encode_reply(body))

    def settle(self, reply: ReplyT) -> None:
        self._settle(self.encode_reply(reply))

    def dead_letter(self, reason: str) -> None:
        self._give_up(FailureCause.REJECTED, plain_text(reason))

    def encode_reply(self, body: ReplyT) -> bytes:
        """Raises what a `settle` with this reply would raise before it asks the engine."""
        if self.reply_to is None:
            raise ReplyNotAvailableError(f"message {self.id} has no reply_to")
        return self._reply_codec.encode(body, "reply")


def plain_text(text: str) -> str:
    """Returns what can be written as UTF-8 and read back from JSON: no lone surrogates, no NUL."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


TokenT = TypeVar("TokenT")
decode_failure = msgspec.json.Decoder(Failure).decode
UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The errors of a body that does not decode."""


class CheckedMessage(msgspec.Struct, frozen=True, gc=False):
    """One message to be queued, after all checks, with its body encoded."""

    body: bytes
    key: str | None = None
    generation: int = 0
    reply_to: str | None = None
    delay: float = 0.0
    is_plain: bool = True
    """True when it has nothing but a body: engines queue such messages in fewer words."""


DecodedBody = tuple[Any, Failure | None]
"""A delivery's body, decoded. The failure is set, and the body None, where it is the news of a dead letter."""


class CheckedMailbox(Mailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox. Arguments are refused before the engine is asked, closed handles before it is waited for."""

    def __init__(self, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        self.name = check_name(name, "mailbox name")
        self.max_delivery_count = check_delivery_limit(max_delivery_count)
        self.body_codec, self.reply_codec = BodyCodec(body), BodyCodec(reply)
        self._known_reply_to: str | None = None
        """The last name that was found to be a mailbox's: a sender names the same one again and again."""

    # What an engine implements

    handle: HandlePolls[Any]
    """Has the flag that is looked at before each call, without a call of its own."""

    @abstractmethod
    def check_open(self) -> None:
        """Raises `EngineClosedError` or `MailboxClosedError` when this handle is of no use any more."""

    @abstractmethod
    def _send(self, message: CheckedMessage) -> str:
        """Queues it and returns its id. Raises `KeyRefusedError`."""

    @abstractmethod
    def _send_many(self, messages: list[CheckedMessage]) -> list[Sent]:
        """Queues at least one, in order."""

    @abstractmethod
    def _receive(self, most: int, lease_s: float, wait_s: float, *, provisional: bool) -> list[Message[BodyT, ReplyT]]:
        """Claims up to `most`, waiting for the first one at most `wait_s`."""

    @abstractmethod
    def _withdraw_key(self, key: str, generation: int) -> Withdrawal: ...

    @abstractmethod
    def _adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]: ...

    # The contract

    def send(
        self,
        body: BodyT,
        *,
        key: str | None = None,
        generation: int = 0,
        reply_to: Mailbox[ReplyT, Any] | str | None = None,
        delay: float = 0,
    ) -> str:
        if key is None and reply_to is None and not delay and not generation:
            message = CheckedMessage(self.body_codec.encode(body))
        else:
            message = self._checked(body, key, generation, reply_to, delay)
        if self.handle.closed:
            self.check_open()
        return self._send(message)

    def send_many(self, messages: Sequence[Outgoing[BodyT]]) -> list[Sent]:
        check_batch(messages)
        checked = self.checked(messages)
        return self._send_many(checked) if checked else []

    def checked(self, messages: Sequence[Outgoing[BodyT]]) -> list[CheckedMessage]:
        """Checks and encodes all of them, before any is queued."""
        checked = [self._checked(m.body, m.key, m.generation, m.reply_to, m.delay) for m in messages]
        if self.handle.closed:
            self.check_open()
        return checked

    def _checked(
        self, body: BodyT, key: str | None, generation: int, reply_to: Mailbox[ReplyT, Any] | str | None, delay: float
    ) -> CheckedMessage:
        """Called for each message that is sent: a check is a call only where there is something to check."""
        encoded = self.body_codec.encode(body)
        if key is None and reply_to is None and not delay and not generation:
            return CheckedMessage(encoded)
        if delay:
            check_seconds("delay", delay)
        if generation:
            check_generation(generation)
        if key is not None:
            check_key(key)
        if reply_to is not None and reply_to != self._known_reply_to:
            reply_to = self.reply_address(reply_to)
        return CheckedMessage(encoded, key, generation, reply_to, delay + 0.0, False)

    def receive(
        self,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        *,
        provisional: bool = False,
    ) -> list[Message[BodyT, ReplyT]]:
        # The usual values are let through without a call: three checks would be a tenth of a receive of the memory engine.
        if max_messages != 1:
            check_max_messages(max_messages)
        if not 0 <= visibility_timeout <= MAX_VISIBILITY_S:
            check_seconds("visibility_timeout", visibility_timeout)
        if wait_time_seconds:
            check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        if self.handle.closed:
            self.check_open()
        return self._receive(max_messages, visibility_timeout + 0.0, wait_time_seconds, provisional=provisional)

    def withdraw(self, key: str, generation: int) -> Withdrawal:
        check_key(key)
        check_generation(generation)
        self.check_open()
        return self._withdraw_key(key, generation)

    def adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        self.check_open()
        return self._adopt(ticket)

    # For the engine

    def reply_address(self, reply_to: Mailbox[ReplyT, Any] | str) -> str:
        """Returns the name of the mailbox that is to get the answers."""
        self._known_reply_to = name = check_reply_to(reply_to)
        return name

    def open_or_bury(self, encoded: bytes, is_failure: bool, bury: Callable[[str], object]) -> DecodedBody | None:
        """Decodes a body. One that cannot be decoded is given to `bury` with the reason; the answer is then None."""
        try:
            if is_failure:
                return None, decode_failure(encoded)
            return self.body_codec.decode(encoded), None
        except UNDECODABLE as error:
            bury(self.why_undecodable(error))
            return None

    def why_undecodable(self, error: Exception) -> str:
        return plain_text(f"the body does not fit {self.body_codec.kind!r}: {error}")


def sent_or_refused(message: CheckedMessage, message_id: str, newest: int | None, *, revoked: bool) -> Sent:
    """Returns the outcome of one message of a batch. `newest` is the generation that stands against it, or None."""
    if newest is None or message.key is None:
        return Sent(message_id)
    return Sent(message_id, str(KeyRefusedError(message.key, message.generation, newest, revoked=revoked)))


def dead_letter(*values: Any) -> DeadLetter:
    """Returns the dead letter whose fields have these values, in their order."""
    fields = dict(zip(DeadLetter.__struct_fields__, values, strict=True))
    return DeadLetter(**{**fields, "cause": FailureCause(fields["cause"])})


class PolledMailbox(CheckedMailbox[BodyT, ReplyT], Generic[BodyT, ReplyT]):
    """A handle on a mailbox whose long polls wait in threads: on SQLite, PostgreSQL and Redis."""

    topic_prefix: ClassVar[str]
    """Before the mailbox's name, it is the topic that a send rings."""

    def __init__(self, engine: PolledEngine, name: str, body: Any, reply: Any, max_delivery_count: int | None) -> None:
        super().__init__(name, body, reply, max_delivery_count)
        self.engine = engine
        self.topic = f"{self.topic_prefix}{name}"
        self.polls: LongPolls = engine.wakeups.long_polls(self.topic)
        self.handle = self.polls.handle

    def check_open(self) -> None:
        if self.polls.closed:
            self.engine.check_open()
            raise MailboxClosedError(f"mailbox {self.name!r} was closed", remedy="Open it again from its engine")

    def wake(self) -> None:
        self.check_open()
        self.polls.wake()

    @property
    def closed(self) -> bool:
        return self.polls.closed

    def close(self) -> None:
        self.polls.close()


class LostClaims(Generic[TokenT]):
    """The tokens of claims of one mailbox whose answer never came. No consumer has what they leased, so the next claim gives it back first.

    Safe to share between threads.
    """

    def __init__(self) -> None:
        self._tokens: list[TokenT] = []
        self._lock = threading.Lock()

    def add(self, *tokens: TokenT) -> None:
        with self._lock:
            self._tokens.extend(tokens)

    def forget(self, tokens: Sequence[TokenT]) -> None:
        """Forgets claims that were found again: they are not given back."""
        with self._lock:
            self._tokens = [token for token in self._tokens if token not in tokens]

    def give_back(self, give_back: Callable[[list[TokenT]], object]) -> None:
        """Gives the tokens to the engine, if there are any. Raises its `EngineUnavailableError`: then they are kept."""
        if not self._tokens:  # nearly always, so without the lock
            return
        with self._lock:
            tokens, self._tokens = self._tokens, []
        try:
            give_back(tokens)
        except EngineUnavailableError:
            self.add(*tokens)
            raise
