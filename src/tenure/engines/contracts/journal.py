"""The journal: an append-only log with one writer at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple


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
