"""Lists jobs, with filters, in pages that stay where they are while jobs come and go. Pure: from the book to the reply.

Jobs are in the order of (time of submission, id), newest first. A page begins after such a pair, which keeps its meaning when the job that it
names is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from tenure.control.messages.jobs import JobList, ListJobs
from tenure.errors import ConfigurationError
from tenure.jobs.book import JobBook
from tenure.jobs.model import JobInfo
from tenure.nodes.manager.granting import Granted
from tenure.nodes.manager.views import Live, row


class Place(NamedTuple):
    """The place of a job in the list."""

    submitted_at: float
    job_id: str

    def __str__(self) -> str:
        return f"{self.submitted_at!r}:{self.job_id}"


def parse_place(text: str) -> Place:
    at, colon, job_id = text.partition(":")
    try:
        number = float(at)
    except ValueError:
        number = float("nan")
    if not colon or number != number or not job_id:
        raise ConfigurationError(f"after is {text[:200]!r}, and is no page", remedy="Give the `next` of the last page")
    return Place(number, job_id)


def job_list(
    book: JobBook, now: float, request: ListJobs, live: Live | None = None, granted: Granted | None = None
) -> JobList:
    """Returns one page, newest first. It holds no archived jobs: callers ask for those by their id."""
    begin = parse_place(request.after) if request.after else None
    page: list[JobInfo] = []
    known, more = 0, False
    everything = _everything(request)
    for info in _newest_first(book):
        if not everything and not _fits(info, request):
            continue
        known += 1
        if begin is not None and _place(info) >= begin:
            continue
        if len(page) < request.limit:
            page.append(info)
        else:
            more = True
            if everything:  # all jobs count, so we need not look at the rest: dashboards ask this again and again
                known = len(book.jobs)
                break
    return JobList(
        jobs=tuple(row(info, live, now, granted) for info in page),
        known=known,
        now=now,
        next=str(_place(page[-1])) if more else "",
    )


def _place(info: JobInfo) -> Place:
    return Place(info.job.submitted_at, info.id)


def _newest_first(book: JobBook) -> Iterator[JobInfo]:
    """Yields the jobs, newest first. The book holds them in the order of their submission; ids order those of one moment."""
    for _, together in groupby(reversed(book.jobs.values()), key=lambda info: info.job.submitted_at):
        yield from sorted(together, key=lambda info: info.id, reverse=True)


def _everything(request: ListJobs) -> bool:
    """Returns True when the request has no filter, so that all jobs fit."""
    return request == ListJobs(after=request.after, limit=request.limit)


def _fits(info: JobInfo, request: ListJobs) -> bool:
    submission = info.job.submission
    if request.state is not None and info.state is not request.state:
        return False
    if request.queue and submission.queue != request.queue:
        return False
    if info.job.submitted_at < request.since:
        return False
    if request.until is not None and info.job.submitted_at >= request.until:
        return False
    if request.name and not (submission.name.startswith(request.name) or info.id.startswith(request.name)):
        return False
    if request.function and all(one.spec.called != request.function for one in info.workflows.values()):
        return False
    if request.label:
        key, equals, value = request.label.partition("=")
        if key not in submission.labels or (equals and submission.labels[key] != value):
            return False
    return True
