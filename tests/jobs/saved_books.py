"""Saves books in pages and reads them back, as an engine's store would have them, and compares what was read."""

from __future__ import annotations

from tenure.jobs import JobBook, JobSettings
from tenure.jobs.paged_book import PagedRestore, cut_pages
from tenure.jobs.state_pages import PageCut
from tenure.jobs.stored_pages import joined, parted


class Store:
    """Holds what was saved of a book, as an engine does."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.cut: PageCut | None = None

    def save(self, book: JobBook, seq: int, epoch: int = 1) -> PageCut:
        cut = cut_pages(book, seq, epoch)
        self.blobs |= cut.blobs
        assert book.pages is not None
        book.pages.wrote(cut.packed)
        self.blobs = {key: self.blobs[key] for key in cut.named}
        self.cut = cut
        return cut

    def write_ahead(self, book: JobBook, seq: int) -> None:
        """Writes every other page that changed, as a saving does that is not cut yet."""
        pages = book.pages
        assert pages is not None
        packed = pages.pack(book, pages.changed()[::2], seq, 1)
        self.blobs |= packed.blobs
        pages.wrote(packed)

    def load(self, settings: JobSettings | None = None, *, heads: bool = True) -> JobBook:
        """Returns the book that was saved; without `heads` from the records alone."""
        assert self.cut is not None
        restore = PagedRestore(self.cut.root, settings)
        for section, ref in restore.wanted:
            encoded = joined(self.blobs[key] for key in ref.keys(section))
            assert encoded is not None
            restore.add(section, ref, encoded if heads else parted(encoded)[0])
        return restore.book

    @property
    def heads(self) -> int:
        """The number of pages with a head."""
        return sum(bool(parted(joined([blob]) or b"")[1]) for blob in self.blobs.values())


def fold(book: JobBook, tail: list[tuple[int, bytes]]) -> JobBook:
    for seq, event in tail:
        book.position = seq
        book.replay((event,))
    return book


def pack(book: JobBook) -> None:
    """Packs every job that may be packed."""
    assert book.pages is not None
    for number in list(book.pages.sections["jobs"].members):
        book.jobs.pack(number)


def same(book: JobBook, other: JobBook) -> None:
    assert book.snapshot() == other.snapshot()
    assert book.jobs.by_state() == other.jobs.by_state()
    assert book.attended == other.attended
    assert book.keys == other.keys
    assert book.oldest_archived(1_000) == other.oldest_archived(1_000) == list(book.state.archive)
    assert book.size.history == other.size.history
    assert book.size.shares == other.size.shares
    assert book.pages is not None
    assert other.pages is not None
    for name, section in book.pages.sections.items():
        twin = other.pages.sections[name]
        ids = [one for members in section.members.values() for one in members]
        assert None not in map(section.page, ids)
        assert {name: section.page(name) for name in ids} == {name: twin.page(name) for name in ids}
        assert section.members == twin.members
        assert (section.number, section.records, section.bytes) == (twin.number, twin.records, twin.bytes)


def alike(book: JobBook, other: JobBook) -> None:
    """Fails unless two books that were read back have the same indexes, one by the heads of its pages and one by their records."""
    same(book, other)
    assert indexes(book) == indexes(other)


def indexes(book: JobBook) -> dict[str, object]:
    resting = [(key, book.resting.due(key)) for key in book.resting.keys()]  # noqa: SIM118 - it is no dictionary
    jobs = book.jobs
    return {
        "queued": {lane: list(waiting.items()) for lane, waiting in book.queued.items()},
        "needs": book.queued.counts,
        "resting": resting,
        "order of resting": sorted((one.due, one.place, one.ticket, one.key) for one in book.resting._heap),
        "in queues": book.in_queue,
        "turns": book.turns.load,
        "unique": book.unique.by_name,
        "running": book.on_worker,
        "paused": book.paused,
        "ended": list(book.ended),
        "order of attended": list(book.attended),
        "size": (book.size.total, jobs.packed_bytes, jobs.unpacked_bytes, jobs.election_bytes),
        "summaries": {
            number: (page.summary.kinds, page.summary.tags, page.summary.first_at, page.summary.last_at)
            for number, page in jobs.packed_pages.items()
        },
        "ids": {
            number: (page.first_id, page.last_id, page.left, page.seen) for number, page in jobs.packed_pages.items()
        },
    }
