"""Limits the state of a datacenter, and decides what happens as it fills up. Pure questions about a book; see decision 0220.

With B for the budget (`JobSettings.state_budget`, at most 48 of the 64 MiB that a snapshot may have):

    B / 2      finished jobs are archived at once, oldest first, instead of after `archive_after`
    B * 3/4    an alarm
    B          nothing new is accepted; errors and results are kept short in the state, long results in the store
    B * 7/6    errors are left out of the state
    B * 4/3    the limit of a snapshot, which is not reached

Beside that, the ids of archived jobs, tombstones and schedules have shares of their own, so that none of them can keep all jobs out, and
the histories of jobs have one in the fold (`book.HISTORY_SHARE`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.errors import DatacenterFullError
from tenure.jobs.settings import JobLimits

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook

ALLOWANCE_BYTES = 512
"""The bytes that are kept free for the history of each job that has not ended (`book.SHORT_HISTORY_BYTES`)."""
SMALL_RECORD_BYTES = 2_048
"""The bytes that `check_room` reserves for a queue, a drained worker or a tombstone."""
RETRY_AFTER_S = 10.0
ARCHIVE_SHARE = 2
TOMBSTONE_SHARE = 8
SCHEDULE_SHARE = 4
SHORT_ERROR_CHARS = 200
SHORT_RESULT_BYTES = 256
MAX_WORKERS = 5_000
"""The most workers whose verdict the journal keeps. The leader forgets one that was evicted and stays away."""

_LIMITS = JobLimits()


def claimed(book: JobBook) -> int:
    """Returns the bytes of the state, and those that its live jobs may still need."""
    return book.size.total + ALLOWANCE_BYTES * (len(book.jobs) - len(book.ended))


def is_full(book: JobBook) -> bool:
    """Returns True while nothing new is accepted."""
    return claimed(book) + SMALL_RECORD_BYTES > book.settings.state_budget


def is_crowded(book: JobBook) -> bool:
    """Returns True when the state is so full that an operator needs an alarm."""
    return claimed(book) * 4 >= book.settings.state_budget * 3


def keep_finished(book: JobBook) -> float:
    """Returns the seconds for which a finished job stays in memory: `archive_after`, or 0 while its room is needed."""
    return 0.0 if claimed(book) * 2 >= book.settings.state_budget else book.settings.archive_after


def check_room(book: JobBook, more: int = SMALL_RECORD_BYTES) -> None:
    """Raise `DatacenterFullError` when the state is at its budget, or would be with `more` bytes."""
    if claimed(book) + more > book.settings.state_budget:
        raise _full("the jobs of this datacenter", claimed(book), book.settings.state_budget)


def check_tombstones(book: JobBook) -> None:
    """Raise `DatacenterFullError` as `check_room` does, and also when cancels of unknown jobs take more than their share."""
    _check_share(book, "cancels of jobs that are not known", book.size.tombstones, TOMBSTONE_SHARE)


def check_schedules(book: JobBook, more: int) -> None:
    """Raise `DatacenterFullError` as `check_room` does, and also when schedules take more than their share."""
    _check_share(book, "the schedules of this datacenter", book.size.schedules, SCHEDULE_SHARE, more)


def _check_share(book: JobBook, what: str, count: int, share: int, more: int = SMALL_RECORD_BYTES) -> None:
    check_room(book, more)
    if (count + more) * share >= book.settings.state_budget:
        raise _full(what, count, book.settings.state_budget // share)


def _full(what: str, count: int, most: int) -> DatacenterFullError:
    return DatacenterFullError(f"{what} fill {count:,} of {most:,} bytes", RETRY_AFTER_S)


def check_worker(book: JobBook, worker: str) -> None:
    """Raise `DatacenterFullError` for a new worker where there are too many."""
    workers = book.state.workers
    if len(workers) >= MAX_WORKERS and worker not in workers:
        raise DatacenterFullError(f"{len(workers):,} workers are known, and {MAX_WORKERS:,} may be", RETRY_AFTER_S)


def needs_measuring(book: JobBook) -> bool:
    """Returns True when the bound may be so much too high that it would alarm or refuse without need."""
    return is_crowded(book) and book.size.since_measured * 8 >= book.settings.state_budget


def archive_is_full(book: JobBook, more: int) -> bool:
    """Returns True when archived ids, with `more` bytes, take more than their share."""
    return (book.size.archive + more) * ARCHIVE_SHARE > book.settings.state_budget


def max_result_bytes(book: JobBook) -> int:
    """Returns the most bytes of a result in the journal. The leader puts a larger one into the store."""
    return SHORT_RESULT_BYTES if book.size.total >= book.settings.state_budget else _LIMITS.max_result_bytes


def max_error_chars(book: JobBook) -> int:
    """Returns the most characters of an error that the state keeps."""
    if book.size.total * 6 >= book.settings.state_budget * 7:
        return 0
    return SHORT_ERROR_CHARS if book.size.total >= book.settings.state_budget else _LIMITS.max_error_chars
