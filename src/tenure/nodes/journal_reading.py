"""Reads a journal with distrust: it checks each entry and snapshot before it folds it, and its error names the one that is wrong.

Managers, gates and `tenure journal` all read through this module, so that all of them find the same damage. `FollowedJournal` keeps the book
that is the fold up to date, and shows it to callers, but never a part of it that is not durable yet. The writer's side is `ledger`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tenure.engines.aio import Calls
from tenure.engines.contracts import Entry, Journal, Snapshot
from tenure.errors import DeposedError, EngineCorruptError, EngineVersionError, JournalDamagedError, Truncated
from tenure.jobs.topics import decode_any_event
from tenure.nodes.journal_checksum import entry_damage, opened
from tenure.nodes.loop_keeper import FailedOn, ProductFailures

NEWER = "A newer Tenure wrote it: start that version again, and go back only with a copy of the engine from before it"


class Replays(Protocol):
    """A fold over a journal."""

    def replay(self, encoded_events: Iterable[bytes]) -> None: ...


class Book(Replays, Protocol):
    """A fold over a journal that can be saved as a snapshot."""

    def snapshot(self) -> bytes: ...


BookT = TypeVar("BookT", bound=Book)
BookT_co = TypeVar("BookT_co", bound=Book, covariant=True)


class BookRules(Protocol[BookT_co]):
    """Makes the books of one journal."""

    def new_book(self) -> BookT_co:
        """Returns a book that has folded nothing."""

    def restored(self, snapshot: bytes) -> BookT_co:
        """Returns the book that `snapshot` was taken of."""


ViewT = TypeVar("ViewT")


def fold_entry(journal: str, book: Replays, entry: Entry, after: int) -> None:
    """Checks one entry and folds it. Raises `JournalDamagedError`; the book may then be half changed and must not be used."""
    if entry.seq != after + 1:
        raise JournalDamagedError(journal, "entry", after + 1, f"it is missing: {entry.seq} comes after {after}")
    if why := entry_damage(entry):
        raise JournalDamagedError(journal, "entry", entry.seq, why)
    try:
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


class _Kind(msgspec.Struct):
    type: str


_kind = msgspec.json.Decoder(_Kind)


def kind_of(event: bytes) -> str:
    """Returns the `type` of an event; empty for bytes that are no event."""
    try:
        return _kind.decode(event).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


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
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return ""


def restore(journal: str, snapshot: Snapshot, restored: Callable[[bytes], BookT]) -> BookT:
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


class Loaded(NamedTuple, Generic[BookT]):
    """A journal that was folded to its end."""

    book: BookT
    seq: int
    snapshot_at: int
    snapshot_bytes: int
    bytes_since: int
    """The size of all events above the snapshot."""


async def load_book(
    journal: Journal, calls: Calls, new_book: Callable[[], BookT], restored: Callable[[bytes], BookT]
) -> Loaded[BookT]:
    """Starts from the newest snapshot and folds everything after it. Raises `JournalDamagedError`."""
    while True:
        try:
            return await _load(journal, calls, new_book, restored)
        except Truncated:
            continue  # the leader saved a newer snapshot meanwhile, and truncated the entries below it
        except JournalDamagedError:
            raise
        except EngineCorruptError as error:
            raise JournalDamagedError(journal.name, "something", 0, error.fact) from error


async def _load(
    journal: Journal, calls: Calls, new_book: Callable[[], BookT], restored: Callable[[bytes], BookT]
) -> Loaded[BookT]:
    book, seq, kept, size = new_book(), 0, 0, 0
    snapshot = await calls.run(journal.latest_snapshot)
    if snapshot is not None:
        try:
            book = restore(journal.name, snapshot, restored)
        except JournalDamagedError as error:
            raise await _with_hint(journal, calls, error) from error
        seq, kept = snapshot.seq, len(snapshot.state)
    while entries := await calls.run(journal.read, seq):
        for entry in entries:
            fold_entry(journal.name, book, entry, seq)
            seq, size = entry.seq, size + sum(map(len, entry.events))
    return Loaded(book, seq, snapshot.seq if snapshot is not None else 0, kept, size)


async def _with_hint(journal: Journal, calls: Calls, error: JournalDamagedError) -> JournalDamagedError:
    """Returns the error of a snapshot with a hint: are all entries that the snapshot was made of still in the journal?"""
    try:
        await calls.run(journal.read, 0, limit=1)
        hint = "all entries below it are still there, so that it can be made again"
    except Truncated:
        hint = "the entries below it are gone"
    return JournalDamagedError(error.journal, error.part, error.seq, f"{error.why}; {hint}", remedy=error.remedy)


# Following


class FollowedJournal(Generic[BookT]):
    """Loads a book from a journal, keeps it up to date, and lets callers read it."""

    def __init__(
        self,
        journal: Journal,
        calls: Calls,
        rules: BookRules[BookT],
        *,
        failures: ProductFailures,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called after the book has folded more durable entries."""
        self.journal, self._calls, self._failures, self._on_change = journal, calls, failures, on_change
        self._books = rules
        self.book = rules.new_book()
        self.seq = 0
        self._epoch: int | None = None
        self._in_flight: asyncio.Future[None] | None = None
        """Set while an append or the rebuilding of the book is under way; done when that has ended. Readers wait for it."""
        self._spoiled = False
        """True while events that are not in the journal may have half changed the book. Readers wait for `_in_flight` then."""
        self._snapshot_at, self._snapshot_bytes, self._bytes_since = 0, 0, 0
        self.state_bytes = 0
        """The size of the book when it was last loaded from a snapshot or encoded for one. More than `MAX_SNAPSHOT_BYTES` cannot be kept."""
        self.deposed: DeposedError | None = None
        self.damage: JournalDamagedError | None = None
        """Set while the journal cannot be read to its end. Then `read` raises it, and this node cannot lead."""

    @property
    def epoch(self) -> int:
        """The epoch under which this ledger leads; 0 while it does not lead."""
        return self._epoch or 0

    # Reading

    async def read(self, look: Callable[[BookT], ViewT]) -> ViewT:
        """Returns what `look` finds in the book, once all of it is durable. No caller sees a decision that the engine may yet refuse.

        `look` must return a value that no later fold changes. Raises `DeposedError` while this node's book cannot be trusted, and
        `JournalDamagedError` while the journal cannot be read.
        """
        if self.damage is not None:
            raise self.damage
        while True:
            # `shield`, here and below: a reader that is cancelled must not cancel the future that the writer sets.
            while self._spoiled and self._in_flight is not None:
                await asyncio.shield(self._in_flight)
            book = self.book
            view = look(book)
            if self._in_flight is not None:
                await asyncio.shield(self._in_flight)
            if self.deposed is not None:
                raise self.deposed
            if not self.seq:
                raise DeposedError("this node has not read the journal yet")
            if book is self.book:
                return view
            # The book was replaced meanwhile: `look` may have seen events that will never be written. Look again.

    # Following

    async def load(self) -> None:
        """Starts from the newest snapshot and folds everything after it. Until that is done, the old book answers.

        Raises `JournalDamagedError`; `damage` is then set until a later `load` succeeds.
        """
        try:
            loaded = await load_book(self.journal, self._calls, self._books.new_book, self._books.restored)
        except JournalDamagedError as error:
            self.damage = error
            raise
        self.damage, self._bytes_since = None, loaded.bytes_since
        self._snapshot_at = loaded.snapshot_at
        self.state_bytes = self._snapshot_bytes = loaded.snapshot_bytes
        self.book, self.seq = loaded.book, loaded.seq
        self._changed()

    async def follow(self, wait_s: float) -> int:
        """Waits up to `wait_s` for entries, folds them and returns their number. Only for a node that does not lead."""
        try:
            entries = await self._calls.run(self.journal.follow, self.seq, wait_s)
        except Truncated:
            await self.load()  # the leader has truncated the entries that this node did not read in time
            return 1
        for entry in entries:
            try:
                fold_entry(self.journal.name, self.book, entry, self.seq)
            except JournalDamagedError as error:
                self.damage = error
                raise
            self.seq = entry.seq
        if entries:
            self._changed()
        return len(entries)

    def _changed(self) -> None:
        """Calls `on_change`. An exception of it is only noted: it must not stop the fold or the writer."""
        try:
            self._on_change()
        except Exception as error:
            self._failures.note(FailedOn.WAITER, "", "waking those who wait for the book", error)
