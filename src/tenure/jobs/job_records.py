"""Holds the records of all jobs of a book: a few as objects, the others packed, a page at a time (decision 0581).

A job that waits, sleeps or has ended costs a few dozen bytes, and not the three kilobytes of its object. `get` and `[]` unpack a record and
keep it as an object, because folds change what they get. `look` and `values` unpack a copy for a reader, which must not change it. So folds use
the first two, and whatever goes over many jobs uses the others.

How a record is held is no part of the state: it differs between nodes, and no fold reads it.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from tenure.jobs.deadlines import see_election
from tenure.jobs.fold import election_bytes, note_election
from tenure.jobs.job_kinds import KindTable
from tenure.jobs.model import JobInfo
from tenure.jobs.packed_pages import PackedPage, SeenElection
from tenure.jobs.page_heads import PageHead, head_of
from tenure.jobs.state_pages import PagedSection
from tenure.jobs.states import JobState, WorkflowState
from tenure.jobs.stored_pages import LEVEL, SavedRecords, unpacked

OBJECTS = 4_096
"""The number of objects up to which nothing is packed. Each takes about 3 kB."""
PACKED_AT_ONCE = 2
"""The pages that are packed before objects are counted again: about a millisecond."""
MOST_PACKINGS = 4
"""With `PACKED_AT_ONCE`, more jobs than the 200 commands of one entry can bring."""
OPENED = 4
"""The pages of which the unpacked bytes are kept. Jobs of one page are used at one time."""
HEADS = 256
"""The heads that are kept for the next saving, of more jobs than come between two."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(JobInfo).decode
_decode_page = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode


class JobGroup(NamedTuple):
    """Some jobs that came one after the other."""

    ids: list[str] | dict[str, Any]
    """Their ids, oldest first."""
    packed: PackedPage | None
    """Holds those of them that are packed."""


class JobRecords(MutableMapping[str, JobInfo]):
    """Maps the id of each job to its record, in the order in which the jobs came."""

    def __init__(self, records: dict[str, JobInfo]) -> None:
        self._records: dict[str, Any] = records
        """Maps each job to its object, or to the packed page that holds it."""
        self._objects: dict[str, JobInfo] = dict(records)
        self._section: PagedSection | None = None
        self._loose: dict[int, int] = {}
        """Maps each page with objects to the number of them that could not be packed at the last try, least lately used first."""
        self._busy = 0
        """The sum of them: objects that need not be tried again."""
        self._opened: dict[PackedPage, dict[str, msgspec.Raw]] = {}
        self.packed_pages: dict[int, PackedPage] = {}
        """Maps each page of which something is packed to that part of it."""
        self._kinds = KindTable()
        self._heads: dict[PackedPage, bytes] = {}
        """The heads of pages that were packed before they were saved."""
        self.elections: list[SeenElection] = []
        self.states: Counter[JobState] = Counter()
        """The states of the packed jobs."""
        self.packed_bytes = self.unpacked_bytes = 0
        """The bytes of all packed pages, and those that their records would have in a snapshot."""
        self.election_bytes = 0
        """The bytes of the elections with which the histories of packed live jobs end."""
        self.unpackings = self.copies = 0
        """How often a packed record became an object, and how often one was copied: what tests count."""

    def attach(self, section: PagedSection) -> None:
        """From here on jobs have pages, and can be packed."""
        self._section = section
        section.packed_in = self._packed_in
        self._loose = dict.fromkeys(section.members, 0)

    def _packed_in(self, job_id: str) -> int | None:
        found = self._records.get(job_id)
        return None if found is None or type(found) is JobInfo else found.number

    # Folds use these

    def get(self, job_id: str, default: None = None) -> JobInfo | None:  # type: ignore[override]
        found = self._records.get(job_id)
        return found if found is None or type(found) is JobInfo else self._unpack(job_id, found)

    def __getitem__(self, job_id: str) -> JobInfo:
        found = self._records[job_id]
        return found if type(found) is JobInfo else self._unpack(job_id, found)

    def __setitem__(self, job_id: str, info: JobInfo) -> None:
        self._records[job_id] = self._objects[job_id] = info

    def placed(self, job_id: str) -> None:
        """Notes that a job was put into its page, or can be packed now although it could not before."""
        if self._section is not None and (number := self._section.page(job_id)) is not None:
            self._busy -= self._loose.pop(number, 0)
            self._loose[number] = 0

    def __delitem__(self, job_id: str) -> None:
        found = self._records[job_id]
        if type(found) is not JobInfo:
            self._unpack(job_id, found)
        del self._records[job_id], self._objects[job_id]

    # Readers use these

    def look(self, job_id: str) -> JobInfo | None:
        """Returns the job, or a copy that nobody may change."""
        found = self._records.get(job_id)
        return found if found is None or type(found) is JobInfo else self._copy(job_id, found)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._records)

    def values(self) -> ValuesView[JobInfo]:
        return LookedAt(self)

    def objects(self) -> Iterator[JobInfo]:
        """Yields the jobs that are not packed, in the order of all jobs. A job that runs, or whose attempt failed on something that is down, never is."""
        return (found for found in self._records.values() if type(found) is JobInfo)

    def groups(self) -> Iterator[JobGroup]:
        """Yields all jobs in groups, newest first: the jobs of each page, or all of them where there are no pages."""
        if self._section is None:
            yield JobGroup(self._records, None)
            return
        for number, members in reversed(self._section.members.items()):
            yield JobGroup(members, self.packed_pages.get(number))

    def objects_of(self, group: JobGroup) -> Iterator[JobInfo]:
        """Yields the jobs of a group that are not packed, newest first."""
        if group.packed is None or group.packed.left < len(group.ids):
            records = self._records
            yield from (info for job_id in reversed(group.ids) if type(info := records[job_id]) is JobInfo)

    def packed_ids(self, group: JobGroup) -> list[str]:
        """Returns the ids of the jobs of a group that are packed, newest first."""
        records, page = self._records, group.packed
        return [job_id for job_id in reversed(group.ids) if records[job_id] is page] if page is not None else []

    def may_be_in(self, job_id: str, states: Container[JobState]) -> bool:
        """Returns False when a job is in none of these states. It unpacks nothing, so for a packed job True means only that one of its page is."""
        found = self._records.get(job_id)
        if found is None or type(found) is JobInfo:
            return found is not None and found.state in states
        return any(kind.state in states for kind in found.summary.kinds)

    def by_state(self) -> Counter[JobState]:
        """Counts all jobs by their state. It looks at objects only."""
        return self.states + Counter(info.state for info in self._objects.values())

    def whole(self) -> dict[str, Any]:
        """Returns all records for a snapshot."""
        return {job_id: self._raw(job_id, found) for job_id, found in self._records.items()}

    # Packing

    @property
    def crowded(self) -> bool:
        return len(self._objects) - self._busy > OBJECTS and self._section is not None

    @property
    def packed(self) -> int:
        """The number of packed jobs."""
        return len(self._records) - len(self._objects)

    @property
    def packed_live(self) -> int:
        """The number of packed jobs that have not ended."""
        return sum(count for state, count in self.states.items() if not state.terminal)

    def pack_if_crowded(self) -> None:
        """Packs the pages whose objects came first, while there are too many objects. The others have their turn with later calls."""
        for _ in range(MOST_PACKINGS):
            if not self.crowded:
                return
            for number in list(islice(self._loose, PACKED_AT_ONCE)):
                self.pack(number)

    def pack(self, number: int) -> None:
        """Packs the jobs of a page, but those that run, and those that somebody is using."""
        assert self._section is not None, "jobs have no pages yet"
        self._busy -= self._loose.pop(number, 0)
        members, records = self._section.members.get(number), self._records
        if not members:
            return
        chosen: dict[str, msgspec.Raw] = {}
        busy = 0
        for job_id in members:
            found = records[job_id]
            # A reader that waits for something and holds the record must find there what later folds change.
            if type(found) is JobInfo and (_is_busy(found) or _references(records, job_id) > _UNUSED + 1):
                busy += 1
            else:
                chosen[job_id] = self._raw(job_id, found)
        if busy:
            self._loose[number] = busy
            self._busy += busy
        if chosen:
            self._hold(number, chosen)

    def _hold(self, number: int, chosen: dict[str, msgspec.Raw]) -> None:
        encoded, packed = _encode(chosen), self.packed_pages.get(number)
        fresh = [info for job_id in chosen if type(info := self._records[job_id]) is JobInfo]
        summary = self._kinds.summary(fresh, packed.summary if packed is not None else None)
        # Now it takes no decoding. Where the page is saved already, nobody asks for it.
        section = self._section
        whole = section is not None and number in section.stale and len(fresh) == len(section.members[number])
        head = head_of(fresh, self._kinds, summary) if whole else None
        del fresh
        compressed, seen = zlib.compress(encoded, LEVEL), len(self.elections)
        page = PackedPage(number, compressed, len(encoded), chosen, len(chosen), seen, summary)
        assert self._section is not None, "jobs have no pages yet"
        if head is not None:
            self._heads[page] = head
            if len(self._heads) > HEADS:
                del self._heads[next(iter(self._heads))]
        for job_id in chosen:
            before = self._records[job_id]
            if type(before) is JobInfo:
                del self._objects[job_id]
                self.states[before.state] += 1
                self.election_bytes += election_bytes(before)
            else:
                self._leave(before)
            self._records[job_id] = page
            self._section.page_of.pop(job_id, None)
        self.packed_pages[number] = page
        self._count(page)

    def _count(self, page: PackedPage) -> None:
        self.packed_bytes += len(page.bytes)
        self.unpacked_bytes += page.share * page.left

    def admit(self, number: int, records: Mapping[str, JobInfo], compressed: bytes, size: int, seen: int) -> None:
        """Takes the records of a page of `size` bytes as it was saved. `records` have seen all elections, and `compressed` the first `seen`."""
        kept = {job_id: info for job_id, info in records.items() if _is_busy(info)}
        packed = [info for job_id, info in records.items() if job_id not in kept] if kept else list(records.values())
        summary = self._kinds.summary(packed)
        page = PackedPage(number, compressed, size, records.keys(), len(packed), seen, summary)
        self._records.update(dict.fromkeys(records, page))
        for job_id, info in kept.items():
            self[job_id] = info
            if self._section is not None:
                self._section.page_of[job_id] = number
        self.states.update([info.state for info in packed])
        self.election_bytes += sum(map(election_bytes, packed))
        if kept:
            self._loose[number] = len(kept)
            self._busy += len(kept)
        if page.left:
            self.packed_pages[number] = page
            self._count(page)

    def admit_waiting(self, number: int, head: PageHead, compressed: bytes, size: int, seen: int) -> int:
        """Takes the records of a page by its head, and decodes none of them. Returns the bytes of their histories."""
        ids = head.ids
        page = PackedPage(number, compressed, size, ids, len(ids), seen, self._kinds.summary_of(head))
        self._records.update(dict.fromkeys(ids, page))
        for kind, count in head.kinds:
            self.states[kind.state] += count
        lines = [line for _, line in self.elections[seen:] if line]
        # Of elections in a row a history keeps the newest.
        elected = len(ids) * len(lines[-1]) if lines else head.elected
        self.election_bytes += elected
        self.packed_pages[number] = page
        self._count(page)
        return head.history - head.elected + elected

    def saved(self, number: int, members: Sequence[str]) -> SavedRecords:
        """Returns the bytes with which a page is saved."""
        page = self.packed_pages.get(number)
        if page is not None and page.left == page.count == len(members) and page.seen == len(self.elections):
            head = self._heads.pop(page, None)  # it holds them all, as they are
            return SavedRecords(page.bytes, page.size, self._head(members) if head is None else head)
        encoded = _encode({job_id: self._raw(job_id, self._records[job_id]) for job_id in members})
        return SavedRecords(zlib.compress(encoded, LEVEL), len(encoded), self._head(members))

    def _head(self, members: Sequence[str]) -> bytes:
        return head_of(map(self._seen, members), self._kinds)

    def _seen(self, job_id: str) -> JobInfo:
        found = self._records[job_id]
        return found if type(found) is JobInfo else self._copy(job_id, found)

    def saw_election(self, at: float, line: bytes) -> tuple[int, int]:
        """Has the packed jobs see an election. Returns by how many bytes it changed their histories, and the number of lines that were added."""
        live = self.packed_live
        self.elections.append(SeenElection(at, line))
        if not line:
            return 0, 0
        change = live * len(line) - self.election_bytes
        self.election_bytes = live * len(line)
        return change, live

    # Unpacking

    def _raw(self, job_id: str, found: Any) -> msgspec.Raw:
        if type(found) is JobInfo:
            return msgspec.Raw(_encode(found))
        if found.seen == len(self.elections):
            return self._open(found)[job_id]
        return msgspec.Raw(_encode(self._copy(job_id, found)))

    def _open(self, page: PackedPage) -> dict[str, msgspec.Raw]:
        found = self._opened.get(page)
        if found is None:
            found = self._opened[page] = _decode_page(unpacked("jobs", page.bytes, page.size).encoded)
            if len(self._opened) > OPENED:
                del self._opened[next(iter(self._opened))]
        return found

    def _copy(self, job_id: str, page: PackedPage) -> JobInfo:
        self.copies += 1
        info = _decode(self._open(page)[job_id])
        self.elect(info, page.seen)
        return info

    def elect(self, info: JobInfo, seen: int) -> None:
        """Applies the elections that a record of the first `seen` lacks."""
        if seen < len(self.elections) and not info.state.terminal:
            for at, line in self.elections[seen:]:
                see_election(info, at)
                if line:
                    note_election(info, line)

    def _unpack(self, job_id: str, page: PackedPage) -> JobInfo:
        assert self._section is not None, "nothing is packed before there are pages"
        info, members = self._copy(job_id, page), self._section.members[page.number]
        # Indexes keep the id that is in the record. Without this each of a million ids would be in memory twice.
        msgspec.structs.force_setattr(info.job.submission, "job_id", members[members.index(job_id)])
        self._section.page_of[info.id] = page.number
        self.unpackings += 1
        self._records[job_id] = self._objects[info.id] = info
        self.states[info.state] -= 1
        self.election_bytes -= election_bytes(info)
        page.summary.left(info)
        self._leave(page)
        self.placed(job_id)
        return info

    def _leave(self, page: PackedPage) -> None:
        page.left -= 1
        self.unpacked_bytes -= page.share
        if not page.left:
            self.packed_bytes -= len(page.bytes)
            self._opened.pop(page, None)
            if self.packed_pages.get(page.number) is page:
                del self.packed_pages[page.number]


class LookedAt(ValuesView[JobInfo]):
    """All records, for readers: copies of those that are packed."""

    _mapping: JobRecords

    def __iter__(self) -> Iterator[JobInfo]:
        return (info for job_id in self._mapping if (info := self._mapping.look(job_id)) is not None)


def _references(records: Mapping[str, Any], job_id: str) -> int:
    return sys.getrefcount(records[job_id])


_UNUSED = _references({"": object()}, "") + 1
"""The references to a record that nobody uses: one from each of the two dictionaries."""


def _is_busy(info: JobInfo) -> bool:
    """Returns True for a job that reports and outages will ask for soon."""
    if info.state.terminal:
        return False
    for one in info.workflows.values():  # noqa: SIM110 - a generator takes twice as long, and a start asks this of every job
        if one.state is WorkflowState.RUNNING or one.held_on:
            return True
    return False
