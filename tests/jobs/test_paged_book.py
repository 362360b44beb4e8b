"""The pages of a saved state and the tail of the journal give the same book as all of the journal, byte for byte."""

from __future__ import annotations

import zlib
from base64 import b85encode
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec, submission
from tests.jobs.random_commands import commands, follow

from tenure.backoff import Retry
from tenure.errors import EngineVersionError
from tenure.jobs import JobBook, JobSettings
from tenure.jobs.decisions import Command, Outcome
from tenure.jobs.endings import ArchiveJob, CancelJob, ConfirmCleaned, ForgetOld
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.outages import EndOutage, HoldDependency
from tenure.jobs.paged_book import PagedRestore, cut_pages, read_root, repaged
from tenure.jobs.settings import MAX_STATE_BUDGET
from tenure.jobs.state_pages import MOST_ELECTIONS, PAGE_RECORDS, PageCut, joined, keys_of, unpacked


class Store:
    """Holds what was saved of a book, as an engine does."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.cut: PageCut | None = None

    def save(self, book: JobBook, seq: int, epoch: int = 1) -> PageCut:
        cut = cut_pages(book, seq, epoch)
        self.blobs |= cut.blobs
        assert book.pages is not None
        book.pages.in_force(cut.refs)
        self.blobs = {key: self.blobs[key] for key in keys_of(cut.refs)}
        self.cut = cut
        return cut

    def write_ahead(self, book: JobBook, seq: int) -> None:
        """Writes every other page that changed, as a saving does that is not cut yet."""
        pages = book.pages
        assert pages is not None
        packed = pages.pack(book, pages.changed()[::2], seq, 1)
        self.blobs |= packed.blobs
        pages.wrote(packed)

    def load(self, settings: JobSettings | None = None) -> JobBook:
        assert self.cut is not None
        restore = PagedRestore(self.cut.root, settings)
        for section, ref in restore.wanted:
            encoded = joined(self.blobs[key] for key in ref.keys(section))
            assert encoded is not None
            restore.add(section, ref, encoded)
        return restore.book


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


@given(
    st.lists(st.tuples(commands, st.integers(0, 900)), max_size=60),
    st.sets(st.integers(1, 120), max_size=12),
    st.sets(st.integers(1, 120), max_size=12),
    st.sets(st.integers(1, 120), max_size=30),
    st.integers(0, 30),
    st.sampled_from((0, 3, 200)),
)
def test_pages_and_tail_are_the_whole_fold_after_every_prefix(
    steps: list[tuple[Command, int]],
    cuts: set[int],
    aheads: set[int],
    packings: set[int],
    raised_after: int,
    history_limit: int,
) -> None:
    settings = JobSettings(history_limit=history_limit, archive_after=0, state_budget=262_144)
    desk = Desk(settings=settings)
    follow(desk, steps[:raised_after])
    desk.do(RaiseFormat())
    follow(desk, steps[raised_after:])
    events = list(enumerate(desk.journal, 1))
    first = next(seq for seq, event in events if b"FormatRaised" in event)
    whole, packed, store, saved = JobBook(settings), JobBook(settings), Store(), 0
    for seq, event in events:
        fold(whole, [(seq, event)])
        fold(packed, [(seq, event)])
        if seq >= first:
            if seq in packings:
                pack(packed)
            same(packed, whole)
        if seq == first or (seq > first and seq in cuts):
            store.save(packed, seq)
            saved = seq
        elif saved and seq in aheads:
            store.write_ahead(packed, seq)
        if saved:
            same(fold(store.load(settings), events[saved:seq]), whole)


def raised(jobs: int, **options: object) -> Desk:
    desk = Desk(settings=JobSettings(archive_after=0))
    desk.do(RaiseFormat())
    for number in range(jobs):
        desk.do(CancelJob(job_id=f"t-{number}"))
        desk.submit(f"j-{number}", spec("w"))
    return desk


def test_a_saving_writes_what_changed_and_not_what_exists() -> None:
    desk, store = raised(10 * PAGE_RECORDS), Store()
    desk.book.position = 1
    assert len(store.save(desk.book, 1).blobs) == 20
    assert not store.save(desk.book, 2).blobs
    desk.book.position = 3
    desk.run("j-5", "w")
    cut = store.save(desk.book, 3)
    assert list(cut.blobs) == ["jobs/0/3.1/0"]
    assert len(cut.root) < 4_000
    same(store.load(desk.book.settings), desk.book)


def test_an_election_writes_no_page_and_reaches_every_job() -> None:
    desk, store = raised(3 * PAGE_RECORDS), Store()
    store.save(desk.book, 1)
    for number in range(2 * MOST_ELECTIONS):
        desk.book.position = 2 + number
        desk.elect(f"m-{number}")
        cut = store.save(desk.book, 2 + number)
        assert number >= MOST_ELECTIONS - 1 or not cut.blobs
        same(store.load(desk.book.settings), desk.book)
    assert desk.book.pages is not None
    assert len(desk.book.pages.elections) <= MOST_ELECTIONS


def test_an_outage_that_an_operator_declares_and_ends_is_saved_with_every_job_that_it_changes() -> None:
    desk, store = Desk(), Store()
    desk.do(RaiseFormat())
    for number in range(2):
        desk.submit(f"j-{number}", spec("w", retry=Retry(max_attempts=3, delay=100)))
        desk.run(f"j-{number}", "w")
        desk.fail(f"j-{number}", "w", waits_on="s3")
    held = HoldDependency(by="ada", name="s3", most_s=600.0, rate=1.0)
    for seq, command in enumerate((held, EndOutage(name="s3")), 1):
        store.save(desk.book, seq)
        desk.book.position = seq + 1
        assert desk.do(command).outcome is Outcome.ACCEPTED
        store.save(desk.book, seq + 1)
        same(store.load(desk.book.settings), desk.book)


def test_pages_of_which_nothing_is_left_are_no_longer_named() -> None:
    desk, store = raised(PAGE_RECORDS + 1), Store()
    store.save(desk.book, 1)
    desk.book.position = 2
    for number in range(PAGE_RECORDS):
        desk.do(CancelJob(job_id=f"j-{number}"))
        desk.do(ConfirmCleaned(job_id=f"j-{number}"))
        desk.do(ArchiveJob(job_id=f"j-{number}"))
    cut = store.save(desk.book, 2)
    assert list(cut.refs["jobs"]) == [1]
    assert len(desk.book.state.archive) == PAGE_RECORDS
    same(store.load(desk.book.settings), desk.book)
    desk.at += 8 * 86_400
    desk.book.position = 3
    desk.do(ForgetOld())
    assert not store.save(desk.book, 3).refs["archive"]
    same(store.load(desk.book.settings), desk.book)


def test_a_page_of_large_jobs_is_closed_early_and_a_grown_one_is_cut_into_chunks() -> None:
    desk = Desk()
    desk.do(RaiseFormat())
    large = {"text": "x" * 100_000}
    for number in range(6):
        desk.submit(f"j-{number}", spec("w", arguments=large))
    store = Store()
    cut = store.save(desk.book, 1)
    assert len(cut.refs["jobs"]) >= 3
    # Nothing bounds the sum of what a job of many workflows keeps. This text is one that cannot be compressed much.
    desk.book.job("j-0").reason = b85encode(Random(1).randbytes(11_000_000)).decode()
    desk.book.pages.sections["jobs"].changed("j-0", 2)  # type: ignore[union-attr]
    cut = store.save(desk.book, 2)
    assert cut.refs["jobs"][0].chunks == 3, "they are cut as they are stored, compressed"
    assert all(len(blob) <= 4_194_308 for blob in cut.blobs.values())
    assert store.load().snapshot() == desk.book.snapshot()


def test_pages_are_stored_compressed_and_those_of_the_time_before_are_read() -> None:
    desk = Desk()
    desk.do(RaiseFormat())
    for number in range(PAGE_RECORDS):
        desk.submit(f"j-{number}", spec("w", arguments={"path": f"s3://bucket/{number}.mov"}))
    store = Store()
    (ref,) = store.save(desk.book, 1).refs["jobs"].values()
    ((key, blob),) = store.blobs.items()
    assert len(blob) < ref.size / 10
    plain = zlib.decompress(blob[4:])
    assert len(plain) == ref.size
    store.blobs[key] = zlib.crc32(plain).to_bytes(4, "little") + plain
    same(store.load(desk.book.settings), desk.book)


def test_a_page_that_is_larger_than_its_root_says_is_refused_unread() -> None:
    large = zlib.compress(bytes(10_000_000))
    with pytest.raises(EngineVersionError, match="more than the 1000 bytes"):
        unpacked("jobs", large, 1_000)
    with pytest.raises(EngineVersionError, match="cannot be read"):
        unpacked("jobs", large[:2] + b"damaged", 1_000)


@given(st.lists(st.tuples(commands, st.integers(0, 900)), max_size=40))
def test_the_measured_size_is_never_too_low(steps: list[tuple[Command, int]]) -> None:
    desk = Desk()
    desk.do(RaiseFormat())
    follow(desk, steps)
    store = Store()
    for seq in (1, 2, 3):
        store.save(desk.book, seq)
        total = desk.book.size.total
        assert total >= len(desk.book.snapshot())
        restored = store.load()
        assert restored.size.total >= len(desk.book.snapshot())
        desk.book.position = seq + 1
        desk.elect(f"m-{seq}")


def test_a_submission_of_the_same_id_after_it_was_forgotten_keeps_its_place() -> None:
    desk, store = raised(3), Store()
    store.save(desk.book, 1)
    desk.book.position = 2
    for act in (CancelJob(job_id="j-0"), ConfirmCleaned(job_id="j-0"), ArchiveJob(job_id="j-0")):
        desk.do(act)
    desk.at += 8 * 86_400
    desk.do(ForgetOld())
    desk.submit("j-0", *submission("j-0", spec("w")).workflows)
    store.save(desk.book, 2)
    assert list(store.load(desk.book.settings).jobs) == ["j-1", "j-2", "j-0"]


def test_a_state_in_pages_may_be_larger_than_a_snapshot() -> None:
    desk = Desk(settings=JobSettings(state_budget=4 * MAX_STATE_BUDGET))
    assert desk.book.budget == MAX_STATE_BUDGET
    desk.do(RaiseFormat())
    assert desk.book.budget == 4 * MAX_STATE_BUDGET
    assert desk.do(RaiseFormat()).outcome is Outcome.ALREADY


def test_pages_of_another_layout_are_not_taken_for_ours() -> None:
    desk, store = raised(3), Store()
    store.save(desk.book, 1)
    assert desk.book.pages is not None
    cut = repaged(desk.book.snapshot(), 9, 2)
    other = read_root(cut.root)
    desk.book.pages.adopt(other.sections, other.layout)
    assert not any(desk.book.pages.refs.values())
