"""Reads the journal of a node with distrust: checks each entry and snapshot before it folds it, and its error names the one that is wrong.

Managers, gates and `tenure journal` all read through this module, so that all of them find the same damage.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tenure.engines.aio import Calls
from tenure.engines.contracts import Entry, Journal, Snapshot, Store
from tenure.errors import EngineCorruptError, EngineVersionError, JournalDamagedError, Truncated
from tenure.jobs.topics import decode_any_event
from tenure.nodes.journal_checksum import entry_damage, kind_of, opened
from tenure.nodes.state_saving import PageGone, PageReading, read_pages

SLICE_EVENTS = 250
"""The events that are folded before other tasks have their turn: about 5 ms."""

NEWER = "A newer Tenure wrote it: start that version again, and go back only with a copy of the engine from before it"


class Replays(Protocol):
    """A fold over a journal."""

    position: int
    """The sequence of the entry that is folded."""

    def replay(self, encoded_events: Iterable[bytes]) -> None: ...


class Book(Replays, Protocol):
    """A fold over a journal that can be saved as a snapshot."""

    @property
    def epoch(self) -> int: ...

    @property
    def leader(self) -> str: ...

    def snapshot(self) -> bytes: ...


BookT = TypeVar("BookT", bound=Book)
BookT_co = TypeVar("BookT_co", bound=Book, covariant=True)


class BookRules(Protocol[BookT_co]):
    """Makes the books of one journal."""

    def new_book(self) -> BookT_co:
        """Returns a book that has folded nothing."""

    def restored(self, snapshot: bytes) -> BookT_co:
        """Returns the book that `snapshot` was taken of."""

    def restoring(self, snapshot: bytes) -> PageReading[BookT_co] | None:
        """Returns the reading of a book whose `snapshot` only names its pages; None for a snapshot that holds everything."""


def fold_entry(journal: str, book: Replays, entry: Entry, after: int) -> None:
    """Checks one entry and folds it. Raises `JournalDamagedError`; the book may then be half changed and must not be used."""
    if entry.seq != after + 1:
        raise JournalDamagedError(journal, "entry", after + 1, f"it is missing: {entry.seq} comes after {after}")
    if why := entry_damage(entry):
        raise JournalDamagedError(journal, "entry", entry.seq, why)
    try:
        book.position = entry.seq
        book.replay(entry.events)
    except Exception as error:
        # Any exception while stored bytes are folded means that they cannot be applied. It must not end the node.
        raise cannot_apply(journal, entry, error) from error


def cannot_apply(journal: str, entry: Entry, error: Exception) -> JournalDamagedError:
    unknown = unknown_kind(entry)
    if unknown:
        why = f"this Tenure knows no event of the kind {unknown!r}"
        return JournalDamagedError(journal, "entry", entry.seq, why, remedy=NEWER)
    why = f"its events cannot be applied: {type(error).__name__}: {error}"
    return JournalDamagedError(journal, "entry", entry.seq, why)


def unknown_kind(entry: Entry) -> str:
    """Returns the kind of the first event that is well formed but unknown to this release; empty where there is none.

    That is no damage: the checksum of such an entry is right.
    """
    for event in entry.events:
        try:
            decode_any_event(event)
        except msgspec.ValidationError as error:
            if "`$.type`" in str(error) and (kind := kind_of(event)):
                return kind
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return ""


RestoredT = TypeVar("RestoredT")


def restore(journal: str, snapshot: Snapshot, restored: Callable[[bytes], RestoredT]) -> RestoredT:
    """Returns the book that a snapshot was taken of. Raises `JournalDamagedError`."""
    found = opened(snapshot)
    if found.damage:
        raise JournalDamagedError(journal, "snapshot", snapshot.seq, found.damage)
    try:
        return restored(found.state)
    except EngineVersionError as error:
        raise JournalDamagedError(journal, "snapshot", snapshot.seq, error.fact, remedy=error.remedy or None) from error
    except Exception as error:
        why = f"it cannot be read: {type(error).__name__}: {error}"
        raise JournalDamagedError(journal, "snapshot", snapshot.seq, why) from error


TOLD_AFTER_PAGES = 2_000
"""The pages after which the log tells how far a node has read: as many as 128,000 jobs have."""


class LoadProgress(Generic[BookT]):
    """How far a node has read a journal, and the book that grows meanwhile."""

    def __init__(self, tell: Callable[[str], None] = lambda said: None) -> None:
        self._tell = tell
        self.read = self.total = 0
        """The pages of the saved state."""
        self.book: BookT | None = None
        """Holds the jobs of the pages that were read, as they were saved, and then what came after them. No job is in it in part."""

    def begin(self, book: BookT, total: int) -> None:
        self.book, self.read, self.total = book, 0, total
        self._said(total >= TOLD_AFTER_PAGES)

    def added(self, count: int) -> None:
        told, self.read = self.read // TOLD_AFTER_PAGES, self.read + count
        self._said(self.read // TOLD_AFTER_PAGES > told)

    def _said(self, worth_it: bool) -> None:
        if worth_it:
            self._tell(str(self))

    def __str__(self) -> str:
        doing = "this node reads its journal"
        if not self.total:
            return doing  # it has no saved state, or one that is read in one piece
        if self.read < self.total:
            return f"{doing}: it has read {self.read:,} of {self.total:,} pages of the saved state"
        return f"{doing}: it has read all {self.total:,} pages of the saved state, and folds what came after it"


class Loaded(NamedTuple, Generic[BookT]):
    """A journal that was folded to its end."""

    book: BookT
    seq: int
    snapshot_at: int
    snapshot_bytes: int
    bytes_since: int
    """The size of all events above the snapshot."""


async def load_book(
    journal: Journal, pages: Store, calls: Calls, rules: BookRules[BookT], progress: LoadProgress[BookT] | None = None
) -> Loaded[BookT]:
    """Starts from the newest snapshot and folds everything after it. Raises `JournalDamagedError`."""
    progress = progress or LoadProgress()
    lacking = 0
    while True:
        try:
            return await _load(journal, pages, calls, rules, progress)
        except Truncated:
            continue  # the leader saved a newer snapshot meanwhile, and truncated the entries below it
        except PageGone as gone:
            # Likewise: the pages of an older snapshot were deleted meanwhile. Those of the newest are there, or they are lost.
            snapshot = await calls.run(journal.latest_snapshot)
            if snapshot is None or snapshot.seq == lacking:
                raise JournalDamagedError(journal.name, "snapshot", lacking, f"{gone} is missing") from gone
            lacking = snapshot.seq
        except JournalDamagedError:
            raise
        except EngineCorruptError as error:
            raise JournalDamagedError(journal.name, "something", 0, error.fact) from error


async def _load(
    journal: Journal, pages: Store, calls: Calls, rules: BookRules[BookT], progress: LoadProgress[BookT]
) -> Loaded[BookT]:
    book, seq, kept, size = rules.new_book(), 0, 0, 0
    snapshot = await calls.run(journal.latest_snapshot)
    if snapshot is not None:
        try:
            reading = restore(journal.name, snapshot, rules.restoring)
            if reading is None:
                book = restore(journal.name, snapshot, rules.restored)
            else:
                progress.begin(reading.book, len(reading.wanted))
                book = await read_pages(journal.name, snapshot.seq, reading, pages, calls, progress.added)
        except JournalDamagedError as error:
            raise await _with_hint(journal, calls, error) from error
        seq, kept = snapshot.seq, len(snapshot.state)
    while entries := await calls.run(journal.read, seq):
        async for entry in in_slices(entries):
            fold_entry(journal.name, book, entry, seq)
            seq, size = entry.seq, size + sum(map(len, entry.events))
    return Loaded(book, seq, snapshot.seq if snapshot is not None else 0, kept, size)


async def in_slices(entries: Sequence[Entry]) -> AsyncIterator[Entry]:
    """Yields the entries, and lets other tasks run after each `SLICE_EVENTS` events.

    A node that folds for seconds goes on renewing its term and answering meanwhile. The slices are counted in events, not in time, so that a
    simulation does the same thing every time.
    """
    folded = 0
    for entry in entries:
        yield entry
        folded += len(entry.events)
        if folded >= SLICE_EVENTS:
            folded = 0
            await asyncio.sleep(0)


async def _with_hint(journal: Journal, calls: Calls, error: JournalDamagedError) -> JournalDamagedError:
    """Returns the error of a snapshot with a hint: are all entries that the snapshot was made of still in the journal?"""
    try:
        await calls.run(journal.read, 0, limit=1)
        hint = "all entries below it are still there, so that it can be made again"
    except Truncated:
        hint = "the entries below it are gone"
    return JournalDamagedError(error.journal, error.part, error.seq, f"{error.why}; {hint}", remedy=error.remedy)
