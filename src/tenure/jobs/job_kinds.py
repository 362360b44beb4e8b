"""Sums up the jobs of a packed page by what lists ask for, so that a list skips and counts packed jobs without unpacking them (decision 0650). Pure.

A *kind* is what jobs of one page usually share: their state, queue, functions, labels and name. A page with many different labels or names
says only that they differ, and keeps small hashes of the labels, by which it can still say "none of mine".
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tenure.jobs.model import JobInfo
from tenure.jobs.states import JobState

if TYPE_CHECKING:
    from tenure.jobs.page_heads import PageHead

KINDS_OF_PAGE = 8
"""The most kinds by which one page is summed up. Beyond them labels and names are left out: they would take more room than the jobs."""
KNOWN_KINDS = 4_096
"""The most kinds that are kept to be shared between pages."""

Labels = tuple[tuple[str, str], ...]


class JobKind(NamedTuple):
    """The fields of a job that lists ask for, but its id, its arguments and the time of its submission."""

    state: JobState
    queue: str
    functions: tuple[str, ...]
    labels: Labels | None
    """None where the jobs of this kind differ in them."""
    name: str | None
    """None where they differ in it."""


class PageSummary:
    """Counts the packed jobs of one page by their kinds."""

    __slots__ = ("first_at", "kinds", "last_at", "tags")

    def __init__(self, kinds: dict[JobKind, int], tags: array[int], first_at: float, last_at: float) -> None:
        self.kinds, self.tags = kinds, tags
        self.first_at, self.last_at = first_at, last_at
        """No packed job of the page was submitted before the first or after the second."""

    def left(self, info: JobInfo) -> None:
        """Takes one job out, as it was when it was packed."""
        exact = kind_of(info)
        kind = next(one for one in (exact, _unlabelled(exact), _coarse(exact)) if one in self.kinds)
        self.kinds[kind] -= 1
        if not self.kinds[kind]:
            del self.kinds[kind]

    def may_have_label(self, label: str) -> bool:
        """Returns False when no job of the page has this label (`key`, or `key=value`)."""
        return _tag(label) in self.tags


class KindTable:
    """Makes summaries. Equal kinds of different pages are one object."""

    def __init__(self) -> None:
        self._known: dict[JobKind, JobKind] = {}

    def summary(self, infos: Iterable[JobInfo], before: PageSummary | None = None) -> PageSummary:
        """Sums up `infos`, and the jobs that `before` still counts."""
        kinds: dict[JobKind, int] = dict(before.kinds) if before is not None else {}
        tags = set(before.tags) if before is not None else set()
        first_at = before.first_at if before is not None else float("inf")
        last_at = before.last_at if before is not None else float("-inf")
        for info in infos:
            kind = kind_of(info)
            kinds[kind] = kinds.get(kind, 0) + 1
            at = info.job.submitted_at
            if at < first_at:
                first_at = at
            if at > last_at:
                last_at = at
        for kind in kinds:
            for key, value in kind.labels or ():
                tags.update((_tag(key), _tag(f"{key}={value}")))
        # All kinds of a page are as exact, so that a job that leaves is taken from the kind under which it was counted.
        if len(kinds) > KINDS_OF_PAGE or any(kind.labels is None for kind in kinds):
            kinds = _merged(kinds, _unlabelled)
        if len(kinds) > KINDS_OF_PAGE or any(kind.name is None for kind in kinds):
            kinds = _merged(kinds, _coarse)
        shared = {self._shared(kind): count for kind, count in kinds.items()}
        return PageSummary(shared, array("H", sorted(tags)), first_at, last_at)

    def summary_of(self, head: PageHead) -> PageSummary:
        """Returns the summary that was made when the page with this head was saved."""
        kinds = {self._shared(kind): count for kind, count in head.kinds}
        return PageSummary(kinds, array("H", head.tags), head.first_at, head.last_at)

    def _shared(self, kind: JobKind) -> JobKind:
        if len(self._known) >= KNOWN_KINDS:
            self._known.clear()
        return self._known.setdefault(kind, kind)


def kind_of(info: JobInfo) -> JobKind:
    submission = info.job.submission
    labels = tuple(sorted(submission.labels.items())) if submission.labels else ()
    functions = tuple([spec.called for spec in submission.workflows])
    return JobKind(info.state, submission.queue, functions, labels, submission.name)


def _unlabelled(kind: JobKind) -> JobKind:
    return kind._replace(labels=None)


def _coarse(kind: JobKind) -> JobKind:
    return kind._replace(labels=None, name=None)


def _merged(kinds: Mapping[JobKind, int], coarser: Callable[[JobKind], JobKind]) -> dict[JobKind, int]:
    found: dict[JobKind, int] = {}
    for kind, count in kinds.items():
        found[coarser(kind)] = found.get(coarser(kind), 0) + count
    return found


def _tag(label: str) -> int:
    """Returns a small hash: of a thousand pages with 64 labels each, about one is looked into for nothing."""
    return zlib.crc32(label.encode()) & 0xFFFF
