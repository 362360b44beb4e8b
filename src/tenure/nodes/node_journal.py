"""The journal of a node: reads it with distrust, follows it, and appends to it for sure.

It checks each entry and snapshot before it folds it, and its error names the one that is wrong. Managers, gates and `tenure journal` all read through
this module, so that all of them find the same damage. `FollowedJournal` keeps the book that is the fold up to date, and shows it to callers, but never
a part of it that is not durable yet. `SureAppend` appends and learns what became of it, also where the engine's answer was lost; `CommandGroup` holds
the outcomes for a caller. The writer of a leader is in `ledger`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tenure.backoff import Backoff
from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Entry, Journal, Snapshot
from tenure.errors import (
    DeposedError,
    EngineBusyError,
    EngineCorruptError,
    EngineFullError,
    EngineUnavailableError,
    EngineVersionError,
    JournalDamagedError,
    SequenceConflictError,
    StaleEpochError,
    TenureError,
    Truncated,
)
from tenure.jobs.decisions import Command, Event, Outcome
from tenure.jobs.topics import decode_any_event
from tenure.nodes.journal_checksum import entry_damage, kind_of, opened
from tenure.nodes.loop_keeper import FailedOn, ProductFailures
from tenure.randomness import Random

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


RETRY_MOST_S = 1.0


class Decided(Protocol):
    """The decision on a command: the events to append, and what became of the command. Its class adds more of the answer."""

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def outcome(self) -> Outcome: ...


DecisionT = TypeVar("DecisionT", bound=Decided)


class CommandGroup(Generic[DecisionT]):
    """Commands of one caller. `complete` wakes the caller once, when all of them are settled."""

    def __init__(self, size: int) -> None:
        self.outcomes: list[DecisionT | TenureError | None] = [None] * size
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = size

    def settle(self, place: int, outcome: DecisionT | TenureError) -> None:
        """Sets the outcome of one command. The first outcome counts: when a writer fails, all commands are settled, and some already were."""
        if self.outcomes[place] is not None:
            return
        self.outcomes[place] = outcome
        self._open -= 1
        if not self._open and not self.complete.done():
            self.complete.set_result(None)

    def settle_rest(self, outcome: TenureError) -> None:
        """Sets this outcome for every command that has none yet."""
        for place in range(len(self.outcomes)):
            self.settle(place, outcome)


class WaitingCommand(NamedTuple, Generic[DecisionT]):
    command: Command
    group: CommandGroup[DecisionT]
    place: int

    def settle(self, outcome: DecisionT | TenureError) -> None:
        self.group.settle(self.place, outcome)


class SureAppend:
    """Asks the engine until it answers: until then the outcome of an append is unknown."""

    def __init__(self, calls: Calls, clock: Clock, random: Random) -> None:
        self._calls, self._clock, self._random = calls, clock, random

    async def append(
        self, journal: Journal, events: Sequence[bytes], *, epoch: int, expect: int, append_id: str
    ) -> int:
        """Returns the sequence that the events got. Raises `DeposedError` when another leader wrote at this position."""
        backoff: Backoff | None = None
        lost_answer = False
        while True:
            try:
                if lost_answer and (found := await self._find(journal, append_id, expect)) is not None:
                    return found
                return await self._calls.run(journal.append, events, epoch=epoch, expect=expect, append_id=append_id)
            except (EngineUnavailableError, EngineBusyError, EngineFullError):
                lost_answer, backoff = True, backoff or self.backoff()
                await self._clock.async_sleep(backoff.next())
            except (StaleEpochError, SequenceConflictError) as error:
                # After a lost answer, the entry at this position may be our own append.
                found = await self._find_for_sure(journal, append_id, expect) if lost_answer else None
                if found is not None:
                    return found
                raise DeposedError(f"an append was refused: {error}") from error
            except Truncated as error:
                raise DeposedError(f"another leader has gone on: {error}") from error

    def backoff(self) -> Backoff:
        return Backoff(self._random, most_s=RETRY_MOST_S)

    async def _find(self, journal: Journal, append_id: str, after: int) -> int | None:
        """Returns the sequence of the entry with this id above `after`, or None. Each page is one engine call, so that a simulation may fail any."""
        position = after
        while entries := await self._calls.run(journal.read, position):
            for entry in entries:
                if entry.append_id == append_id:
                    return entry.seq
            position = entries[-1].seq
        return None

    async def _find_for_sure(self, journal: Journal, append_id: str, after: int) -> int | None:
        backoff = self.backoff()
        while True:
            try:
                return await self._find(journal, append_id, after)
            except (EngineUnavailableError, EngineBusyError):
                await self._clock.async_sleep(backoff.next())
            except Truncated:
                return None
