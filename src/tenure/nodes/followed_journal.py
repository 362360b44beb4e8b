"""Follows a journal and shows the book that is its fold, but never a part of it that is not durable yet.

The writer's side is `journaled.Journaled`. The subclass decides what the book holds.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tenure.engines.aio import Calls
from tenure.engines.contracts import Journal
from tenure.errors import DeposedError, JournalDamagedError, Truncated
from tenure.nodes.journal_reading import Replays, fold_entry, load_book
from tenure.nodes.product_failures import FailedOn, ProductFailures

ViewT = TypeVar("ViewT")


class Book(Replays, Protocol):
    """A fold over a journal that can be saved as a snapshot."""

    def snapshot(self) -> bytes: ...


BookT = TypeVar("BookT", bound=Book)


class FollowedJournal(ABC, Generic[BookT]):
    """Loads a book from a journal, keeps it up to date, and lets callers read it."""

    def __init__(
        self,
        journal: Journal,
        calls: Calls,
        *,
        failures: ProductFailures,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.journal, self._calls, self._failures, self._on_change = journal, calls, failures, on_change
        self.book = self.new_book()
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

    @abstractmethod
    def new_book(self) -> BookT:
        """Returns a book that has folded nothing."""

    @abstractmethod
    def restored(self, snapshot: bytes) -> BookT:
        """Returns the book that `snapshot` was taken of."""

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
            loaded = await load_book(self.journal, self._calls, self.new_book, self.restored)
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
