"""Lists over packed jobs: they show what lists over objects show, and cost what they show, however many jobs there are (decision 0650)."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.jobs.desk import Desk, spec

from tenure.control.claims import ALL, Scope
from tenure.control.messages.jobs import JobList, ListJobs
from tenure.control.messages.tokens import CallerBounds
from tenure.jobs import JobBook, JobSettings
from tenure.jobs.endings import CancelJob
from tenure.jobs.formats import RaiseFormat
from tenure.jobs.job_records import JobGroup, JobRecords
from tenure.jobs.state_pages import PAGE_RECORDS
from tenure.jobs.states import JobState
from tenure.nodes import job_listing
from tenure.nodes.job_listing import manager_list

TENANTS = Scope((CallerBounds(labels={"tenant": "b"}),))
ASKED: list[dict[str, Any]] = [
    {},
    {"state": JobState.PENDING},
    {"state": JobState.CANCELLED, "queue": "fast"},
    {"queue": "slow"},
    {"function": "resize"},
    {"label": "tenant"},
    {"label": "tenant=b"},
    {"label": "tenant=nobody"},
    {"name": "job-1"},
    {"name": "nightly"},
    {"name": "nightly", "state": JobState.PENDING},
    {"arg": "size=3"},
    {"since": 2.0, "until": 4.5},
    {"since": 3.0, "label": "own"},
]


class Job(dict[str, Any]):
    """The fields in which the jobs of a test differ."""


JOBS = st.builds(
    Job,
    queue=st.sampled_from(["fast", "slow"]),
    function=st.sampled_from(["encode", "resize"]),
    tenant=st.sampled_from(["", "a", "b"]),
    own_label=st.booleans(),
    name=st.sampled_from(["", "nightly report"]),
    size=st.integers(0, 4),
    pause=st.sampled_from([0.0, 0.0, 1.0]),
    cancelled=st.booleans(),
)


def desk_of(jobs: list[Job]) -> Desk:
    desk = Desk(settings=JobSettings())
    desk.do(RaiseFormat())
    for number, job in enumerate(jobs):
        desk.at += job["pause"]
        labels = {"tenant": job["tenant"]} if job["tenant"] else {}
        labels |= {"own": str(number)} if job["own_label"] else {}
        work = spec("w", function=job["function"], arguments={"size": job["size"]})
        desk.submit(f"job-{number * 7 % 64}-{number}", work, queue=job["queue"], labels=labels, name=job["name"])
    for number, job in enumerate(jobs):
        if job["cancelled"]:
            desk.do(CancelJob(job_id=f"job-{number * 7 % 64}-{number}"))
    return desk


def all_pages(book: JobBook, within: Scope, **asked: Any) -> tuple[list[str], int]:
    shown: list[str] = []
    reply = JobList(jobs=(), known=0, now=0.0, next="")
    while True:
        reply = manager_list(book, 100.0, ListJobs(limit=3, after=reply.next, **asked), within=within)
        shown += [row.job_id for row in reply.jobs]
        # The place where a list goes on names no job that the list does not show: it may be one that the caller must not see.
        assert reply.next.partition(":")[2] in ("", *shown)
        if not reply.next:
            return shown, reply.known


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(jobs=st.lists(JOBS, min_size=1, max_size=40), unpacked=st.sets(st.integers(0, 39)), small=st.booleans())
def test_a_list_over_packed_jobs_is_that_over_objects(jobs: list[Job], unpacked: set[int], small: bool) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if small:  # many pages, with the edges of times and moments between them
            patched.setattr("tenure.jobs.state_pages.PAGE_RECORDS", 5)
        desk = desk_of(jobs)
        objects, records = JobBook(desk.settings), desk.book.jobs
        objects.replay(desk.journal)
        assert desk.book.pages is not None
        for number in list(desk.book.pages.sections["jobs"].members):
            records.pack(number)
        for number in unpacked & set(range(len(jobs))):
            assert desk.book.job(f"job-{number * 7 % 64}-{number}")
        for asked in ASKED:
            for within in (ALL, TENANTS):
                assert all_pages(desk.book, within, **asked) == all_pages(objects, within, **asked), asked


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(jobs=st.lists(JOBS, min_size=1, max_size=30), most=st.integers(0, 9))
def test_a_list_that_stops_early_names_the_place_where_it_goes_on(jobs: list[Job], most: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tenure.jobs.state_pages.PAGE_RECORDS", 4)
        patched.setattr(job_listing, "MOST_LOOKED", most)
        desk = desk_of(jobs)
        objects = JobBook(desk.settings)
        objects.replay(desk.journal)
        assert desk.book.pages is not None
        for number in list(desk.book.pages.sections["jobs"].members):
            desk.book.jobs.pack(number)
        for asked in ASKED:
            for within in (ALL, TENANTS):
                shown, known = all_pages(desk.book, within, **asked)
                assert shown == all_pages(objects, within, **asked)[0], asked
                assert known <= len(shown)


@functools.cache  # lists change nothing
def crowd(jobs: int) -> Desk:
    """Returns a desk with so many jobs of three tenants, all of them packed, each with a label of its own, one cancelled."""
    desk = Desk(settings=JobSettings())
    desk.do(RaiseFormat())
    for number in range(jobs):
        desk.at += 0.01
        labels = {"tenant": "abc"[number // 400 % 3], **({"order": str(number)} if number % 2 else {})}
        desk.submit(f"job-{number:06}", spec("w", function="encode"), labels=labels, queue=f"q{number // 200 % 2}")
    desk.do(CancelJob(job_id="job-000100"))
    assert desk.book.pages is not None
    for number in list(desk.book.pages.sections["jobs"].members):
        desk.book.jobs.pack(number)
    return desk


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, 2_400),
        ({"state": JobState.PENDING}, 2_399),
        ({"state": JobState.CANCELLED}, 1),
        ({"queue": "q1"}, 1_200),
        ({"function": "encode"}, 2_400),
        ({"function": "nobody"}, 0),
        ({"label": "order=77"}, 1),
        ({"name": "job-00120"}, 10),
        ({"since": 10.0, "until": 10.5}, 50),
        ({"after": "5.0:job-000499"}, 2_400),
    ],
)
def test_a_list_copies_what_it_shows_and_not_what_there_is(asked: Any, found: int) -> None:
    desk = crowd(2_400)
    before = desk.book.jobs.copies
    reply = manager_list(desk.book, desk.at, ListJobs(limit=20, **asked))
    assert reply.known == found
    assert len(reply.jobs) == min(found, 20)
    assert desk.book.jobs.copies - before <= 4 * PAGE_RECORDS
    assert desk.book.jobs.unpackings <= 1  # the one that was cancelled


def test_a_label_that_few_have_is_found_among_many_labels_without_a_look_at_the_others() -> None:
    desk = crowd(2_400)
    before = desk.book.jobs.copies
    reply = manager_list(desk.book, desk.at, ListJobs(limit=20, label="tenant=a", state=JobState.CANCELLED))
    assert [row.job_id for row in reply.jobs] == ["job-000100"]
    assert desk.book.jobs.copies - before <= 4 * PAGE_RECORDS


def test_a_prefix_of_ids_is_answered_for_by_the_first_and_last_id_of_most_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = crowd(2_400)
    looked = list[int]()
    packed_ids = JobRecords.packed_ids

    def counted(records: JobRecords, group: JobGroup) -> list[str]:
        looked.append(len(group.ids))
        return packed_ids(records, group)

    monkeypatch.setattr(JobRecords, "packed_ids", counted)
    first = next(iter(desk.book.jobs))
    nobody = manager_list(desk.book, desk.at, ListJobs(name="nobody"))
    assert (nobody.known, looked) == (0, [])
    (alone,) = manager_list(desk.book, desk.at, ListJobs(name=first)).jobs
    assert alone.job_id == first
    assert len(looked) <= 4, "of the one page that may have it"
