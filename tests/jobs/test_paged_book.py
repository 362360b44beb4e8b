"""The pages of a saved state and the tail of the journal give the same book as all of the journal, byte for byte."""

from __future__ import annotations

import sys
import zlib
from base64 import b85encode
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec, submission
from tests.jobs.random_commands import commands, follow
from tests.jobs.saved_books import Store, alike, fold, pack, same

from tenure.backoff import Retry
from tenure.errors import EngineVersionError
from tenure.jobs import JobBook, JobSettings
from tenure.jobs.decisions import Command, Outcome
from tenure.jobs.endings import ArchiveJob, CancelJob, ConfirmCleaned, ForgetOld
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.outages import EndOutage, HoldDependency
from tenure.jobs.paged_book import read_root, repaged
from tenure.jobs.settings import MAX_STATE_BUDGET
from tenure.jobs.state_pages import MOST_ELECTIONS, PAGE_RECORDS, PackedPages, PageRef, SavedElection, StatePages
from tenure.jobs.stored_pages import SECTIONS, unpacked


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
            alike(store.load(settings), store.load(settings, heads=False))


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
    assert len(desk.book.pages.changed()) == 2, "its page of jobs and that of tombstones have to be written"


def lines_of_a_saving(count: int) -> int:
    """Returns how many lines of Python decide what a saving writes, when one of so many pages changed."""
    pages = StatePages(0)
    jobs = pages.sections["jobs"]
    for number in range(count * PAGE_RECORDS):
        jobs.came(f"j-{number}", 1, 1)
    jobs.wrote([PageRef(number, 1, 1, 100) for number in range(count)])
    pages.elections = [SavedElection(2, b"elected")]
    nothing = PackedPages({name: {} for name in SECTIONS}, {})
    assert len(pages.keys(nothing)) == count
    lines = 0

    def traced(frame: object, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        jobs.changed("j-5", 3)
        changed = pages.changed()
        refs = pages.refs(nothing)
        roots, weight, keys = pages.roots(refs), pages.weight(refs), pages.keys(nothing)
        pages.forget_elections(refs, 3)
    finally:
        sys.settrace(before)
    assert (changed, len(roots["jobs"].pages), len(keys)) == ([("jobs", 0)], count, count)
    assert weight == count * (100 + PAGE_RECORDS * (len(b"elected") + 32))
    assert len(pages.elections) == 1
    return lines


def test_what_a_saving_asks_of_all_pages_takes_no_step_for_each() -> None:
    assert lines_of_a_saving(500) == lines_of_a_saving(10)
