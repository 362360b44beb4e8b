"""The four contracts that an engine keeps: mailbox, journal, election, store.

This file decides what callers may rely on and says nothing of how. Engines are synchronous and safe to use from many
threads. `tests/contract` runs one suite against every engine; a promise that is not in that suite is not made.

Times: `enqueued_at`, `Entry.at` and everything durable are in the engine's time (`Engine.now()`, Unix seconds that never
go back). What a holder may rely on without asking (`Message.lease_until`, `Term.safe_until`) is in its own machine's boot time,
counted from *before* the request was sent, so a slow answer only ever makes it more careful.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

import msgspec

from tenure.clock import Clock, SystemClock
from tenure.errors import ReceiptHandleExpiredError

BodyT = TypeVar("BodyT")
ReplyT = TypeVar("ReplyT")

MAX_VISIBILITY_S = 43_200
"""Twelve hours: leases, delays and nack delays are between 0 and this."""
MAX_WAIT_S = 43_200
MAX_MESSAGES = 1_000
"""The most messages that one receive asks for or one send_many brings."""
MAX_BODY_BYTES = 524_288
"""Of one encoded body or reply, and of one checkpoint. Larger things belong into the store."""
MAX_APPEND_BYTES = 524_288
"""Of all events of one append together."""
MAX_SNAPSHOT_BYTES = 67_108_864
MAX_STORE_BYTES = 8_388_608
MAX_KEY_CHARS = 512
MAX_TTL_S = 31_622_400
"""A year: of a stored value, and of a term."""
KEY_MEMORY_S = 86_400
"""A key is remembered for at least this long after its message ended, so that a late resend is refused."""


class Fence(NamedTuple):
    """Orders the deliveries of one key: whoever holds the higher one is newer. It only grows."""

    generation: int
    delivery: int


class Depth(NamedTuple):
    """How many messages a mailbox holds, by what keeps them from being claimed."""

    ready: int
    delayed: int
    leased: int


class Sent(NamedTuple):
    """What became of one message of a batch: `refused` is None, or says why its key was not accepted."""

    id: str
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[BodyT]):
    """One message of a batch, with the options that `send` takes."""

    body: BodyT
    key: str | None = None
    generation: int = 0
    reply_to: str | None = None
    delay: float = 0.0


class FailureCause(StrEnum):
    """Why a message became a dead letter."""

    DELIVERIES = "deliveries"  # delivered max_delivery_count times without being settled
    UNDECODABLE = "undecodable"  # the body does not decode as the mailbox's type
    REJECTED = "rejected"  # its consumer said so: Message.dead_letter()


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Posted to `reply_to` in place of a reply when a message became a dead letter, so that nobody waits for it."""

    message_id: str
    mailbox: str
    cause: FailureCause
    reason: str
    key: str | None = None
    generation: int = 0
    delivery_count: int = 0


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that will not be delivered again unless somebody replays it."""

    id: str
    body: bytes  # as it was sent, encoded: it may be what could not be decoded
    cause: FailureCause
    reason: str
    died_at: float
    enqueued_at: float
    delivery_count: int
    key: str | None = None
    generation: int = 0
    reply_to: str | None = None
    checkpoint: bytes | None = None


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """What another process needs to act on a delivery: a slot claims, its supervisor extends and settles for it."""

    id: str
    receipt_handle: str
    delivery_count: int
    enqueued_at: float
    lease_until: float
    reply_to: str | None = None
    key: str | None = None
    generation: int = 0
    forgiven: int = 0


class Message(ABC, Generic[BodyT, ReplyT]):
    """One delivery of one message.

    From the moment the lease runs out, by the engine's clock, every method raises `ReceiptHandleExpiredError`, whether or
    not anybody has claimed the message since; likewise after it was settled, replaced or revoked.
    """

    id: str
    body: BodyT
    """The decoded body; None when `failure` is set."""
    receipt_handle: str
    delivery_count: int
    """1 for the first delivery. It grows with every delivery that was started, so that the fence does."""
    forgiven: int
    """How many of them do not count against a limit: handed over by `release`, or before a replay."""
    enqueued_at: float
    reply_to: str | None
    checkpoint: bytes | None
    """What the last delivery, or the replaced generation, saved."""
    key: str | None
    generation: int
    failure: Failure | None
    """Set when this is not a reply but the news that the message it would have answered is a dead letter."""
    lease_until: float
    """Our own boot time at which the lease must be taken as lost, even if the engine cannot be asked."""

    @property
    def fence(self) -> Fence:
        return Fence(self.generation, self.delivery_count)

    @property
    def attempt(self) -> int:
        """Which try this is, as limits count them: deliveries that were handed over are no tries."""
        return self.delivery_count - self.forgiven

    @property
    def ticket(self) -> Ticket:
        """This delivery as data; `Mailbox.adopt` turns it into a handle in another process."""
        return Ticket(
            id=self.id,
            receipt_handle=self.receipt_handle,
            delivery_count=self.delivery_count,
            enqueued_at=self.enqueued_at,
            lease_until=self.lease_until,
            reply_to=self.reply_to,
            key=self.key,
            generation=self.generation,
            forgiven=self.forgiven,
        )

    @abstractmethod
    def acknowledge(self) -> None:
        """Done: remove the message."""

    @abstractmethod
    def nack(self, visibility_timeout: float = 0) -> None:
        """Not done: make it visible again after this many seconds. The delivery counts.

        When it was the last one that `max_delivery_count` allows, the message becomes a dead letter at once instead.
        """

    @abstractmethod
    def release(self) -> None:
        """Give back work through no fault of its own: visible at once, and this delivery does not count.

        One that was extended had started: it keeps its number, so that its fence is not given out twice, and is forgiven.
        """

    @abstractmethod
    def extend_visibility(self, seconds: float, checkpoint: bytes | None = None) -> None:
        """Hold it for this many seconds from now. Never moves the expiry to an earlier time.

        A given checkpoint is durable when this returns. The first extension of a provisional delivery starts it: from
        then on it counts.
        """

    @abstractmethod
    def reply(self, body: ReplyT) -> None:
        """Send an answer to `reply_to`; the message stays ours."""

    @abstractmethod
    def settle(self, reply: ReplyT) -> None:
        """Reply and acknowledge as one step: both happen, or neither."""

    @abstractmethod
    def dead_letter(self, reason: str) -> None:
        """Give up on it: move it to the dead letters, and post a `Failure` to `reply_to`, as one step."""


class DeadLetters(ABC):
    """The messages of one mailbox that were given up."""

    @abstractmethod
    def list(self, *, limit: int = 100, after: str | None = None) -> list[DeadLetter]:
        """Oldest first; `after` is the id of the last one of the previous page (the oldest again, if that is gone)."""

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def replay(self, message_id: str) -> bool:
        """Put it back into its mailbox; False when there is no such dead letter.

        The delivery count goes on, so that the fence grows, and the threshold counts from here. Raises `KeyRefusedError`
        when a newer generation was sent or the key was revoked meanwhile.
        """

    @abstractmethod
    def delete(self, message_id: str) -> bool: ...

    @abstractmethod
    def purge(self) -> int:
        """Delete them all; how many there were."""


class Mailbox(ABC, Generic[BodyT, ReplyT]):
    """A queue with leases. At least once; FIFO while nothing is delayed or redelivered."""

    name: str

    @abstractmethod
    def send(
        self,
        body: BodyT,
        *,
        key: str | None = None,
        generation: int = 0,
        reply_to: Mailbox[ReplyT, Any] | str | None = None,
        delay: float = 0,
    ) -> str:
        """Queue a message; its id once it is durable.

        A key has at most one live message. A higher generation replaces a lower one, queued or leased: the old receipt is
        dead, the checkpoint is inherited, also from one that has ended while the key is remembered. Raises `KeyRefusedError` for an equal or lower generation and a revoked key.
        """

    @abstractmethod
    def send_many(self, messages: Sequence[Outgoing[BodyT]]) -> list[Sent]:
        """Queue several in order, in one step where the engine can. Refused keys are told, and do not stop the rest."""

    @abstractmethod
    def receive(
        self,
        max_messages: int = 1,
        visibility_timeout: float = 300,
        wait_time_seconds: float = 0,
        *,
        provisional: bool = False,
    ) -> list[Message[BodyT, ReplyT]]:
        """Claim up to `max_messages`, waiting for the first one at most `wait_time_seconds`.

        Whatever is ready is returned at once; a ready message is never held back for a full batch. The wait ends early on
        `wake()` and `close()`, with an empty list. A body that cannot be decoded becomes a dead letter and is not returned.
        A `provisional` delivery counts only once it was extended: it is a claim, and the work has not started.
        """

    @abstractmethod
    def adopt(self, ticket: Ticket) -> Message[BodyT, ReplyT]:
        """A handle on a delivery that another process of ours claimed: its body and checkpoint are None.

        Asks the engine nothing: a dead receipt is found out by the first call on the handle.
        """

    def acknowledge_many(self, messages: Sequence[Message[BodyT, ReplyT]]) -> list[Message[BodyT, ReplyT]]:
        """Acknowledge several of this mailbox, in one step where the engine can; those that were no longer ours."""
        refused = []
        for message in messages:
            try:
                message.acknowledge()
            except ReceiptHandleExpiredError:
                refused.append(message)
        return refused

    @abstractmethod
    def wake(self) -> None:
        """End this handle's long polls now; if none is under way, the next receive does not wait."""

    @abstractmethod
    def revoke(self, key: str) -> bool:
        """Withdraw a key for good: its live message is gone, its receipt is dead, and no generation is accepted again.

        Works before the key was ever sent. True when a live message was withdrawn.
        """

    @abstractmethod
    def depth(self) -> Depth: ...

    def approximate_count(self) -> int:
        """All messages: ready, delayed and leased."""
        return sum(self.depth())

    @abstractmethod
    def purge(self) -> int:
        """Remove every message, leased ones too; how many there were. Keys stay remembered."""

    @property
    @abstractmethod
    def dead_letters(self) -> DeadLetters: ...

    @property
    @abstractmethod
    def closed(self) -> bool: ...

    @abstractmethod
    def close(self) -> None:
        """End this handle, and wake its long polls. The messages stay. Later calls raise `MailboxClosedError`."""


class Entry(NamedTuple):
    """One append: its events were written together, or not at all."""

    seq: int
    epoch: int
    append_id: str
    at: float
    events: tuple[bytes, ...]


class Head(NamedTuple):
    """Where a journal ends. An empty one ends at 0, epoch 0."""

    seq: int
    epoch: int


class Snapshot(NamedTuple):
    """The fold of all entries up to and including `seq`."""

    seq: int
    epoch: int
    state: bytes


class Journal(ABC):
    """An append-only log with one writer at a time, fenced by epoch and by expected sequence."""

    name: str

    @abstractmethod
    def append(self, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str) -> int:
        """Write one entry after sequence `expect`; its own sequence.

        Raises `StaleEpochError` when a higher epoch has written, `SequenceConflictError` when `expect` is not the last
        sequence. After an `EngineUnavailableError` the outcome is unknown: ask `find`, never retry with a fresh `expect`.
        """

    @abstractmethod
    def head(self) -> Head: ...

    @abstractmethod
    def read(self, after: int = 0, *, limit: int = 1_000) -> list[Entry]:
        """Entries with a sequence above `after`, in order. Raises `Truncated` when some of them were removed."""

    @abstractmethod
    def follow(self, after: int, wait_time_seconds: float) -> list[Entry]:
        """As `read`, but waits for the first entry; an empty list when none came, or on `wake()`."""

    @abstractmethod
    def wake(self) -> None:
        """End this handle's `follow` now; if none is under way, the next one does not wait."""

    @abstractmethod
    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        """Keep a fold of everything up to `seq`. Only forward: raises `StaleSnapshotError` or `StaleEpochError`.

        One at the same sequence is a retry, and accepted.
        """

    @abstractmethod
    def latest_snapshot(self) -> Snapshot | None: ...

    @abstractmethod
    def truncate(self, seq: int) -> None:
        """Forget entries up to and including `seq`, at most up to the snapshot. Sequence numbers go on."""

    def find(self, append_id: str, *, after: int) -> int | None:
        """The sequence that an append whose answer was lost got, or None when it did not happen.

        The answer None is final only for an append that can no longer arrive: the caller asks after its connection ended,
        and `expect` keeps a late one out once anything else was appended.
        """
        position = after
        while entries := self.read(position):
            for entry in entries:
                if entry.append_id == append_id:
                    return entry.seq
            position = entries[-1].seq
        return None


class Term(NamedTuple):
    """The right to lead for a while."""

    epoch: int
    candidate: str
    ttl: float
    safe_until: float
    """Our own boot time after which we must not act as the leader: asked-at + ttl - margin."""


class Leader(NamedTuple):
    """Who leads, as everybody may read it."""

    candidate: str
    epoch: int
    expires_in: float


class Election(ABC):
    """One leader at a time. Epochs only grow: over crashes, clean stops and lost engine data."""

    name: str

    @abstractmethod
    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        """Become the leader, with an epoch above the last one and above `above` (the journal's); None when somebody leads.

        A candidate that leads already and campaigns again (it restarted, or lost the answer) gets a new, higher epoch.
        """

    @abstractmethod
    def renew(self, term: Term) -> Term:
        """Lead for another ttl, in the same epoch. Raises `TermLostError`."""

    @abstractmethod
    def resign(self, term: Term) -> None:
        """Stop leading now, so that the next one need not wait. Harmless when the term is over."""

    @abstractmethod
    def current(self) -> Leader | None: ...


def term_margin(ttl: float) -> float:
    """How much earlier than the engine the holder takes its own term as over: clocks run at slightly different rates."""
    return min(1.0, ttl * 0.1)


class Store(ABC):
    """Bytes under a key: results, logs, stack dumps."""

    name: str

    @abstractmethod
    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        """Write. Raises `StaleFenceError` when a higher fence has written this key, also if it was deleted since."""

    @abstractmethod
    def get(self, key: str) -> bytes | None: ...

    @abstractmethod
    def delete(self, key: str) -> bool: ...

    @abstractmethod
    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> list[str]:
        """Keys that start with `prefix`, sorted; `after` is the last key of the previous page."""


class Refusal(NamedTuple):
    """A guarantee that an engine does not give, which part of the suite it concerns, and why."""

    guarantee: str
    reason: str


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # it works, and under some circumstance it will not
    ERROR = "error"  # it does not work, or a promise does not hold


class Finding(NamedTuple):
    """One thing that an engine's own check looked at, and what to do about it."""

    level: Level
    what: str
    remedy: str = ""


class Engine(ABC):
    """Where work and decisions live. One URL selects it."""

    url: str
    clock: Clock
    refusals: tuple[Refusal, ...] = ()

    @staticmethod
    def open(url: str, *, clock: Clock | None = None) -> Engine:
        """Open `memory://`, `sqlite:///file`, `postgresql://…`, `redis://…` or `nats://…`."""
        from tenure.engines.opening import open_engine

        return open_engine(url, clock or SystemClock())

    @abstractmethod
    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        """A handle on a mailbox, made when first used. The types say how bodies and replies are decoded."""

    @abstractmethod
    def journal(self, name: str) -> Journal: ...

    @abstractmethod
    def election(self, name: str) -> Election: ...

    @abstractmethod
    def store(self, name: str) -> Store: ...

    @abstractmethod
    def now(self) -> float:
        """The engine's time: Unix seconds, the same for all its clients, never going back."""

    def check(self) -> list[Finding]:
        """What an operator should know of this set-up: version, rights and settings, each with its remedy. Changes nothing."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Close every handle and connection. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
