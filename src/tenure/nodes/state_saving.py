"""Saves the state of a node beside its journal, in whole or in pages, and reads pages back (decision 0421).

Most pages that changed are written ahead, a few at a time, under keys of their own. Then the saving is cut from the book at one sequence, in one step: the
snapshot, which names the pages, and those that changed meanwhile. All of it is written while the writer goes on, and the snapshot last. The snapshot is the one step that counts, and the engine refuses it from a leader that was replaced. Only then
are the entries below it truncated. Pages that no snapshot names any more are deleted later, because a node may just be reading them.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Journal, Store
from tenure.errors import JournalDamagedError
from tenure.jobs.state_pages import PageRef
from tenure.jobs.stored_pages import Section, joined

READ_AT_ONCE = 32
"""The pages that are read by one call: some megabytes."""
WRITTEN_AT_ONCE = 4
"""The pages that are written side by side."""
UNNAMED_FOR_S = 60.0
"""The seconds for which a page that no snapshot names any more can still be read."""
DELETED_AT_ONCE = 200
"""The most pages that one saving deletes beyond as many as were written for it, so that a backlog gets smaller at any rate of jobs."""


class StateCut(NamedTuple):
    """The state at one sequence, encoded."""

    seq: int
    snapshot: bytes
    blobs: Mapping[str, bytes] = {}
    """Maps the key of each page that changed to its bytes."""
    named: frozenset[str] | None = None
    """The keys of all pages that the snapshot names; None for a snapshot that holds everything."""
    kept: Callable[[], None] = lambda: None
    """Called once the snapshot is in force."""


class PagesAhead(NamedTuple):
    """Some pages, encoded. They are written before the cut that will name them."""

    blobs: Mapping[str, bytes]
    wrote: Callable[[], None]
    """Called once they are in the store."""


BookT_co = TypeVar("BookT_co", covariant=True)


class PageReading(Protocol[BookT_co]):
    """Builds a book from the pages that a snapshot names."""

    wanted: list[tuple[Section, PageRef]]

    @property
    def book(self) -> BookT_co: ...

    def add(self, section: Section, ref: PageRef, encoded: bytes) -> None: ...


class PageGone(Exception):
    """A page that a snapshot names is not there: a newer snapshot has replaced that one, or the page is lost."""


async def read_pages(
    journal: str,
    seq: int,
    reading: PageReading[BookT_co],
    pages: Store,
    calls: Calls,
    added: Callable[[int], None] = lambda count: None,
) -> BookT_co:
    """Returns the book. Reads the next few pages while it adds the last ones, and gives way to other tasks in between.

    `added` is called with the number of each few pages once they are in the book.

    Raises `PageGone` and `JournalDamagedError`.
    """
    batches = list(some_of(reading.wanted, READ_AT_ONCE))
    coming = _begin_reading(pages, calls, batches[0] if batches else [])
    try:
        for number, some in enumerate(batches, 1):
            found = await coming
            coming = _begin_reading(pages, calls, batches[number] if number < len(batches) else [])
            await asyncio.sleep(0)  # it begins
            _add(journal, seq, reading, some, found)
            added(len(some))
    finally:
        coming.cancel()
    return reading.book


def _begin_reading(pages: Store, calls: Calls, wanted: Wanted) -> asyncio.Task[dict[str, bytes]]:
    reading = asyncio.create_task(_read(pages, calls, wanted))
    reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may ask, after another error
    return reading


async def _read(pages: Store, calls: Calls, wanted: Wanted) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for few in some_of(_keys(wanted), READ_AT_ONCE):
        found |= await calls.run(pages.get_many, few)
    return found


def read_pages_now(journal: str, seq: int, reading: PageReading[BookT_co], pages: Store) -> BookT_co:
    """Does the same as `read_pages`, for tools without an event loop."""
    for some in some_of(reading.wanted, READ_AT_ONCE):
        found: dict[str, bytes] = {}
        for few in some_of(_keys(some), READ_AT_ONCE):
            found |= pages.get_many(few)
        _add(journal, seq, reading, some, found)
    return reading.book


Wanted = list[tuple[Section, PageRef]]


def _keys(wanted: Wanted) -> list[str]:
    return [key for section, ref in wanted for key in ref.keys(section)]


def _add(journal: str, seq: int, reading: PageReading[BookT_co], wanted: Wanted, found: Mapping[str, bytes]) -> None:
    with _no_collections():
        _add_each(journal, seq, reading, wanted, found)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keeps the collector off meanwhile. The records of a page are gone with their last reference; to look for cycles among them takes a fifth of a start."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _add_each(
    journal: str, seq: int, reading: PageReading[BookT_co], wanted: Wanted, found: Mapping[str, bytes]
) -> None:
    for section, ref in wanted:
        chunks = [found[key] for key in ref.keys(section) if key in found]
        if len(chunks) < ref.chunks:
            raise PageGone(f"page {ref.number} of {section}")
        encoded = joined(chunks)
        if encoded is None:
            why = f"the checksum of page {ref.number} of {section} is wrong"
            raise JournalDamagedError(journal, "snapshot", seq, why)
        reading.add(section, ref, encoded)


ItemT = TypeVar("ItemT")


def some_of(items: Sequence[ItemT], count: int) -> Iterator[list[ItemT]]:
    rest = iter(items)
    while some := list(islice(rest, count)):
        yield some


class StateSaver:
    """Writes what was cut, and deletes pages that nobody needs any more. One term has one."""

    def __init__(self, journal: Journal, pages: Store, calls: Calls, clock: Clock) -> None:
        self._journal, self._pages, self._calls, self._clock = journal, pages, calls, clock
        self._named: frozenset[str] = frozenset()
        """The pages that the snapshot in force names."""
        self._needed_until: dict[str, float] = {}
        """Maps each other page that is in the store to the time at which it may be deleted."""
        self._listed = False
        self._written = 0
        """The pages that were written since the last deletion."""

    async def save(self, cut: StateCut, snapshot: bytes, epoch: int, before: int) -> None:
        """Puts a cut in force, and truncates the entries up to `before`, where the last one was taken. `snapshot` is that of the cut with its checksum.

        A standby that is a little late must find the entries that it has not read. Without them it loads everything anew, beside the book that it has:
        with 300,000 jobs that took 100 MiB more of its memory, and nobody could have led from a warm book meanwhile.
        """
        await self._put(cut.blobs)
        await self._calls.run(self._journal.snapshot, snapshot, cut.seq, epoch=epoch)
        cut.kept()
        if before:
            await self._calls.run(self._journal.truncate, before)
        if cut.named is not None:
            await self._sweep(cut.named)

    async def write_ahead(self, pages: PagesAhead) -> None:
        """Writes pages that the next cut may name. Where none does, they are deleted like others."""
        until = self._clock.boottime() + UNNAMED_FOR_S
        self._needed_until.update(dict.fromkeys(pages.blobs, until))
        await self._put(pages.blobs)
        pages.wrote()

    async def _put(self, blobs: Mapping[str, bytes]) -> None:
        self._written += len(blobs)
        for few in some_of(list(blobs.items()), WRITTEN_AT_ONCE):
            # No fence: the epoch is in the key, so no other leader ever writes it, and a deletion need not be remembered.
            await asyncio.gather(*(self._calls.run(self._pages.put, key, blob) for key, blob in few))

    async def _sweep(self, named: frozenset[str]) -> None:
        """Deletes pages that no snapshot has named for a while."""
        now = self._clock.boottime()
        for key in named - self._named:
            self._needed_until.pop(key, None)
        self._needed_until.update(dict.fromkeys(sorted(self._named - named), now + UNNAMED_FOR_S))
        self._named = named
        if not self._listed:
            await self._list(now)
        due = (key for key, until in self._needed_until.items() if until <= now)
        most, self._written = DELETED_AT_ONCE + self._written, 0
        for key in list(islice(due, most)):
            await self._calls.run(self._pages.delete, key)
            del self._needed_until[key]

    async def _list(self, now: float) -> None:
        """Finds the pages that the last leader left, of a saving that it did not finish or a page that it did not delete."""
        after: str | None = None
        while keys := await self._calls.run(self._pages.list, "", after=after):
            self._needed_until.update({key: now + UNNAMED_FOR_S for key in keys if key not in self._named})
            after = keys[-1]
        self._listed = True
