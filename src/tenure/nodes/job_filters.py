"""Decides which jobs a list holds: of one job, and of all packed jobs of a page at once (decision 0650). Pure, and the same for managers and gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenure.control.claims import ALL, Scope
from tenure.control.messages.jobs import ListJobs
from tenure.jobs.arguments import any_has_argument
from tenure.jobs.book import JobBook
from tenure.jobs.job_kinds import JobKind, PageSummary
from tenure.jobs.job_records import JobGroup, JobRecords
from tenure.jobs.model import JobInfo, JobSubmission
from tenure.jobs.packed_pages import PackedPage
from tenure.jobs.states import JobState


def _named(job_id: str, submission: JobSubmission | None, prefix: str) -> bool:
    return job_id.startswith(prefix) or (submission is not None and submission.name.startswith(prefix))


def _calls(submission: JobSubmission | None, function: str) -> bool:
    return submission is not None and any(spec.called == function for spec in submission.workflows)


def _labelled(submission: JobSubmission | None, label: str) -> bool:
    return submission is not None and _has_label(submission.labels, label)


def _has_label(labels: Mapping[str, str], label: str) -> bool:
    key, equals, value = label.partition("=")
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


class GroupFilter:
    """The filters of one request, asked of the packed jobs of a page. Most pages hold jobs of one kind, and are answered for without a look inside."""

    def __init__(self, request: ListJobs, within: Scope) -> None:
        self._request, self._within = request, within
        self._verdicts: dict[JobKind, bool | None] = {}

    def count(self, group: JobGroup, records: JobRecords) -> int | None:
        """Returns how many packed jobs of the group fit; None when only a look at them can tell."""
        page = group.packed
        if page is None or not self._in_time(page.summary):
            return 0
        summary, request = page.summary, self._request
        if request.label and not summary.may_have_label(request.label):
            return 0
        found = 0
        for kind, count in summary.kinds.items():
            verdict = self.of_kind(kind)
            if verdict is None:
                return self._by_id(group, records)
            found += count if verdict else 0
        # The page may reach over the edge of the time that was asked for.
        return found if not found or self._wholly_in_time(summary) else None

    def of_kind(self, kind: JobKind) -> bool | None:
        """Returns True when every job of this kind fits, False when none does, None when they differ. It does not look at times."""
        if kind not in self._verdicts:
            self._verdicts[kind] = self._judge(kind)
        return self._verdicts[kind]

    def _judge(self, kind: JobKind) -> bool | None:
        request, labels = self._request, None if kind.labels is None else dict(kind.labels)
        if request.state is not None and kind.state is not request.state:
            return False
        if request.queue and kind.queue != request.queue:
            return False
        if request.function and request.function not in kind.functions:
            return False
        if not self._within.covers_queue(kind.queue):
            return False
        if labels is not None and not self._within.covers_job(kind.queue, labels):
            return False
        if labels is not None and request.label and not _has_label(labels, request.label):
            return False
        unsure = labels is None and (request.label or self._within.scoped)
        if unsure or request.arg:
            return None
        return True if not request.name or (kind.name is not None and kind.name.startswith(request.name)) else None

    def _by_id(self, group: JobGroup, records: JobRecords) -> int | None:
        """Answers where jobs of one kind differ in nothing but their ids."""
        page, request = group.packed, self._request
        assert page is not None, "nothing is packed"
        if not request.name or any(kind.name is None for kind in page.summary.kinds):
            return None
        if any(kind.name.startswith(request.name) for kind in page.summary.kinds if kind.name is not None):
            return None
        named = _with_prefix(request.name, page, group, records)
        if not named:
            return 0
        alone = len(page.summary.kinds) == 1 and not request.arg and self._wholly_in_time(page.summary)
        labelled = request.label or self._within.scoped
        known = not labelled or all(kind.labels is not None for kind in page.summary.kinds)
        return named if alone and known else None

    def _in_time(self, summary: PageSummary) -> bool:
        until = self._request.until
        return summary.last_at >= self._request.since and (until is None or summary.first_at < until)

    def _wholly_in_time(self, summary: PageSummary) -> bool:
        until = self._request.until
        return summary.first_at >= self._request.since and (until is None or summary.last_at < until)


def _with_prefix(prefix: str, page: PackedPage, group: JobGroup, records: JobRecords) -> int:
    """Counts the packed ids of a page that begin so. Ids with one prefix are neighbours as text, so the first and the last id answer for most pages."""
    first, last = page.first_id.startswith(prefix), page.last_id.startswith(prefix)
    if first and last:
        return page.left
    if page.last_id < prefix or (page.first_id > prefix and not first):
        return 0
    return sum(job_id.startswith(prefix) for job_id in records.packed_ids(group))


def fits_info(fits: JobTest, info: JobInfo) -> bool:
    job = info.job
    return fits(job.submission.job_id, job.submission, info.state, job.submitted_at)
