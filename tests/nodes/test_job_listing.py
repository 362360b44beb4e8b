"""Lists of jobs: filters, and pages that neither repeat nor lose a job while others come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.bound_checks import check
from tenure.control.messages.jobs import ListJobs
from tenure.errors import ConfigurationError, LimitError
from tenure.jobs import JobBook, JobSubmission, decide
from tenure.jobs.deadlines import TakeLead
from tenure.jobs.endings import CancelJob
from tenure.jobs.model import WorkflowSpec
from tenure.jobs.states import JobState
from tenure.jobs.submission import SubmitJob
from tenure.nodes.job_listing import manager_list


def book_of(*jobs: tuple[str, float, dict[str, Any]]) -> JobBook:
    book = JobBook()
    book.apply_all(decide(book, TakeLead(epoch=1, leader="m@x"), 0.0).events)
    for job_id, at, rest in jobs:
        add(book, job_id, at, **rest)
    return book


def add(book: JobBook, job_id: str, at: float, *, function: str = "encode", **rest: Any) -> None:
    submission = JobSubmission(job_id=job_id, workflows=(WorkflowSpec(name="w", function=function),), **rest)
    book.apply_all(decide(book, SubmitJob(submission=submission), at).events)


def ids(book: JobBook, **asked: Any) -> list[str]:
    return [row.job_id for row in manager_list(book, 100.0, ListJobs(**asked)).jobs]


BOOK = book_of(
    ("a", 1.0, {"queue": "fast", "name": "nightly report", "labels": {"team": "x"}}),
    ("b", 2.0, {"function": "resize", "labels": {"team": "y", "env": "prod"}}),
    ("c", 3.0, {"queue": "fast"}),
    ("nightly-d", 4.0, {}),
)
BOOK.apply_all(decide(BOOK, CancelJob(job_id="c"), 5.0).events)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["nightly-d", "c", "b", "a"]),
        ({"queue": "fast"}, ["c", "a"]),
        ({"state": JobState.CANCELLED}, ["c"]),
        ({"state": JobState.PENDING, "queue": "fast"}, ["a"]),
        ({"function": "resize"}, ["b"]),
        ({"name": "nightly"}, ["nightly-d", "a"]),
        ({"label": "team"}, ["b", "a"]),
        ({"label": "team=y"}, ["b"]),
        ({"label": "team="}, []),
        ({"since": 2.0, "until": 4.0}, ["c", "b"]),
        ({"queue": "nobody"}, []),
    ],
)
def test_each_filter_leaves_what_was_asked_for(asked: Any, found: list[str]) -> None:
    assert ids(BOOK, **asked) == found
    assert manager_list(BOOK, 0.0, ListJobs(**asked)).known == len(found)


@given(
    times=st.lists(st.sampled_from([1.0, 1.0, 2.0, 2.5]), min_size=1, max_size=30),
    limit=st.integers(1, 7),
    newcomers=st.integers(0, 3),
    archived=st.sets(st.integers(0, 29)),
)
def test_pages_show_every_job_that_stays_exactly_once_whatever_comes_and_goes(
    times: list[float], limit: int, newcomers: int, archived: set[int]
) -> None:
    names = [f"job-{(n * 7) % 31:02}" for n in range(len(times))]
    book = book_of(*((name, at, {}) for name, at in zip(names, sorted(times), strict=True)))
    before, seen, after, page = set(book.jobs), [], "", 0
    gone: set[str] = set()
    while True:
        reply = manager_list(book, 100.0, ListJobs(after=after, limit=limit))
        seen += [row.job_id for row in reply.jobs]
        if not reply.next:
            break
        after = reply.next
        for _ in range(newcomers):
            add(book, f"new-{len(book.jobs)}-{page}", 3.0 + page)
        for number in list(archived)[page : page + 1]:
            if number < len(names):
                book.jobs.pop(names[number], None)
                gone.add(names[number])
        page += 1
    assert len(seen) == len(set(seen))
    assert before - gone <= set(seen) <= before


@pytest.mark.parametrize("after", ["x", "1.5", ":a", "nan:a", ":"])
def test_what_is_no_page_is_refused(after: str) -> None:
    with pytest.raises(ConfigurationError, match="is no page"):
        ids(BOOK, after=after)


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_page_has_a_bounded_size(limit: int) -> None:
    with pytest.raises(LimitError, match="limit"):
        check(ListJobs(limit=limit))
