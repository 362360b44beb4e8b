"""Keeps the state of a datacenter in pages, so that saving it costs what changed and not what exists (format 2, decision 0421). Pure.

The journal stays the truth: what is saved is a cache of the fold of a prefix of it. The records of jobs, archived ids and tombstones are put into
pages in the order in which they came. The fold alone places them, so every node has the same pages. A page that changed is written under a new
key, never over the old one. The *root* is the rest of the state and names the page keys that are in force; it is saved as the journal's snapshot, which
switches from one state to the next in one step. So what is read back is always the fold up to one sequence.

An election changes every live job. The root holds it instead: the pages that were written before it get it when they are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter, mul
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.errors import EngineVersionError
from tenure.jobs.decisions import Event, encode_event
from tenure.jobs.stored_pages import CHUNK_BYTES, SECTIONS, Section, chunks_of

if TYPE_CHECKING:
    from tenure.jobs.book import BookState, JobBook

PAGED_VERSION = 2
"""The version of a snapshot that is the root of pages."""
PAGE_RECORDS = 64
"""The most records of a page. One change writes a whole page, so it must be small; each page is one line of the root, so it must not be tiny."""
PAGE_BYTES = 262_144
"""No record joins a page that has so many bytes already."""
MOST_ELECTIONS = 64
"""Pages that were written so many elections ago are written again, so that the list of elections stays short."""


class PageRef(msgspec.Struct, frozen=True, array_like=True):
    """Names one page as it was saved."""

    number: int
    seq: int
    """The page holds the fold up to here."""
    epoch: int
    """The epoch of the leader that wrote it. With `seq`, it makes the key unique: a deposed leader never writes over the page of another."""
    size: int
    """The bytes of its records. Compressed, as it is stored, it has far fewer."""
    chunks: int = 1

    def keys(self, section: Section) -> list[str]:
        return [f"{section}/{self.number}/{self.seq}.{self.epoch}/{chunk}" for chunk in range(self.chunks)]


class SavedElection(msgspec.Struct, frozen=True, array_like=True):
    """An encoded `LeaderElected`, and the sequence of its entry."""

    seq: int
    event: bytes


class SectionRoot(msgspec.Struct, frozen=True, array_like=True):
    pages: list[PageRef]
    number: int
    """The page that the next record joins, the records that were put into it, and their bytes then."""
    records: int
    bytes: int


PageRefs = dict[Section, dict[int, PageRef]]
SectionRoots = dict[Section, SectionRoot]
PageName = tuple[Section, int]


class PackedPages(NamedTuple):
    """Some pages, as they are at one moment."""

    refs: PageRefs
    blobs: dict[str, bytes]
    """Maps each key to the bytes to write under it."""


class PageCut(NamedTuple):
    """Holds the bytes that save the state of one moment: the pages that changed, and the root, which is written last."""

    seq: int
    root: bytes
    packed: PackedPages
    """The pages that are written with it."""
    refs: PageRefs
    """All pages that the root names."""
    named: frozenset[str]
    """Their keys."""

    @property
    def blobs(self) -> dict[str, bytes]:
        return self.packed.blobs


class PagedSection:
    """Places the records of one dictionary of the state in pages, and knows which of these are saved.

    A leader saves every few thousand events, and a million jobs have 15,000 pages. So what a saving asks of all pages takes no step of Python for each:
    it is kept here, or it is one call over a whole dictionary (decision 1001).
    """

    def __init__(self, name: Section) -> None:
        self.name: Section = name
        self.page_of: dict[str, int] = {}
        """Maps the records that `packed_in` does not know to their pages."""
        self.packed_in: Callable[[str], int | None] = lambda name: None
        """Returns the page of a record that is held packed, by what holds it: an entry for each of a million jobs would be 40 bytes of it."""
        self.members: dict[int, list[str]] = {}
        """Maps each page that has records to their ids, in their order."""
        self.changed_at: dict[int, int] = {}
        """Maps each such page to the sequence of its last change."""
        self.saved: dict[int, PageRef] = {}
        """Maps each such page to the newest form of it that is in the store, whether or not a root names that already. Only a leader needs it."""
        self.stale: dict[int, None] = {}
        """Such pages that have to be written: each that is not in `saved`, and each that changed since."""
        self._keys: dict[int, list[str]] = {}
        """Maps pages of `saved` to their keys, once somebody asked."""
        self.number = self.records = self.bytes = 0

    def came(self, name: str, size: int, seq: int) -> None:
        if self.page(name) is not None:
            self.changed(name, seq)
            return
        if self.records >= PAGE_RECORDS or (self.records and self.bytes + size > PAGE_BYTES):
            self.number, self.records, self.bytes = self.number + 1, 0, 0
        self.page_of[name] = self.number
        self.members.setdefault(self.number, []).append(name)
        self._changed(self.number, seq)
        self.records, self.bytes = self.records + 1, self.bytes + size

    def page(self, name: str) -> int | None:
        """Returns the page of a record; None for one that has none."""
        number = self.page_of.get(name)
        return self.packed_in(name) if number is None else number

    def changed(self, name: str, seq: int) -> None:
        if (number := self.page(name)) is not None:
            self._changed(number, seq)

    def _changed(self, number: int, seq: int) -> None:
        self.changed_at[number] = seq
        self.stale[number] = None

    def left(self, name: str, seq: int) -> None:
        number = self.page(name)
        if number is None:
            return
        self.page_of.pop(name, None)
        members = self.members[number]
        members.remove(name)
        self._changed(number, seq)
        if not members:
            del self.members[number], self.changed_at[number], self.stale[number]
            self.saved.pop(number, None)
            self._keys.pop(number, None)

    def hold(self, ref: PageRef, names: Iterable[str]) -> None:
        """Takes the records of a page that was read. Whoever holds them says which page each is in."""
        self.members[ref.number] = list(names)
        self.changed_at[ref.number] = ref.seq
        self._put(ref)

    def wrote(self, refs: Iterable[PageRef]) -> None:
        """Notes that these forms of pages are in the store."""
        for ref in refs:
            if ref.number in self.members:
                self._put(ref)
                if self.changed_at[ref.number] <= ref.seq:
                    self.stale.pop(ref.number, None)

    def _put(self, ref: PageRef) -> None:
        self.saved[ref.number] = ref
        self._keys.pop(ref.number, None)

    def adopt(self, refs: Iterable[PageRef]) -> None:
        """Takes these forms of pages as those that are saved, and no others."""
        self.saved, self._keys = {ref.number: ref for ref in refs if ref.number in self.members}, {}
        self.stale = {
            number: None
            for number, at in self.changed_at.items()
            if (ref := self.saved.get(number)) is None or at > ref.seq
        }

    def outdate(self, seq: int) -> None:
        """Has the pages written again whose saved form is older than `seq`."""
        self.stale.update({number: None for number, ref in self.saved.items() if ref.seq < seq})

    def refs(self, packed: dict[int, PageRef]) -> dict[int, PageRef]:
        """Returns all pages as they are saved once those that are packed are written, in their order."""
        known = self.saved | packed
        return dict(zip(self.members, map(known.__getitem__, self.members), strict=True))

    def keys(self, packed: dict[int, PageRef]) -> set[str]:
        """Returns the keys of these pages."""
        for number in self.saved.keys() - self._keys.keys():
            self._keys[number] = self.saved[number].keys(self.name)
        lists = self._keys | {number: ref.keys(self.name) for number, ref in packed.items()}
        return set(chain.from_iterable(lists.values()))

    def begin(self, root: SectionRoot) -> None:
        self.number, self.records, self.bytes = root.number, root.records, root.bytes


class StatePages:
    """Knows the page of every record, and which pages a saved state lacks."""

    def __init__(self, layout: int) -> None:
        self.layout = layout
        """The sequence at which records were first placed. Pages of another layout hold other records under the same number."""
        self.sections: dict[Section, PagedSection] = {name: PagedSection(name) for name in SECTIONS}
        self.elections: list[SavedElection] = []
        """The elections that some saved page may lack, oldest first."""

    @classmethod
    def of(cls, state: BookState, seq: int) -> StatePages:
        """Places every record of a state that had no pages. Each of them has changed."""
        pages = cls(seq)
        for name in SECTIONS:
            records: Mapping[str, Any] = getattr(state, name)
            for key, record in records.items():
                pages.sections[name].came(key, len(_encode(record)), seq)
        return pages

    def mark(self, event: Event, encoded: bytes | None, seq: int) -> None:
        """Notes which pages an event changed: those of the jobs that it names."""
        jobs = self.sections["jobs"]
        job_id = getattr(event, "job_id", None)
        if job_id is not None:
            jobs.changed(job_id, seq)
        for name in getattr(event, "jobs", None) or ():
            jobs.changed(name, seq)
        if type(event).__name__ == "LeaderElected":
            self.elections.append(SavedElection(seq, encoded or encode_event(event)))
            del self.elections[: -4 * MOST_ELECTIONS]
            self._outdate()

    def adopt(self, sections: SectionRoots, layout: int) -> None:
        """Takes the pages of the root that is in force as those that are saved: none of them where the root has another layout."""
        for name, section in self.sections.items():
            section.adopt(sections[name].pages if layout == self.layout and name in sections else ())
        self._outdate()

    def _outdate(self) -> None:
        """Has pages written again that lack so many elections that the list of these would become long."""
        if len(self.elections) > MOST_ELECTIONS:
            self.sections["jobs"].outdate(self.elections[-MOST_ELECTIONS].seq)

    def lacking(self, ref: PageRef) -> list[SavedElection]:
        """Returns the elections that a saved page lacks."""
        return [one for one in self.elections if one.seq > ref.seq]

    def changed(self) -> list[PageName]:
        """Returns the pages that are not written as they are now."""
        return [(name, number) for name, section in self.sections.items() for number in sorted(section.stale)]

    def pack(self, book: JobBook, some: Iterable[PageName], seq: int, epoch: int) -> PackedPages:
        """Returns the bytes of some pages as they are now. It leaves out those that are gone, or written meanwhile."""
        packed = PackedPages({name: {} for name in SECTIONS}, {})
        for name, number in some:
            section = self.sections[name]
            if number in section.stale:
                saved = book.saved_page(name, number, section.members[number])
                stored = saved.stored
                ref = PageRef(number, seq, epoch, saved.size, -(-len(stored) // CHUNK_BYTES))
                packed.blobs.update(zip(ref.keys(name), chunks_of(stored), strict=True))
                packed.refs[name][number] = ref
        return packed

    def wrote(self, packed: PackedPages) -> None:
        """Notes that these pages are in the store, so that roots may name them. One that changes once more is written again."""
        for name, pages in packed.refs.items():
            self.sections[name].wrote(pages.values())

    def refs(self, packed: PackedPages) -> PageRefs:
        """Returns all pages as they are saved once `packed` is written."""
        return {name: section.refs(packed.refs[name]) for name, section in self.sections.items()}

    def keys(self, packed: PackedPages) -> frozenset[str]:
        """Returns the keys of these pages."""
        return frozenset().union(*(section.keys(packed.refs[name]) for name, section in self.sections.items()))

    def roots(self, refs: PageRefs) -> SectionRoots:
        return {
            name: SectionRoot(list(refs[name].values()), section.number, section.records, section.bytes)
            for name, section in self.sections.items()
        }

    def forget_elections(self, refs: PageRefs, seq: int) -> None:
        """Drops the elections that every page of `refs` has."""
        oldest = min(map(_SEQ, refs["jobs"].values()), default=seq)
        self.elections = [one for one in self.elections if one.seq > oldest]

    def weight(self, refs: PageRefs) -> int:
        """Returns the most bytes that the records of all pages have: as they were saved, with the elections that they lack."""
        count = sum(sum(map(_SIZE, pages.values())) for pages in refs.values())
        if self.elections:
            # What a page lacks begins with the first election after it, and each part of the list has its bytes.
            since = [0, *accumulate(len(one.event) + _LINE for one in reversed(self.elections))][::-1]
            seen = partial(bisect_right, [one.seq for one in self.elections])
            lacking = map(since.__getitem__, map(seen, map(_SEQ, refs["jobs"].values())))
            count += sum(map(mul, lacking, map(len, self.sections["jobs"].members.values())))
        return count

    def lacking_bytes(self, ref: PageRef, records: int) -> int:
        """Returns the most bytes that the elections which a saved page lacks add to its records."""
        return records * sum(len(one.event) + _LINE for one in self.lacking(ref))


_LINE = 32
"""The bytes that a line of history, the token and the times of an election take beside the event itself."""


_SEQ, _SIZE = attrgetter("seq"), attrgetter("size")


def is_paged(snapshot: bytes) -> bool:
    """Returns True for a snapshot that names pages, and False for one that holds everything. Raises `EngineVersionError` for one of a later release."""
    try:
        version = _version.decode(snapshot).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # whoever reads it as a whole state says what is wrong with it
    if version > PAGED_VERSION:
        raise EngineVersionError(
            f"the snapshot has version {version}, and this Tenure reads up to {PAGED_VERSION}",
            remedy="Start the newer version again",
        )
    return version == PAGED_VERSION


class _Version(msgspec.Struct):
    version: int = 0


_version = msgspec.msgpack.Decoder(_Version)
_encode = msgspec.msgpack.Encoder().encode
