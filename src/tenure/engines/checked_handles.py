"""The front of a journal, an election and a store, the same on every engine that uses it: checks, refusals, and terms by our own clock.

It does not know how an engine keeps them. An engine implements the methods that begin with `_`; they are given what was checked.
"""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from tenure.clock import Clock
from tenure.engines.checks import (
    check_append,
    check_key,
    check_max_messages,
    check_name,
    check_seconds,
    check_snapshot,
    check_store_value,
    check_ttl,
)
from tenure.engines.contracts import MAX_WAIT_S, Election, Entry, Fence, Journal, Store, Term, term_margin
from tenure.engines.long_poll import LongPolls, LookResult, WakeupSource
from tenure.errors import (
    LimitError,
    SequenceConflictError,
    StaleEpochError,
    StaleFenceError,
    StaleSnapshotError,
    TermLostError,
)


class CheckedJournal(Journal):
    """A handle on a journal whose follows wait in threads. Safe to share between threads."""

    def __init__(self, name: str, wakeups: WakeupSource[Any], topic: str) -> None:
        self.name = check_name(name, "journal name")
        self.polls: LongPolls = wakeups.long_polls(topic)

    # What an engine implements, beside `head`, `latest_snapshot` and `truncate`

    @abstractmethod
    def check_engine_open(self) -> None:
        """Raises `EngineClosedError` when the engine was closed."""

    @abstractmethod
    def _append(self, events: list[bytes], epoch: int, expect: int, append_id: str) -> int:
        """Writes one entry and returns its sequence, or calls `_refuse_append`."""

    @abstractmethod
    def _read(self, after: int, limit: int) -> list[Entry]: ...

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
        check_seconds("wait_time_seconds", wait_time_seconds, MAX_WAIT_S)
        if not wait_time_seconds:
            return self.read(after)
        # Time alone brings no entry, so nothing is ever due.
        return self.polls.poll(wait_time_seconds, lambda: LookResult(self.read(after)))

    def wake(self) -> None:
        self.check_engine_open()
        self.polls.wake()

    def snapshot(self, state: bytes, seq: int, *, epoch: int) -> None:
        check_snapshot(state)
        self._snapshot(bytes(state), seq, epoch)

    # For the engine

    def _refuse_append(self, epoch: int, expect: int, newest: int, last: int) -> NoReturn:
        """`newest` and `last` are the epoch and the sequence of the head."""
        if newest > epoch:
            raise StaleEpochError(epoch, newest)
        raise SequenceConflictError(expect, last)

    def _refuse_snapshot(self, reason: str, seq: int, epoch: int, current: int) -> NoReturn:
        """`current` is the newest epoch, the last sequence, or the sequence of the snapshot that is kept."""
        if reason == "epoch":
            raise StaleEpochError(epoch, current)
        if reason == "ahead":
            raise LimitError("seq", seq, f"between 0 and the last sequence, {current}")
        raise StaleSnapshotError(seq, current)


class CheckedElection(Election):
    """A handle on an election. Safe to share between threads."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self._clock = check_name(name, "election name"), clock

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

    def __init__(self, name: str) -> None:
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

    # The contract

    def put(self, key: str, value: bytes, *, fence: Fence | None = None, ttl: float | None = None) -> None:
        check_key(key)
        check_store_value(value)
        if ttl is not None:
            check_ttl(ttl)
        higher = self._put(key, bytes(value), fence, None if ttl is None else float(ttl))
        if higher is not None and fence is not None:
            raise StaleFenceError(key, fence, higher)

    def get(self, key: str) -> bytes | None:
        return self._get(check_key(key))

    def delete(self, key: str) -> bool:
        return self._delete(check_key(key))

    def list(self, prefix: str = "", *, limit: int = 1_000, after: str | None = None) -> builtins.list[str]:
        return self._list(prefix, check_max_messages(limit), after)


def first_above(prefix: str) -> str | None:
    """Returns the first text that sorts after everything with this prefix, by code point; None when there is no such text."""
    for end in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[end])
        if code < 0x10FFFF:
            # The surrogates are no characters: the next one after 0xD7FF is 0xE000.
            return prefix[:end] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None
