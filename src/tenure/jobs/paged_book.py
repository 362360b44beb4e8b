"""Saves a `JobBook` in pages and reads it back (`state_pages.py` has the pages, decision 0421 the protocol). Pure: shells write and read the bytes."""

from __future__ import annotations

import msgspec

from tenure.jobs.book import BookState, JobBook
from tenure.jobs.fold import read_snapshot
from tenure.jobs.job_records import SeenElection
from tenure.jobs.settings import JobSettings
from tenure.jobs.state_pages import (
    PAGED_VERSION,
    SECTIONS,
    PageCut,
    PageRef,
    SavedElection,
    Section,
    SectionRoots,
    StatePages,
    compressed,
    read_page,
    unpacked,
)


class BookRoot(msgspec.Struct, kw_only=True):
    """The contents of a snapshot of format 2: the state without the records that are in pages."""

    version: int = PAGED_VERSION
    layout: int
    state: BookState
    sections: SectionRoots
    elections: list[SavedElection] = []


_encode = msgspec.msgpack.Encoder().encode
_root_decoder = msgspec.msgpack.Decoder(BookRoot)


def read_root(snapshot: bytes) -> BookRoot:
    """Returns the root that `snapshot` is. Raises `EngineVersionError`."""
    root: BookRoot = read_snapshot(_root_decoder, snapshot, "jobs", newest=PAGED_VERSION)
    return root


def cut_pages(book: JobBook, seq: int, epoch: int) -> PageCut:
    """Returns what saves the book as it is now, the fold up to `seq`. It costs what changed since the pages in force were written."""
    pages = book.pages
    assert pages is not None, "its format was not raised"
    refs, blobs = pages.changed_pages(book, seq, epoch)
    pages.forget_elections(refs, seq)
    rest = msgspec.structs.replace(book.state, jobs={}, archive={}, tombstones={})
    root = _encode(BookRoot(layout=pages.layout, state=rest, sections=pages.roots(refs), elections=pages.elections))
    book.size.measured(len(root) + pages.weight(refs))
    return PageCut(seq, root, blobs, refs)


def repaged(snapshot: bytes, seq: int, epoch: int) -> PageCut:
    """Returns what saves a whole state, of format 1, in new pages."""
    book = JobBook.restore(snapshot)
    book.pages = StatePages.of(book.state, seq)
    return cut_pages(book, seq, epoch)


class PagedRestore:
    """Builds a book from a root and its pages. Add every page of `wanted`, in that order."""

    def __init__(self, snapshot: bytes, settings: JobSettings | None = None) -> None:
        root = read_root(snapshot)
        self.wanted: list[tuple[Section, PageRef]] = [
            (name, ref) for name in SECTIONS for ref in root.sections[name].pages
        ]
        self.book = JobBook(settings, root.state)
        self.book.pages = self._pages = StatePages(root.layout)
        self._pages.elections = root.elections
        self._pages.adopt(root.sections, root.layout)
        for name, section in root.sections.items():
            self._pages.sections[name].begin(section)
        lines = bool(self.book.settings.history_limit)
        self.book.jobs.elections = [
            SeenElection(self.book.decoder.decode(one.event).at, one.event if lines else b"") for one in root.elections
        ]

    def add(self, section: Section, ref: PageRef, stored: bytes) -> None:
        encoded = unpacked(section, stored, ref.size)
        records = read_page(section, encoded)
        if section == "jobs":
            records = {
                info.id: info for info in records.values()
            }  # the indexes keep the id that is in the record: so it is in memory once
        self._pages.sections[section].hold(ref.number, records, ref.seq)
        self.book.size.grew(ref.size)
        if section == "jobs":
            seen = len(self._pages.elections) - len(self._pages.lacking(ref))
            self.book.size.grew(self._pages.lacking_bytes(ref, len(records)))
            self.book.admit_jobs(ref.number, records, compressed(stored), len(encoded), seen)
        else:
            self.book.admit(section, records)
