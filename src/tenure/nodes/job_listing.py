"""Lists jobs, with filters, in pages that stay where they are while jobs come and go. Pure, and the same for managers and gates.

Jobs are in the order of (time of submission, id), newest first. A page begins after such a pair, which keeps its meaning when the job that it
names is gone. No list holds archived jobs: callers ask for those by their id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from tenure.control.claims import ALL, Scope
from tenure.control.messages.jobs import JobList, JobRow, ListJobs
from tenure.control.messages.workflows import WorkflowEntry, WorkflowList
from tenure.errors import ConfigurationError
from tenure.jobs.arguments import call_text, secret_names
from tenure.jobs.book import JobBook
from tenure.jobs.catalogue import with_schemas
from tenure.jobs.door import versions_of
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.job_records import JobGroup
from tenure.jobs.learned_rates import usual_run
from tenure.jobs.model import GateJobTrackingInfo, JobInfo, JobSubmission
from tenure.nodes.grant_views import Granted
from tenure.nodes.job_filters import GroupFilter, chosen_by, fits_info
from tenure.nodes.job_views import Live, WorkflowCounts, gate_row, manager_row
from tenure.served_workflow import ServedWorkflow

JobT = TypeVar("JobT")


class Place(NamedTuple):
    """The place of a job in the list."""

    submitted_at: float
    job_id: str
    """Empty for the place behind all jobs of that moment."""

    def __str__(self) -> str:
        return f"{self.submitted_at!r}:{self.job_id}"


def parse_place(text: str) -> Place:
    at, colon, job_id = text.partition(":")
    try:
        number = float(at)
    except ValueError:
        number = float("nan")
    if not colon or number != number:
        raise ConfigurationError(f"after is {text[:200]!r}, and is no page", remedy="Give the `next` of the last page")
    return Place(number, job_id)


# Pages


MOST_LOOKED = 2_500
"""The packed jobs of which a list with filters takes a copy before it answers with what it has: 25 to 70 ms, in which the leader does nothing else."""


def manager_list(
    book: JobBook,
    now: float,
    request: ListJobs,
    live: Live | None = None,
    granted: Granted | None = None,
    within: Scope = ALL,
) -> JobList:
    """Returns one page of a manager's jobs."""
    found, waits_for = ChosenJobs(book, request, within), partial(book.waits_for, now=now)
    page, following = found.page()
    return JobList(
        jobs=tuple(
            with_args(manager_row(info, live, now, granted, waits_for), info.job.submission, request, book)
            for info in page
        ),
        known=found.known,
        now=now,
        next=following,
    )


class ChosenJobs:
    """Finds the jobs of one list. It looks at objects, and at those packed jobs of which the summary of their page cannot tell whether they fit."""

    def __init__(self, book: JobBook, request: ListJobs, within: Scope) -> None:
        self._jobs, self._request = book.jobs, request
        self._fits = chosen_by(request, within, book)
        self._packed = GroupFilter(request, within)
        self._begin = parse_place(request.after) if request.after else None
        self.known = len(book.jobs)
        """The number of jobs that fit, once `page` was called."""

    def page(self) -> tuple[list[JobInfo], str]:
        """Returns the jobs of the page, and the place after which the next one begins."""
        page: list[JobInfo] = []
        looked, last = 0, None
        for together, copies in self._moments():
            # A page must get beyond the place where it began, or its caller would ask for the same one for ever.
            if looked >= MOST_LOOKED and self._fits is not None and last is not None and self._is_later(last):
                self.known = self._count()
                # All of that moment were looked at. The last of them need not fit, so its id is not told: the caller may not know that job.
                return page, str(last._replace(job_id=""))
            looked += copies
            last = _place(together[-1])
            for info in together:
                if not self._is_later(_place(info)) or not self._fit(info):
                    continue
                if len(page) == self._request.limit:
                    if self._fits is not None:
                        self.known = self._count()
                    return page, str(_place(page[-1]))
                page.append(info)
        if self._fits is not None:
            self.known = len(page) if self._begin is None else self._count()
        return page, ""

    def _is_later(self, place: Place) -> bool:
        """Returns True for a place behind the one where the page begins."""
        return self._begin is None or place < self._begin

    def _fit(self, info: JobInfo) -> bool:
        return self._fits is None or fits_info(self._fits, info)

    def _moments(self) -> Iterator[tuple[list[JobInfo], int]]:
        """Yields the jobs of each moment together, newest first, and how many copies that took. The ids order the jobs of one moment."""
        together: list[JobInfo] = []
        copies = 0
        for group in self._jobs.groups():
            shown = self._shown(group)
            for info in self._of(group) if shown else self._jobs.objects_of(group):
                if together and info.job.submitted_at != together[0].job.submitted_at:
                    yield _by_id(together), copies
                    together, copies = [], 0
                together.append(info)
                copies += shown
        if together:
            yield _by_id(together), copies

    def _of(self, group: JobGroup) -> Iterator[JobInfo]:
        return (info for job_id in reversed(group.ids) if (info := self._jobs.look(job_id)) is not None)

    def _shown(self, group: JobGroup) -> bool:
        """Returns True when packed jobs of the group may be on the page."""
        if group.packed is None or (
            self._begin is not None and group.packed.summary.first_at > self._begin.submitted_at
        ):
            return False
        return self._fits is None or self._packed.count(group, self._jobs) != 0

    def _count(self) -> int:
        found = looked = 0
        for group in self._jobs.groups():
            found += sum(map(self._fit, self._jobs.objects_of(group)))
            if group.packed is None:
                continue
            some = self._packed.count(group, self._jobs)
            if some is None and looked < MOST_LOOKED:
                ids = self._jobs.packed_ids(group)
                looked += len(ids)
                some = sum(self._fit(info) for job_id in ids if (info := self._jobs.look(job_id)) is not None)
            found += some or 0
        return found


def _place(info: JobInfo) -> Place:
    return Place(info.job.submitted_at, info.id)


def _by_id(together: list[JobInfo]) -> list[JobInfo]:
    if len(together) > 1:
        together.sort(key=lambda one: one.id, reverse=True)
    return together


def with_args(row: JobRow, submission: JobSubmission | None, request: ListJobs, book: JobBook | None = None) -> JobRow:
    """Returns the row with its calls, where the list was asked for them."""
    if not request.args or submission is None:
        return row
    calls = [
        call_text(spec, secret_names(book, spec.called) if book is not None else frozenset(), most=160)
        for spec in submission.workflows[:3]
    ]
    return msgspec.structs.replace(row, args=", ".join(calls))


def gate_list(
    tracker: GateJobTracker,
    now: float,
    request: ListJobs,
    counts: Callable[[GateJobTrackingInfo], WorkflowCounts] | None,
    within: Scope = ALL,
) -> JobList:
    """Returns one page of a gate's jobs. `counts` sums up the newest reports on a job; a gate that does not lead has none."""
    fits = chosen_by(request, within)

    def place(info: GateJobTrackingInfo) -> Place:
        return Place(info.submitted_at, info.job_id)

    # A job that was rebuilt from reports joins the tracker late, so its order is not that of submission.
    found = (
        info
        for info in tracker.jobs.values()
        if fits is None or fits(info.job_id, info.submission, info.state, info.submitted_at)
    )
    return _page(
        sorted(found, key=place, reverse=True),
        place,
        lambda info: with_args(
            gate_row(info, counts(info) if counts is not None else WorkflowCounts(), tracker.deadline(info)),
            info.submission,
            request,
        ),
        request,
        now,
        known=len(tracker.jobs) if fits is None else None,
    )


def _page(
    jobs: Iterable[JobT],
    place: Callable[[JobT], Place],
    row: Callable[[JobT], JobRow],
    request: ListJobs,
    now: float,
    *,
    known: int | None,
) -> JobList:
    """Returns one page of `jobs`, which all fit the request. `known` is their number, where it need not be counted."""
    begin = parse_place(request.after) if request.after else None
    page: list[JobT] = []
    count, more = 0, False
    for job in jobs:
        count += 1
        if begin is not None and place(job) >= begin:
            continue
        if len(page) < request.limit:
            page.append(job)
        else:
            more = True
            if known is not None:  # we need not look at the rest: dashboards ask this again and again
                break
    return JobList(
        jobs=tuple(row(job) for job in page),
        known=count if known is None else known,
        now=now,
        next=str(place(page[-1])) if more else "",
    )


# The catalogue


def workflow_list(book: JobBook, name: str, now: float) -> WorkflowList:
    """Returns the catalogue: everything that is served, or was within its memory."""
    workers: dict[str, list[str]] = {}
    for worker, registration in book.state.registered.items():
        workers.setdefault(registration.offer, []).append(worker)
    serving: dict[tuple[str, str], list[str]] = {}
    for digest, offer in book.state.offers.items():
        for workflow in offer.workflows:
            serving.setdefault(workflow, []).extend(workers.get(digest, ()))
    parked = Counter({key: len(waiting) for key, waiting in book.parked.items()})
    found = [
        WorkflowEntry(
            served=with_schemas(book, one),
            workers=tuple(sorted(serving.get((one.name, one.version), ()))),
            queues=tuple(book.services.queues(one.name, one.version)),
            gone_at=book.state.catalogue[one.name][one.version].gone_at,
            parked=sum(count for key, count in parked.items() if key[2] == one.name and key[3] in ("", one.version)),
            usual_s=_usual_s(book, one),
        )
        for known in sorted(book.state.catalogue)
        if name in ("", known)
        for one in versions_of(book, known, now).values()
    ]
    return WorkflowList(workflows=tuple(found), now=now)


def _usual_s(book: JobBook, one: ServedWorkflow) -> float | None:
    """Returns the seconds that a workflow usually takes. Jobs that named no version are known for all of its versions together."""
    rates = book.state.rates
    found = usual_run(rates, one.name, one.version) or usual_run(rates, one.name, "")
    seconds = found.seconds() if found is not None else None
    return round(seconds, 3) if seconds is not None else None
