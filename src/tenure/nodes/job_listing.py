"""Lists jobs, with filters, in pages that stay where they are while jobs come and go. Pure, and the same for managers and gates.

Jobs are in the order of (time of submission, id), newest first. A page begins after such a pair, which keeps its meaning when the job that it
names is gone. No list holds archived jobs: callers ask for those by their id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from tenure.control.claims import ALL, Scope
from tenure.control.messages.jobs import JobList, JobRow, ListJobs
from tenure.control.messages.workflows import WorkflowEntry, WorkflowList
from tenure.errors import ConfigurationError
from tenure.jobs.book import JobBook
from tenure.jobs.door import versions_of
from tenure.jobs.gate_tracker import GateJobTracker
from tenure.jobs.learned_rates import usual_run
from tenure.jobs.model import GateJobTrackingInfo, JobInfo, JobSubmission
from tenure.jobs.shown_arguments import any_has_argument, call_text, secret_names
from tenure.jobs.states import JobState
from tenure.nodes.grant_views import Granted
from tenure.nodes.job_views import Live, WorkflowCounts, gate_row, manager_row
from tenure.served_workflow import ServedWorkflow

JobT = TypeVar("JobT")


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


# Filters


def _named(job_id: str, submission: JobSubmission | None, prefix: str) -> bool:
    return job_id.startswith(prefix) or (submission is not None and submission.name.startswith(prefix))


def _calls(submission: JobSubmission | None, function: str) -> bool:
    return submission is not None and any(spec.called == function for spec in submission.workflows)


def _labelled(submission: JobSubmission | None, label: str) -> bool:
    key, equals, value = label.partition("=")
    labels = submission.labels if submission is not None else {}
    return key in labels and (not equals or labels[key] == value)


FILTERS: Mapping[str, Callable[[Any, str, JobSubmission | None, JobState, float], bool]] = {
    "state": lambda wanted, job_id, submission, state, at: state is wanted,
    "queue": lambda wanted, job_id, submission, state, at: submission is not None and submission.queue == wanted,
    "name": lambda wanted, job_id, submission, state, at: _named(job_id, submission, wanted),
    "function": lambda wanted, job_id, submission, state, at: _calls(submission, wanted),
    "label": lambda wanted, job_id, submission, state, at: _labelled(submission, wanted),
    "arg": lambda wanted, job_id, submission, state, at: any_has_argument(submission, wanted, None),
    "since": lambda wanted, job_id, submission, state, at: at >= wanted,
    "until": lambda wanted, job_id, submission, state, at: at < wanted,
}
"""Maps each field of `ListJobs` that is a filter to its test of a job, by the value that is wanted: the job's id, its submission (None for a job that
a gate rebuilt from reports: it fits no filter on one), its state and the time of its submission."""

_ANY = ListJobs()
JobTest = Callable[[str, JobSubmission | None, JobState, float], bool]


def chosen_by(request: ListJobs, within: Scope = ALL, book: JobBook | None = None) -> JobTest | None:
    """Returns the test that a job of this list passes; None when neither the request nor its caller's bounds leave any out.

    `book` knows which arguments functions declare as secret; a gate has none, and knows secrets by their names and values only.
    """
    given = [
        (FILTERS[name], getattr(request, name)) for name in FILTERS if getattr(request, name) != getattr(_ANY, name)
    ]

    scoped = within.scoped

    def fits(job_id: str, submission: JobSubmission | None, state: JobState, at: float) -> bool:
        if scoped and not within.covers(submission):
            return False
        for test, wanted in given:
            if not test(wanted, job_id, submission, state, at):
                return False
        return book is None or not request.arg or any_has_argument(submission, request.arg, book)

    return fits if given or scoped else None


# Pages


def manager_list(
    book: JobBook,
    now: float,
    request: ListJobs,
    live: Live | None = None,
    granted: Granted | None = None,
    within: Scope = ALL,
) -> JobList:
    """Returns one page of a manager's jobs."""
    fits, jobs = chosen_by(request, within, book), _newest_first(book)
    return _page(
        jobs if fits is None else _fitting(jobs, fits),
        lambda info: Place(info.job.submitted_at, info.id),
        lambda info: with_args(
            manager_row(info, live, now, granted, book.waits_for), info.job.submission, request, book
        ),
        request,
        now,
        known=len(book.jobs) if fits is None else None,
    )


def with_args(row: JobRow, submission: JobSubmission | None, request: ListJobs, book: JobBook | None = None) -> JobRow:
    """Returns the row with its calls, where the list was asked for them."""
    if not request.args or submission is None:
        return row
    calls = [
        call_text(spec, secret_names(book, spec.called) if book is not None else frozenset(), most=160)
        for spec in submission.workflows[:3]
    ]
    return msgspec.structs.replace(row, args=", ".join(calls))


def _fitting(jobs: Iterable[JobInfo], fits: JobTest) -> Iterator[JobInfo]:
    for info in jobs:
        job = info.job
        submission = job.submission
        if fits(submission.job_id, submission, info.state, job.submitted_at):
            yield info


def _newest_first(book: JobBook) -> Iterator[JobInfo]:
    """Yields the jobs, newest first. The book holds them in the order of their submission; ids order those of one moment."""
    together: list[JobInfo] = []
    moment = float("nan")
    for job_id in reversed(book.jobs):
        info = book.jobs.look(job_id)
        assert info is not None, "the book is not changed while it is listed"
        if info.job.submitted_at != moment:
            if len(together) > 1:
                together.sort(key=lambda one: one.id, reverse=True)
            yield from together
            together, moment = [], info.job.submitted_at
        together.append(info)
    yield from sorted(together, key=lambda one: one.id, reverse=True)


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
            served=msgspec.structs.replace(one, arguments=book.state.schemas.get(one.schema)),
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
