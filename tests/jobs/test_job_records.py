"""Most jobs of a book are packed: what that costs in bytes and unpackings, and that nobody can tell but by the cost."""

from __future__ import annotations

import sys
import time

import pytest
from tests.jobs.desk import Desk, spec

from tenure.control.messages.jobs import ListJobs
from tenure.jobs import JobBook, JobSettings, job_records
from tenure.jobs.attempts import RecordDispatched
from tenure.jobs.budget import claimed
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.job_records import PACKED_AT_ONCE
from tenure.jobs.model import ArchivedJob
from tenure.jobs.paged_book import PagedRestore, cut_pages
from tenure.jobs.settings import PAGED_STATE_BUDGET
from tenure.jobs.state_pages import PAGE_RECORDS
from tenure.jobs.states import JobState
from tenure.jobs.stored_pages import joined
from tenure.nodes.job_listing import manager_list

OBJECTS = 256


@pytest.fixture(autouse=True)
def few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_records, "OBJECTS", OBJECTS)


def queued(jobs: int, **settings: object) -> Desk:
    """Returns a desk with so many jobs in the engine that nobody has started."""
    desk = Desk(settings=JobSettings(**settings))  # type: ignore[arg-type]
    desk.do(RaiseFormat())
    add(desk, 0, jobs)
    return desk


def add(desk: Desk, first: int, last: int) -> None:
    for number in range(first, last):
        desk.at += 0.01
        desk.submit(f"job-{number:08}", spec("w", arguments={"path": f"s3://bucket/a/{number}.mov", "quality": 7}))
        desk.do(RecordDispatched(job_id=f"job-{number:08}", workflow="w", attempt=1))


def objects(desk: Desk) -> int:
    return len(desk.book.jobs) - desk.book.jobs.packed


def test_a_queued_job_costs_a_few_dozen_bytes_however_many_there_are() -> None:
    desk = queued(1_000)
    jobs, first = desk.book.jobs, desk.book.jobs.packed_bytes / desk.book.jobs.packed
    add(desk, 1_000, 4_000)
    assert objects(desk) <= OBJECTS + PAGE_RECORDS * PACKED_AT_ONCE
    assert jobs.packed_bytes / jobs.packed < 120
    assert jobs.packed_bytes / jobs.packed < 1.1 * first
    assert jobs.unpackings == 0  # a submission asks for no job but its own


def index_bytes(book: JobBook) -> float:
    """Returns the bytes of the indexes over all jobs, for each job, and those of the ids that they hold, each as often as it is in memory."""
    assert book.pages is not None
    section = book.pages.sections["jobs"]
    held = [key for waiting in book.queued.values() for key, _ in waiting.items()]
    tables = [
        book.jobs._records,
        section.page_of,
        *section.members.values(),
        *[one._held for one in book.queued.values()],
    ]
    ids = {id(one): one for one in (*book.jobs, *(name for names in section.members.values() for name in names))}
    ids.update({id(job_id): job_id for job_id, _ in held})
    return (sum(map(sys.getsizeof, tables)) + sum(map(sys.getsizeof, ids.values()))) / len(book.jobs)


def test_the_indexes_of_a_queued_job_take_little_and_hold_its_id_once_on_whatever_way_it_came() -> None:
    desk = queued(4_000)
    assert index_bytes(desk.book) < 61 + 110, "an id of 12 characters takes 61 bytes"
    cut = cut_pages(desk.book, 1, 1)
    reading = PagedRestore(cut.root, desk.settings)
    for section, ref in reading.wanted:
        reading.add(section, ref, joined(cut.blobs[key] for key in ref.keys(section)) or b"")
    assert index_bytes(reading.book) < 61 + 110, "after a cold start"
    for number in range(1_000):
        desk.run(f"job-{number:08}", "w")
        desk.fail(f"job-{number:08}", "w")
        desk.do(RecordDispatched(job_id=f"job-{number:08}", workflow="w", attempt=2))
    assert desk.book.jobs.unpackings >= 900
    assert index_bytes(desk.book) < 61 + 110, "after a second attempt of packed jobs"


def test_a_standby_that_folds_whole_entries_packs_as_fast_as_jobs_come() -> None:
    desk = queued(2_000)
    book = JobBook(desk.settings)
    for start in range(0, len(desk.journal), 400):
        book.replay(desk.journal[start : start + 400])
    assert len(book.jobs) - book.jobs.packed <= OBJECTS + PAGE_RECORDS
    assert book.snapshot() == desk.book.snapshot()


def test_a_million_small_jobs_have_room_in_the_usual_budget() -> None:
    desk = queued(1_000)
    cut_pages(desk.book, 1, 1)  # a saving measures
    before = claimed(desk.book)
    add(desk, 1_000, 4_000)
    cut_pages(desk.book, 2, 1)
    assert (claimed(desk.book) - before) / 3_000 * 1_000_000 < PAGED_STATE_BUDGET * 3 / 4, "it would even alarm"


def test_readers_and_elections_unpack_nothing() -> None:
    desk = queued(2_000)
    jobs = desk.book.jobs
    page = manager_list(desk.book, desk.at, ListJobs(limit=2_000))
    assert [row.job_id for row in page.jobs] == [f"job-{number:08}" for number in reversed(range(2_000))]
    desk.elect("m-2")
    desk.elect("m-3")
    assert jobs.by_state() == {JobState.PENDING: 2_000}
    assert (jobs.unpackings, objects(desk) <= 2 * OBJECTS) == (0, True)
    looked = jobs.look("job-00000005")
    assert looked is not None
    assert looked.timeout_tracking.timeout_fence_token == 3
    assert jobs["job-00000005"] == looked
    assert jobs.unpackings == 1


def test_a_job_that_runs_or_that_somebody_holds_stays_an_object() -> None:
    desk = queued(2 * PAGE_RECORDS)
    held = desk.book.job("job-00000001")
    desk.run("job-00000003", "w")
    for number in (0, 1):
        desk.book.jobs.pack(number)
    assert objects(desk) == 2
    desk.do(RecordDispatched(job_id="job-00000001", workflow="w", attempt=1))
    assert desk.book.jobs["job-00000001"] is held
    desk.result("job-00000003", "w")
    del held
    desk.book.jobs.pack(0)
    assert objects(desk) == 0
    assert desk.book.jobs["job-00000003"].state is JobState.COMPLETED


def test_jobs_that_run_are_not_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_records, "OBJECTS", 10)
    desk = queued(PAGE_RECORDS)
    for number in range(PAGE_RECORDS):
        desk.run(f"job-{number:08}", "w")
    desk.book.jobs.pack(0)
    assert objects(desk) == PAGE_RECORDS
    assert not desk.book.jobs.crowded
    for number in range(PAGE_RECORDS // 2):
        desk.result(f"job-{number:08}", "w")
    assert objects(desk) < PAGE_RECORDS


def test_the_oldest_of_many_archived_ids_is_found_at_once_however_many_have_left() -> None:
    """A dictionary is looked through from its front: where 300,000 have left it, each look for its oldest entry took 0.2 ms."""
    book = JobBook()
    record = ArchivedJob(state=JobState.COMPLETED, ended_at=0.0, archived_at=0.0, digest="d")
    book.remember({f"j-{number}": record for number in range(320_000)})
    for job_id in book.oldest_archived(300_000):
        book.drop_archived(job_id)
    begun = time.process_time()
    for _ in range(10_000):
        assert book.oldest_archived(1) == ["j-300000"]
        assert not book.holds_older_than(-1.0)
    assert time.process_time() - begun < 0.5
