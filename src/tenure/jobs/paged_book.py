"""Saves a `JobBook` in pages and reads it back (`state_pages.py` has the pages, decision 0421 the protocol). Pure: shells write and read the bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from tenure.jobs.book import BookState, JobBook
from tenure.jobs.budget import encoded_bytes
from tenure.jobs.fold import read_snapshot
from tenure.jobs.model import JobInfo
from tenure.jobs.packed_pages import SeenElection
from tenure.jobs.page_heads import PageHead, Run, read_head
from tenure.jobs.settings import JobSettings
from tenure.jobs.state_pages import PAGED_VERSION, PageCut, PageRef, SavedElection, SectionRoots, StatePages
from tenure.jobs.stored_pages import SECTIONS, Section, Unpacked, parted, read_page, unpacked


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
    packed = pages.pack(book, pages.changed(), seq, epoch)
    refs = pages.refs(packed)
    pages.forget_elections(refs, seq)
    rest = msgspec.structs.replace(book.state, jobs={}, archive={}, tombstones={})
    root = _encode(BookRoot(layout=pages.layout, state=rest, sections=pages.roots(refs), elections=pages.elections))
    book.size.measured(len(root) + pages.weight(refs))
    return PageCut(seq, root, packed, refs, pages.keys(packed))


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
        for name, section in root.sections.items():
            self._pages.sections[name].begin(section)
        lines = bool(self.book.settings.history_limit)
        self.book.jobs.elections = [
            SeenElection(self.book.decoder.decode(one.event).at, one.event if lines else b"") for one in root.elections
        ]

    def add(self, section: Section, ref: PageRef, stored: bytes) -> None:
        """Takes a page. What stands behind its records is believed only where it is the head of a page of this release; else the records are read."""
        self.book.size.grew(ref.size)
        if section != "jobs":
            records = read_page(section, unpacked(section, stored, ref.size).encoded)
            self._hold(section, ref, records)
            self._pages.sections[section].page_of.update(dict.fromkeys(records, ref.number))
            self._admit(section, records)
            return
        compressed, encoded_head = parted(stored)
        head = read_head(encoded_head)
        if head is not None and not self._takes_turns(head):
            self._hold("jobs", ref, head.ids)
            self._admit_waiting(ref.number, head, compressed, ref.size, self._seen(ref, len(head.ids)))
            return
        page = unpacked("jobs", stored, ref.size)
        # The indexes keep the id that is in the record: so it is in memory once.
        jobs: dict[str, JobInfo] = {info.id: info for info in read_page("jobs", page.encoded).values()}
        self._hold("jobs", ref, jobs)
        self._admit_jobs(ref.number, jobs, page, self._seen(ref, len(jobs)))

    def _hold(self, section: Section, ref: PageRef, names: Iterable[str]) -> None:
        self._pages.sections[section].hold(ref, names)

    def _seen(self, ref: PageRef, records: int) -> int:
        """Returns how many of the elections that this book knows a page has seen, and counts the bytes of the others."""
        self.book.size.grew(self._pages.lacking_bytes(ref, records))
        return len(self._pages.elections) - len(self._pages.lacking(ref))

    def _takes_turns(self, head: PageHead) -> bool:
        """Returns True where some of these jobs take turns by a key, which only their records have."""
        queues = self.book.state.queues
        for _, needs, _ in head.runs:
            record = queues.get(needs.lane[0])
            if needs.has_own_key or (record is not None and record.concurrency_key):
                return True
        return False

    def _admit(self, section: Literal["archive", "tombstones"], records: dict[str, Any]) -> None:
        """Takes records in the order of pages. Nothing is counted but shares and histories."""
        book = self.book
        book.size.shares[section] += sum(encoded_bytes(name, record) for name, record in records.items())
        if section == "tombstones":
            book.state.tombstones.update(records)
        else:
            book.remember(records)
            book.keys.update({one.idempotency_key: job_id for job_id, one in records.items() if one.idempotency_key})
            book.unique.admit(records)

    def _admit_jobs(self, number: int, records: dict[str, JobInfo], page: Unpacked, seen: int) -> None:
        """Takes the jobs of a page that has seen the first `seen` of the elections that this book knows."""
        for info in records.values():
            self.book.jobs.elect(info, seen)
            self.book.size.history += sum(map(len, info.history))
            self.book.index(info)
        self.book.jobs.admit(number, records, page.compressed, len(page.encoded), seen)

    def _admit_waiting(self, number: int, head: PageHead, compressed: bytes, size: int, seen: int) -> None:
        """As `_admit_jobs`, for jobs that only wait for their turn."""
        book, ids = self.book, head.ids
        first = 0
        for run in head.runs:
            self._wait_again(range(first, first + run.jobs), run, head)
            first += run.jobs
        book.attended.update({ids[place]: None for place in head.attended})
        book.keys.update({key: ids[place] for place, key in head.keys.items()})
        for place, (name, submitted_at) in head.unique.items():
            book.unique.note(name, ids[place], submitted_at)
        book.size.history += book.jobs.admit_waiting(number, head, compressed, size, seen)

    def _wait_again(self, places: range, run: Run, head: PageHead) -> None:
        book, ids = self.book, head.ids
        needs = book.needs.shared(run.needs)
        sent = [ids[place] for place in places if place not in head.resting]
        if sent:
            book.queued.put_all(sent, run.name, needs)
            queue = needs.lane[0]
            book.in_queue[queue] = book.in_queue.get(queue, 0) + len(sent)
        if len(sent) < run.jobs:
            for place in places:
                if place in head.resting:
                    book.resting.put((ids[place], run.name), needs, *head.resting[place])
