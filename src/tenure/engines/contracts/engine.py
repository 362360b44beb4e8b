"""The engine that one URL opens, with its journal, election and store, the limits that all engines keep, the promises that one refuses, and the findings of its own check."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Self

from tenure.clock import Clock, SystemClock
from tenure.engines.contracts.consumer import Consumer
from tenure.engines.contracts.mailbox import BodyT, Fence, Mailbox, Message, Outgoing, ReplyT, Sent
from tenure.errors import ReceiptHandleExpiredError

MAX_VISIBILITY_S = 43_200
"""Twelve hours: leases, delays and nack delays are between 0 and this."""
MAX_WAIT_S = 43_200
MAX_MESSAGES = 1_000
"""The most messages that one receive asks for or one send_many brings."""
MAX_COVERED = 2_000
"""The most mailboxes that one consumer covers."""
MAX_BODY_BYTES = 524_288
"""The most bytes of one encoded body or reply, and of one checkpoint. Larger values belong into the store."""
MAX_APPEND_BYTES = 524_288
"""The most bytes of all events of one append together."""
MAX_SNAPSHOT_BYTES = 67_108_864
MAX_STORE_BYTES = 8_388_608
MAX_SCAN_BYTES = 4_194_304
"""About the most bytes of values in one page of a scan."""
MAX_KEY_CHARS = 512
MAX_TTL_S = 31_622_400
"""A year: of a stored value, and of a term."""
KEY_MEMORY_S = 86_400
"""A key is remembered for at least this long after its message ended, so that a late resend is refused."""


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

    @abstractmethod
    def put_many(self, values: Mapping[str, bytes | None], *, fence: Fence, ttl: float | None = None) -> None:
        """Writes many values, and deletes each key whose value is None; in one step, where the engine has transactions.

        Leaves a key as it is where a higher fence has written it, also if it was deleted since. A deletion leaves its fence for a day, also
        where there was no value, so that no late writer brings the key back.
        """

    def put_each(self, values: Mapping[str, bytes], *, ttl: float | None = None) -> None:
        """Writes many values as `put` does without a fence; in one step, where the engine can. Where it fails, some of them may be written."""
        for key, value in values.items():
            self.put(key, value, ttl=ttl)

    @abstractmethod
    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Returns the values of those keys that have one."""

    @abstractmethod
    def scan(
        self, prefix: str = "", *, limit: int = 1_000, after: str | None = None, reverse: bool = False
    ) -> builtins.list[tuple[str, bytes]]:
        """Returns the keys that start with `prefix`, sorted, with their values; `after` is the last key of the previous page.

        A page ends early at about `MAX_SCAN_BYTES`, but holds at least one value: only an empty page is the end. With `reverse`, the last
        key comes first.
        """


class Term(NamedTuple):
    """The right to lead for a while."""

    epoch: int
    candidate: str
    ttl: float
    safe_until: float
    """Our own boot time after which we must not act as the leader: asked-at + ttl - margin."""


class Leader(NamedTuple):
    """The holder of a term, as every process may read it."""

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
    """Returns how much earlier than the engine the holder takes its own term as over: clocks run at slightly different rates."""
    return min(1.0, ttl * 0.1)


class Entry(NamedTuple):
    """One append: its events were written together, or not at all.

    An entry that the engine cannot take apart is returned as well, without events, so that one damaged entry does not hide the others:
    `damage` then says what is wrong with it, and `stored` holds the bytes as they are.
    """

    seq: int
    epoch: int
    append_id: str
    at: float
    events: tuple[bytes, ...]
    damage: str = ""
    stored: bytes = b""


class Head(NamedTuple):
    """Where a journal ends. An empty one ends at 0, epoch 0."""

    seq: int
    epoch: int


class Appended(NamedTuple):
    """The outcome of an append that brought messages with it."""

    seq: int
    sent: Sequence[Sent] = ()
    """For each message that was sent, in their order."""
    lost: Sequence[Message[Any, Any]] = ()
    """The deliveries that were not acknowledged, because their receipt was dead."""


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
        """Returns the sequence that an append whose answer was lost got, or None when it did not happen.

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
    appends_in_one_step: bool = False
    """True when `append_with` is one durable step. Otherwise a crash may leave the entry without its messages."""
    has_own_clock: bool = False
    """True when engine time is that of a server, whose clock somebody may set."""

    @staticmethod
    def open(url: str, *, clock: Clock | None = None) -> Engine:
        """Open `memory://`, `sqlite:///file`, `postgresql://…`, `redis://…` or `nats://…`."""
        from tenure.engines.urls import open_engine

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
        """Returns a handle on a mailbox, which is made when it is first used. The types say how bodies and replies are decoded."""

    @abstractmethod
    def consumer(
        self,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Consumer[BodyT, ReplyT]:
        """Returns a consumer of many mailboxes, which covers none yet."""

    def send_across(self, batches: Sequence[tuple[Mailbox[Any, Any], Sequence[Outgoing[Any]]]]) -> list[Sent]:
        """Queue messages of several mailboxes of this engine in their order, in one round trip where the engine can.

        A mailbox may come several times. Refused keys are told, and do not stop the rest.
        """
        return [sent for mailbox, messages in batches for sent in mailbox.send_many(messages)]

    def append_with(
        self,
        journal: Journal,
        events: Sequence[bytes],
        *,
        epoch: int,
        expect: int,
        append_id: str,
        sends: Sequence[tuple[Mailbox[Any, Any], Sequence[Outgoing[Any]]]] = (),
        acknowledges: Sequence[Message[Any, Any]] = (),
    ) -> Appended:
        """Appends to a journal of this engine as `Journal.append` does, sends as `send_across` does, and acknowledges deliveries.

        With `appends_in_one_step` all of it happens, or nothing: an append that is refused sends and acknowledges nothing, so the messages are
        fenced by the epoch and by the sequence as well. Otherwise these are steps, in this order. Neither a refused key nor a dead receipt
        stops the rest. After an `EngineUnavailableError` the outcome is unknown, as that of an append: ask `Journal.find`.
        """
        seq = journal.append(events, epoch=epoch, expect=expect, append_id=append_id)
        sent, lost = self.send_across(sends), list[Message[Any, Any]]()
        for message in acknowledges:
            try:
                message.acknowledge()
            except ReceiptHandleExpiredError:
                lost.append(message)
        return Appended(seq, sent, lost)

    @abstractmethod
    def journal(self, name: str) -> Journal: ...

    @abstractmethod
    def election(self, name: str) -> Election: ...

    @abstractmethod
    def store(self, name: str) -> Store: ...

    @abstractmethod
    def now(self) -> float:
        """Returns the engine's time: Unix seconds, the same for all its clients, never going back."""

    def clock_shows(self) -> float:
        """Returns what the engine's clock shows. Unlike `now`, it goes back where somebody sets that clock back."""
        return self.now()

    def check(self) -> list[Finding]:
        """Returns findings about this set-up for an operator: version, rights and settings, each with its remedy. Changes nothing."""
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
