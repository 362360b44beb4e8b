"""The front of every engine, and of its journals, elections and stores. The handles of a `PolledEngine` (SQLite, PostgreSQL, Redis) wait in threads.

The front has what they do alike: checks, refusals, terms by our own clock, and metrics for Prometheus: the duration of each operation, and its errors.
The instruments are made when the first operation is counted, so that opening an engine does not import the library. Labels are the kind of
engine, the operation and the class of the error: their number is bounded by the code, not by the traffic.
It does not know how an engine keeps them. An engine implements the methods that begin with `_`; they are given what was checked.
"""

from __future__ import annotations

import builtins
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn
from weakref import WeakKeyDictionary

from tenure.engines.checks import (
    SendsAcross,
    check_append,
    check_key,
    check_max_messages,
    check_name,
    check_seconds,
    check_snapshot,
    check_ttl,
    check_values,
)
from tenure.engines.contracts import (
    MAX_SCAN_BYTES,
    MAX_WAIT_S,
    BodyT,
    Consumer,
    Election,
    Entry,
    Fence,
    Head,
    Journal,
    Mailbox,
    ReplyT,
    Store,
    Term,
    term_margin,
)
from tenure.engines.long_poll import LongPolls, LookResult, WakeupSource
from tenure.errors import (
    LimitError,
    SequenceConflictError,
    StaleEpochError,
    StaleFenceError,
    StaleSnapshotError,
    TermLostError,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram


_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_lock = threading.Lock()


class _Instruments(NamedTuple):
    seconds: Histogram
    errors: Counter


# One set per registry: a second instrument of the same name would be refused by it.
_instruments: WeakKeyDictionary[CollectorRegistry, _Instruments] = WeakKeyDictionary()


def _of(registry: CollectorRegistry | None) -> _Instruments:
    import prometheus_client as prometheus

    registry = registry if registry is not None else prometheus.REGISTRY
    with _lock:
        if registry not in _instruments:
            _instruments[registry] = _Instruments(
                prometheus.Histogram(
                    "tenure_engine_operation_seconds",
                    "Round trips to the engine, by operation; waiting for a message is not part of them.",
                    ["engine", "operation"],
                    buckets=_BUCKETS,
                    registry=registry,
                ),
                prometheus.Counter(
                    "tenure_engine_errors",
                    "Operations that the engine did not do, by class of error.",
                    ["engine", "operation", "error"],
                    registry=registry,
                ),
            )
        return _instruments[registry]


class OperationMetrics:
    """Counts the operations of one engine object."""

    def __init__(self, engine: str, registry: CollectorRegistry | None = None) -> None:
        self._engine, self._registry = engine, registry
        self._timers: dict[str, Histogram] = {}

    def took(self, operation: str, seconds: float) -> None:
        timer = self._timers.get(operation)
        if timer is None:
            timer = self._timers[operation] = _of(self._registry).seconds.labels(self._engine, operation)
        timer.observe(seconds)

    def failed(self, operation: str, error: BaseException) -> None:
        _of(self._registry).errors.labels(self._engine, operation, type(error).__name__).inc()


class HandleTypes(NamedTuple):
    """The classes of an engine's handles. Each is made with the engine and a name, a mailbox with its types and limit too."""

    mailbox: Callable[..., Mailbox[Any, Any]]
    journal: Callable[..., Journal]
    election: type[CheckedElection]
    store: type[CheckedStore]
    consumer: Callable[..., Consumer[Any, Any]]


class CheckedEngine(SendsAcross):
    """Hands out handles while it is open."""

    handles: ClassVar[HandleTypes]

    @abstractmethod
    def check_open(self) -> None:
        """Raises `EngineClosedError` when the engine was closed."""

    def mailbox(
        self,
        name: str,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Mailbox[BodyT, ReplyT]:
        self.check_open()
        return self.handles.mailbox(self, name, body, reply, max_delivery_count)

    def consumer(
        self,
        body: type[BodyT] | Any = Any,
        reply: type[ReplyT] | Any = Any,
        *,
        max_delivery_count: int | None = None,
    ) -> Consumer[BodyT, ReplyT]:
        self.check_open()
        return self.handles.consumer(self, body, reply, max_delivery_count)

    def journal(self, name: str) -> Journal:
        self.check_open()
        return self.handles.journal(self, name)

    def election(self, name: str) -> Election:
        self.check_open()
        return self.handles.election(self, name)

    def store(self, name: str) -> Store:
        self.check_open()
        return self.handles.store(self, name)


class PolledEngine(CheckedEngine):
    """Its handles wait in threads."""

    wakeups: WakeupSource[Any]


class CheckedJournal(Journal):
    """A handle on a journal. Safe to share between threads."""

    def __init__(self, engine: CheckedEngine, name: str) -> None:
        self.engine: CheckedEngine = engine
        self.name = check_name(name, "journal name")

    # What an engine implements, beside `head`, `wake`, `latest_snapshot` and `truncate`

    @abstractmethod
    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        """Writes one entry and returns its sequence, or calls `refuse_append`."""

    @abstractmethod
    def _read(self, after: int, limit: int) -> list[Entry]: ...

    @abstractmethod
    def _follow(self, after: int, wait_s: float) -> list[Entry]:
        """Reads, and waits for the first entry at most `wait_s`, which may be 0."""

    @abstractmethod
    def _snapshot(self, state: bytes, seq: int, epoch: int) -> None:
        """Keeps it, or calls `_refuse_snapshot`."""

    # The contract

    def append(self, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str) -> int:
        check_append(events, epoch, expect, append_id)
        return self._append([bytes(event) for event in events], epoch, expect, append_id)

    def read(self, after: int = 0, *, limit: int = 1_000) -> list[Entry]:
        if limit < 1:
            raise LimitError("limit", limit, "1 or more")
        return self._read(after, limit)

    def follow(self, after: int, wait_time_seconds: float) -> list[Entry]:
        return self._follow(after, check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S))

    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        check_snapshot(state)
        self._snapshot(bytes(state), seq, epoch)

    # For the engine

    def refuse_append(self, epoch: int, expect: int, newest: int, last: int) -> NoReturn:
        """`newest` and `last` are the epoch and the sequence of the head."""
        if newest > epoch:
            raise StaleEpochError(epoch, newest)
        raise SequenceConflictError(expect, last)

    def _check_snapshot(self, seq: int, epoch: int, head: Head, kept: Head | None) -> None:
        """Refuses a snapshot by the head of the journal and by the place of the one that is kept, for engines that know both."""
        if kept is not None and kept.epoch > head.epoch:
            head = Head(head.seq, kept.epoch)
        if epoch < head.epoch:
            self._refuse_snapshot("epoch", seq, epoch, head.epoch)
        if not 0 <= seq <= head.seq:
            self._refuse_snapshot("ahead", seq, epoch, head.seq)
        if kept is not None and seq < kept.seq:
            self._refuse_snapshot("older", seq, epoch, kept.seq)

    def _refuse_snapshot(self, reason: str, seq: int, epoch: int, current: int) -> NoReturn:
        """`current` is the newest epoch, the last sequence, or the sequence of the snapshot that is kept."""
        if reason == "epoch":
            raise StaleEpochError(epoch, current)
        if reason == "ahead":
            raise LimitError("seq", seq, f"between 0 and the last sequence, {current}")
        raise StaleSnapshotError(seq, current)


class PolledJournal(CheckedJournal):
    """A handle on a journal whose follows wait in threads."""

    topic_prefix: ClassVar[str]
    """Before the journal's name, it is the topic that an append rings."""

    def __init__(self, engine: PolledEngine, name: str) -> None:
        super().__init__(engine, name)
        self.topic = f"{self.topic_prefix}{name}"
        self.polls: LongPolls = engine.wakeups.long_polls(self.topic)

    def _follow(self, after: int, wait_s: float) -> list[Entry]:
        if not wait_s:
            return self.read(after)
        # Time alone brings no entry, so nothing is ever due.
        return self.polls.poll(wait_s, lambda: LookResult(self.read(after)))

    def wake(self) -> None:
        self.engine.check_open()
        self.polls.wake()


class CheckedElection(Election):
    """A handle on an election. Safe to share between threads."""

    def __init__(self, engine: CheckedEngine, name: str) -> None:
        self.engine: CheckedEngine = engine
        self.name, self._clock = check_name(name, "election name"), engine.clock

    # What an engine implements, beside `resign` and `current`

    @abstractmethod
    def _campaign(self, candidate: str, ttl: float, above: int) -> int | None:
        """Returns the epoch that was won, or None when another candidate leads."""

    @abstractmethod
    def _renew(self, term: Term) -> int | None:
        """Returns None when the term goes on, or else the newest epoch."""

    # The contract

    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        check_key(candidate, "candidate")
        check_ttl(ttl)
        if above < 0:
            raise LimitError("above", above, "0 or more")
        asked = self._clock.boottime()
        epoch = self._campaign(candidate, float(ttl), above)
        return None if epoch is None else Term(epoch, candidate, ttl, _safe_until(asked, ttl))

    def renew(self, term: Term) -> Term:
        asked = self._clock.boottime()
        newest = self._renew(term)
        if newest is not None:
            raise TermLostError(self.name, term.epoch, newest)
        return term._replace(safe_until=_safe_until(asked, term.ttl))


def _safe_until(asked: float, ttl: float) -> float:
    """`asked` is from before the engine was asked, so that we never lead for longer than it says."""
    return asked + ttl - term_margin(ttl)


class CheckedStore(Store):
    """A handle on a store. Safe to share between threads."""

    def __init__(self, engine: CheckedEngine, name: str) -> None:
        self.engine: CheckedEngine = engine
        self.name = check_name(name, "store name")

    # What an engine implements

    @abstractmethod
    def _put(self, key: str, value: bytes, fence: Fence | None, ttl: float | None) -> Fence | None:
        """Returns None when it was written, or else the higher fence that has written this key."""

    @abstractmethod
    def _get(self, key: str) -> bytes | None: ...

    @abstractmethod
    def _delete(self, key: str) -> bool: ...

    @abstractmethod
    def _list(self, prefix: str, limit: int, after: str | None) -> builtins.list[str]: ...

    @abstractmethod
    def _put_many(self, values: dict[str, bytes | None], fence: Fence, ttl: float | None) -> None: ...

    def _put_each(self, values: dict[str, bytes], ttl: float | None) -> None:
        for key, value in values.items():
            self._put(key, value, None, ttl)

    @abstractmethod
    def _get_many(self, keys: builtins.list[str]) -> dict[str, bytes]: ...

    @abstractmethod
    def _scan(self, prefix: str, limit: int, after: str | None, reverse: bool) -> builtins.list[tuple[str, bytes]]: ...

    # The contract

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        higher = self._put(key, bytes(value), fence, check_values({key: value}, ttl))
        if higher is not None and fence is not None:
            raise StaleFenceError(key, fence, higher)

    def get(self, key: str) -> bytes | None:
        return self._get(check_key(key))

    def delete(self, key: str) -> bool:
        return self._delete(check_key(key))

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> builtins.list[str]:
        return self._list(prefix, check_max_messages(limit), after)

    def put_many(self, values: Mapping[str, bytes | None], *, fence: Fence, ttl: float | None = None) -> None:
        ttl = check_values(values, ttl)
        if values:
            self._put_many(dict(values), fence, ttl)

    def put_each(self, values: Mapping[str, bytes], *, ttl: float | None = None) -> None:
        ttl = check_values(values, ttl)
        if values:
            self._put_each(dict(values), ttl)

    def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        if not keys:
            return {}
        check_max_messages(len(keys))
        return self._get_many([check_key(key) for key in keys])

    def scan(
        self, prefix: str = "", *, limit: int = 1_000, after: str | None = None, reverse: bool = False
    ) -> builtins.list[tuple[str, bytes]]:
        return self._scan(prefix, check_max_messages(limit), after, reverse)


def page_of(found: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Returns the beginning of `found`, up to about `MAX_SCAN_BYTES`, and reads no more of it."""
    page: list[tuple[str, bytes]] = []
    size = 0
    for key, value in found:
        page.append((key, value))
        size += len(value)
        if size >= MAX_SCAN_BYTES:
            break
    return page


def first_above(prefix: str) -> str | None:
    """Returns the first text that sorts after everything with this prefix, by code point; None when there is no such text."""
    for end in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[end])
        if code < 0x10FFFF:
            # The surrogates are no characters: the next one after 0xD7FF is 0xE000.
            return prefix[:end] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None
