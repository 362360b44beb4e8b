"""A journal as a node reads it: the book that is its fold, shown to nobody before it is durable.

The writer's side is `journaled.Journaled`. What the book holds is the subclass's.
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
    """A fold over a journal that can be kept."""

    def snapshot(self) -> bytes: ...


BookT = TypeVar("BookT", bound=Book)


class FollowedJournal(ABC, Generic[BookT]):
    """A book that is loaded, follows the journal, and is read."""

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
        """While an append, or the rebuilding of the book, is under way."""
        self._spoiled = False
        """The book may be half changed by events that are not in the journal. Only while `_in_flight` is set."""
        self._snapshot_at, self._snapshot_bytes, self._bytes_since = 0, 0, 0
        self.state_bytes = 0
        """The size of the book when it was last loaded from a snapshot or encoded for one. More than `MAX_SNAPSHOT_BYTES` cannot be kept."""
        self.deposed: DeposedError | None = None
        self.damage: JournalDamagedError | None = None
        """Set while the journal cannot be read to its end: then this book is not shown to anybody, and this node cannot lead."""

    @property
    def epoch(self) -> int:
        """Under which this ledger leads; 0 while it does not."""
        return self._epoch or 0

    @abstractmethod
    def new_book(self) -> BookT:
        """A book that has folded nothing."""

    @abstractmethod
    def restored(self, snapshot: bytes) -> BookT:
        """The book that `snapshot` was taken of."""

    # Reading

    async def read(self, look: Callable[[BookT], ViewT]) -> ViewT:
        """What the book shows, once all of it is durable: nobody is shown a decision that may yet be refused.

        `look` must return what no later fold changes. Raises `DeposedError` while this node's book is worth nothing, and
        `JournalDamagedError` while it cannot have one.
        """
        if self.damage is not None:
            raise self.damage
        while True:
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
            # Built anew meanwhile: some of what was seen may never be written.

    # Following

    async def load(self) -> None:
        """Start from the newest snapshot and fold everything after it. Until then the old book answers.

        Raises `JournalDamagedError`, and is then damaged until a later `load` succeeds.
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
        """Fold what others append; how many entries came. Only for one that does not lead."""
        try:
            entries = await self._calls.run(self.journal.follow, self.seq, wait_s)
        except Truncated:
            await self.load()  # we were away for longer than the journal remembers
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
        """The book holds more that is durable. Whoever waits for that must not spoil it for us."""
        try:
            self._on_change()
        except Exception as error:
            self._failures.note(FailedOn.WAITER, "", "waking those who wait for the book", error)
