"""Keeps the state of a datacenter in pages, so that saving it costs what changed and not what exists (format 2, decision 0421). Pure.

The journal stays the truth: what is saved is a cache of the fold of a prefix of it. The records of jobs, archived ids and tombstones are put into
pages in the order in which they came. The fold alone places them, so every node has the same pages. A page that changed is written under a new
key, never over the old one. The *root* is the rest of the state and names the page keys that are in force; it is saved as the journal's snapshot, which
switches from one state to the next in one step. So what is read back is always the fold up to one sequence.

An election changes every live job. The root holds it instead: the pages that were written before it get it when they are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from tenure.errors import EngineVersionError
from tenure.jobs.decisions import Event, encode_event
from tenure.jobs.model import ArchivedJob, JobInfo, Tombstone

if TYPE_CHECKING:
    from tenure.jobs.book import BookState, JobBook

PAGED_VERSION = 2
"""The version of a snapshot that is the root of pages."""
PAGE_RECORDS = 64
"""The most records of a page. One change writes a whole page, so it must be small; each page is one line of the root, so it must not be tiny."""
PAGE_BYTES = 262_144
"""No record joins a page that has so many bytes already."""
CHUNK_BYTES = 4_194_304
"""The most bytes under one key. A page whose records have grown beyond it takes several."""
LEVEL = 1
"""The records of a page are alike: this level leaves 3 in 100 bytes of them, and takes a sixth of the time of the usual one."""
_COMPRESSED = b"\x78"
"""The first byte of what is compressed. No page that is not begins with it, because the code of a map in msgpack is above 0x7f."""
MOST_ELECTIONS = 64
"""Pages that were written so many elections ago are written again, so that the list of elections stays short."""

Section = Literal["jobs", "archive", "tombstones"]
SECTIONS: tuple[Section, ...] = ("jobs", "archive", "tombstones")


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


class PageCut(NamedTuple):
    """Holds the bytes that save the state of one moment: the pages that changed, and the root, which is written last."""

    seq: int
    root: bytes
    blobs: dict[str, bytes]
    """Maps each key to the bytes to write under it."""
    refs: PageRefs


class PackedPages(NamedTuple):
    """Some pages, as they are at one moment."""

    refs: PageRefs
    blobs: dict[str, bytes]


class PagedSection:
    """Places the records of one dictionary of the state in pages."""

    def __init__(self) -> None:
        self.page_of: dict[str, int] = {}
        """Maps the records that `packed_in` does not know to their pages."""
        self.packed_in: Callable[[str], int | None] = lambda name: None
        """Returns the page of a record that is held packed, by what holds it: an entry for each of a million jobs would be 40 bytes of it."""
        self.members: dict[int, list[str]] = {}
        """Maps each page that has records to their ids, in their order."""
        self.changed_at: dict[int, int] = {}
        """Maps each such page to the sequence of its last change."""
        self.number = self.records = self.bytes = 0

    def came(self, name: str, size: int, seq: int) -> None:
        if self.page(name) is not None:
            self.changed(name, seq)
            return
        if self.records >= PAGE_RECORDS or (self.records and self.bytes + size > PAGE_BYTES):
            self.number, self.records, self.bytes = self.number + 1, 0, 0
        self.page_of[name] = self.number
        self.members.setdefault(self.number, []).append(name)
        self.changed_at[self.number] = seq
        self.records, self.bytes = self.records + 1, self.bytes + size

    def page(self, name: str) -> int | None:
        """Returns the page of a record; None for one that has none."""
        number = self.page_of.get(name)
        return self.packed_in(name) if number is None else number

    def changed(self, name: str, seq: int) -> None:
        if (number := self.page(name)) is not None:
            self.changed_at[number] = seq

    def left(self, name: str, seq: int) -> None:
        number = self.page(name)
        if number is None:
            return
        self.page_of.pop(name, None)
        members = self.members[number]
        members.remove(name)
        self.changed_at[number] = seq
        if not members:
            del self.members[number], self.changed_at[number]

    def hold(self, number: int, names: Iterable[str], seq: int) -> None:
        """Takes the records of a page that was read."""
        self.members[number] = list(names)
        self.page_of.update(dict.fromkeys(self.members[number], number))
        self.changed_at[number] = seq

    def begin(self, root: SectionRoot) -> None:
        self.number, self.records, self.bytes = root.number, root.records, root.bytes


class StatePages:
    """Knows the page of every record, and which pages a saved state lacks."""

    def __init__(self, layout: int) -> None:
        self.layout = layout
        """The sequence at which records were first placed. Pages of another layout hold other records under the same number."""
        self.sections: dict[Section, PagedSection] = {name: PagedSection() for name in SECTIONS}
        self.elections: list[SavedElection] = []
        """The elections that some saved page may lack, oldest first."""
        self.refs: PageRefs = {name: {} for name in SECTIONS}
        """The pages of the root that is in force. Only the leader needs them, and reads them when its term begins."""
        self.ahead: PageRefs = {name: {} for name in SECTIONS}
        """The pages that were written since, for the next root to name. One that changes once more is written again."""

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

    def adopt(self, sections: SectionRoots, layout: int) -> None:
        """Takes the pages of the root that is in force as those that are saved: none of them where the root has another layout."""
        self.in_force({name: {} for name in SECTIONS})
        if layout == self.layout:
            self.refs |= {name: {ref.number: ref for ref in sections[name].pages} for name in sections}

    def lacking(self, ref: PageRef) -> list[SavedElection]:
        """Returns the elections that a saved page lacks."""
        return [one for one in self.elections if one.seq > ref.seq]

    def in_force(self, refs: PageRefs) -> None:
        """Notes that a root is in force, and the pages that it names."""
        self.refs, self.ahead = refs, {name: {} for name in SECTIONS}

    def changed(self) -> list[PageName]:
        """Returns the pages that are not written as they are now."""
        stale = self._stale()
        return [
            (name, number)
            for name, section in self.sections.items()
            for number in section.members
            if self._written(name, number, stale) is None
        ]

    def pack(self, book: JobBook, some: Iterable[PageName], seq: int, epoch: int) -> PackedPages:
        """Returns the bytes of some pages as they are now. It leaves out those that are gone, or written meanwhile."""
        stale = self._stale()
        packed = PackedPages({name: {} for name in SECTIONS}, {})
        for name, number in some:
            members = self.sections[name].members.get(number)
            if members is not None and self._written(name, number, stale) is None:
                encoded = book.encoded_page(name, members)
                stored = zlib.compress(encoded, LEVEL)
                ref = PageRef(number, seq, epoch, len(encoded), -(-len(stored) // CHUNK_BYTES))
                packed.blobs.update(zip(ref.keys(name), _chunks(stored), strict=True))
                packed.refs[name][number] = ref
        return packed

    def wrote(self, packed: PackedPages) -> None:
        """Notes that these pages are in the store, so that the next root may name them."""
        for name, pages in packed.refs.items():
            self.ahead[name].update(pages)

    def changed_pages(self, book: JobBook, seq: int, epoch: int) -> tuple[PageRefs, dict[str, bytes]]:
        """Returns all pages as they are to be saved, and the bytes of those that are not written yet. It encodes only what changed."""
        packed, stale = self.pack(book, self.changed(), seq, epoch), self._stale()
        refs: PageRefs = {
            name: {
                number: packed.refs[name].get(number) or _sure(self._written(name, number, stale))
                for number in section.members
            }
            for name, section in self.sections.items()
        }
        return refs, packed.blobs

    def _stale(self) -> int:
        return self.elections[-MOST_ELECTIONS].seq if len(self.elections) > MOST_ELECTIONS else 0

    def _written(self, name: Section, number: int, stale: int) -> PageRef | None:
        """Returns the page in the store that holds what the page holds now; None where it has to be written."""
        ref = self.ahead[name].get(number) or self.refs[name].get(number)
        if ref is None or self.sections[name].changed_at[number] > ref.seq or (name == "jobs" and ref.seq < stale):
            return None
        return ref

    def roots(self, refs: PageRefs) -> SectionRoots:
        return {
            name: SectionRoot(list(refs[name].values()), section.number, section.records, section.bytes)
            for name, section in self.sections.items()
        }

    def forget_elections(self, refs: PageRefs, seq: int) -> None:
        """Drops the elections that every page of `refs` has."""
        oldest = min((ref.seq for ref in refs["jobs"].values()), default=seq)
        self.elections = [one for one in self.elections if one.seq > oldest]

    def weight(self, refs: PageRefs) -> int:
        """Returns the most bytes that the records of all pages have: as they were saved, with the elections that they lack."""
        count = 0
        for name, pages in refs.items():
            members = self.sections[name].members
            for number, ref in pages.items():
                count += ref.size
                if name == "jobs" and self.elections:
                    count += self.lacking_bytes(ref, len(members.get(number, ())))
        return count

    def lacking_bytes(self, ref: PageRef, records: int) -> int:
        """Returns the most bytes that the elections which a saved page lacks add to its records."""
        return records * sum(len(one.event) + _LINE for one in self.lacking(ref))


_LINE = 32
"""The bytes that a line of history, the token and the times of an election take beside the event itself."""


def _sure(ref: PageRef | None) -> PageRef:
    assert ref is not None, "every page that changed was packed"
    return ref


def keys_of(refs: PageRefs) -> dict[str, None]:
    """Returns the keys of all pages that a root names."""
    return dict.fromkeys(key for name, pages in refs.items() for ref in pages.values() for key in ref.keys(name))


def _chunks(stored: bytes) -> Iterator[bytes]:
    for start in range(0, len(stored), CHUNK_BYTES):
        part = stored[start : start + CHUNK_BYTES]
        yield zlib.crc32(part).to_bytes(4, "little") + part


def joined(chunks: Iterable[bytes]) -> bytes | None:
    """Returns the bytes of a page as they are stored; None where a checksum is wrong."""
    parts: list[bytes] = []
    for chunk in chunks:
        if zlib.crc32(chunk[4:]).to_bytes(4, "little") != chunk[:4]:
            return None
        parts.append(chunk[4:])
    return b"".join(parts)


def compressed(stored: bytes) -> bytes:
    return stored if stored.startswith(_COMPRESSED) else zlib.compress(stored, LEVEL)


def unpacked(section: Section, stored: bytes, size: int) -> bytes:
    """Returns the bytes of the records of a page, `size` at most. Pages of the time before they were compressed are as they are. Raises `EngineVersionError`."""
    if not stored.startswith(_COMPRESSED):
        return stored
    inflating = zlib.decompressobj()
    try:
        encoded = inflating.decompress(stored, max(1, size))
    except zlib.error as error:
        raise EngineVersionError(f"a page of {section} cannot be read: {error}") from error
    if not inflating.eof:
        raise EngineVersionError(
            f"a page of {section} cannot be read: it has more than the {size} bytes that it should"
        )
    return encoded


def read_page(section: Section, encoded: bytes) -> dict[str, Any]:
    """Returns the records of a page, by their ids, in their order. Raises `EngineVersionError`."""
    try:
        records: dict[str, Any] = _DECODERS[section].decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineVersionError(f"a page of {section} cannot be read: {error}") from error
    return records


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
_DECODERS: dict[Section, msgspec.msgpack.Decoder[Any]] = {
    "jobs": msgspec.msgpack.Decoder(dict[str, JobInfo]),
    "archive": msgspec.msgpack.Decoder(dict[str, ArchivedJob]),
    "tombstones": msgspec.msgpack.Decoder(dict[str, Tombstone]),
}
