"""Limits the state of a datacenter, and decides what happens as it fills up. Pure questions about a book; see decision 0220.

With B for the budget (`JobSettings.state_budget`; in format 1 at most 48 of the 64 MiB that a snapshot may have):

    B / 2      finished jobs are archived at once, oldest first, instead of after `archive_after`
    B * 3/4    an alarm
    B          no new job is accepted; errors and results are kept short in the state, long results in the store
    B * 13/12  no worker may register anything new, and no operator may change anything that needs room
    B * 7/6    errors are left out of the state
    B * 4/3    the limit of a snapshot of format 1, which is not reached

The size is an upper bound of the bytes of a snapshot. Measuring a state means encoding it, which costs 2 ms for each megabyte, so each
event adds the most that it can add (`Event.growth`) and subtracts what it removed. The bound is exact after every measurement, and about a
tenth too high when a quarter of the budget was folded since. It is never too low: a property test compares the two after every event.
It is an index: it is not part of a snapshot, and no fold reads it. Only decisions read it, and they are journaled. `history` and the three
shares are exact, because folds read them.

Beside that, the ids of archived jobs, tombstones and schedules have shares of their own, so that none of them can keep all jobs out, and
the histories of jobs have one in the fold (`histories.HISTORY_SHARE`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tenure.errors import DatacenterFullError
from tenure.jobs.settings import LIMITS

if TYPE_CHECKING:
    from tenure.jobs.book import BookState, JobBook
    from tenure.jobs.model import ArchivedJob, JobInfo, Tombstone
    from tenure.jobs.state_records import ScheduleRecord

ALLOWANCE_BYTES = 512
"""The bytes that are kept free for the history of each job that has not ended (`histories.SHORT_HISTORY_BYTES`)."""
PACKED_JOB_BYTES = 80
"""The bytes that a packed job counts beside those of its page: its id, its places in indexes, and the lines that it may still get."""
SMALL_RECORD_BYTES = 2_048
"""The bytes that `check_room` reserves for a queue, a drained worker or a tombstone."""
RETRY_AFTER_S = 10.0
RESERVE_SHARE = 12
"""A twelfth of the budget beyond it is for workers that register, and for operators (`check_reserve`)."""
ARCHIVE_SHARE = 2
TOMBSTONE_SHARE = 8
SCHEDULE_SHARE = 4
SHORT_ERROR_CHARS = 200
SHORT_RESULT_BYTES = 256
MAX_WORKERS = 5_000
"""The most workers whose verdict the journal keeps. The leader forgets one that was evicted and stays away."""

STATE_LIMIT = 67_108_864
"""The bytes that a snapshot may have (`MAX_SNAPSHOT_BYTES` of the engines). A leader with more than that cannot save its state."""

_HEADER = 5
"""The most bytes that msgpack puts before a string, a list or a map."""
_NUMBERS_OF_A_JOB = 90
"""The most bytes by which the numbers and closed choices of a job grow between its start and its end."""
_NUMBERS_OF_A_WORKFLOW = 58
WORKER_BYTES = 320
"""The bytes of a worker's record without its strings."""
_LINE = 5
"""The bytes that a line of history takes beside its own."""

Share = Literal["archive", "tombstones", "schedules"]

_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


def text_bytes(*values: str) -> int:
    """Returns the most bytes that these strings take. A character has at most four."""
    count = 0
    for value in values:  # a loop, not a generator: this is half of the cost of counting an event
        count += _HEADER + (len(value) if value.isascii() else 4 * len(value))
    return count


def encoded_bytes(*values: Any) -> int:
    """Returns the bytes that these values take in a snapshot."""
    count = 0
    try:
        for value in values:
            count += len(_encode(value))
        return count
    except OverflowError:
        # An integer beyond 64 bits, from a journal that was written before `validate` refused it. Folding must go on: taking the snapshot raises.
        return sum(2 * len(_encode_json(value)) for value in values)


def fits_a_snapshot(value: Any) -> bool:
    """Returns False for integers beyond 64 bits. JSON can carry them, and the msgpack of a snapshot cannot."""
    try:
        _encode(value)
    except OverflowError:
        return False
    return True


class StateSize:
    """Counts the bytes of the state. Folds call it for each thing that came or left."""

    def __init__(self, state: BookState, total: int | None = None) -> None:
        """`total` is the length of the snapshot that `state` was read from, where there is one."""
        self.total = encoded_bytes(state) if total is None else total
        self.since_measured = 0
        """The bytes that were added since `total` was exact."""
        self.shares: dict[Share, int] = {
            "archive": encoded_bytes(state.archive),
            "tombstones": encoded_bytes(state.tombstones),
            "schedules": encoded_bytes(state.schedules),
        }
        """The bytes of those parts of the state that have a share of their own."""
        self.history = sum(sum(map(len, info.history)) for info in state.jobs.values())
        """The bytes of all lines that jobs keep for `why`."""

    def measured(self, total: int) -> None:
        """Notes that the state was encoded just now and has `total` bytes."""
        self.total, self.since_measured = total, 0

    def grew(self, count: int) -> None:
        """Adds the most bytes that something can have added."""
        self.total += count
        self.since_measured += count

    # Folds call these for each thing that came or left.

    def job_came(self, info: JobInfo) -> None:
        numbers = _NUMBERS_OF_A_JOB + _NUMBERS_OF_A_WORKFLOW * len(info.workflows)
        self.grew(encoded_bytes(info, info.id) + numbers + _HEADER)

    def job_left(self, info: JobInfo) -> None:
        self.total -= encoded_bytes(info, info.id)
        self.history -= sum(map(len, info.history))

    def line_came(self, line: bytes) -> None:
        count = len(line)
        self.history += count
        self.total += count + _LINE
        self.since_measured += count

    def line_left(self, line: bytes) -> None:
        self.history -= len(line)
        self.total -= len(line)

    def elections_came(self, change: int, lines: int) -> None:
        """Counts the lines that packed jobs got with an election: `change` bytes more than those that they replaced."""
        self.history += change
        self.grew(change + _LINE * lines)

    def came(self, share: Share, name: str, record: ArchivedJob | Tombstone | ScheduleRecord) -> None:
        count = encoded_bytes(name, record)
        self.shares[share] += count
        self.grew(count)

    def left(self, share: Share, name: str, record: ArchivedJob | Tombstone | ScheduleRecord) -> None:
        count = encoded_bytes(name, record)
        self.shares[share] -= count
        self.total -= count


def held_bytes(book: JobBook) -> int:
    """Returns the bytes of the state as it is held: those of packed jobs count as packed (`job_records.py`)."""
    jobs = book.jobs
    return book.size.total - jobs.unpacked_bytes + jobs.packed_bytes + PACKED_JOB_BYTES * jobs.packed


def claimed(book: JobBook) -> int:
    """Returns the bytes of the state, and those that its live jobs may still need."""
    packed = book.jobs.packed_live
    return held_bytes(book) + ALLOWANCE_BYTES * (len(book.jobs) - len(book.ended) - packed)


def is_full(book: JobBook) -> bool:
    """Returns True while nothing new is accepted."""
    return claimed(book) + SMALL_RECORD_BYTES > book.budget


def is_crowded(book: JobBook) -> bool:
    """Returns True when the state is so full that an operator needs an alarm."""
    return claimed(book) * 4 >= book.budget * 3


def keep_finished(book: JobBook) -> float:
    """Returns the seconds for which a finished job stays in memory: `archive_after`, or 0 while its room is needed."""
    return 0.0 if claimed(book) * 2 >= book.budget else book.settings.archive_after


def check_room(book: JobBook, more: int = SMALL_RECORD_BYTES) -> None:
    """Raise `DatacenterFullError` when the state is at its budget, or would be with `more` bytes."""
    if claimed(book) + more > book.budget:
        raise _full("the jobs of this datacenter", claimed(book), book.budget)


def check_reserve(book: JobBook, more: int = SMALL_RECORD_BYTES) -> None:
    """Raise `DatacenterFullError` when not even the reserve has room: it is kept for what gets a full datacenter going again.

    A worker that registers, and an operator who pauses a queue, drains a worker or holds what is down, must not be told to wait until jobs end.
    """
    most = book.budget + book.budget // RESERVE_SHARE
    if claimed(book) + more > most:
        raise _full("the jobs of this datacenter", claimed(book), most)


def check_tombstones(book: JobBook) -> None:
    """Raise `DatacenterFullError` as `check_room` does, and also when cancels of unknown jobs take more than their share."""
    _check_share(book, "cancels of jobs that are not known", book.size.shares["tombstones"], TOMBSTONE_SHARE)


def check_schedules(book: JobBook, more: int) -> None:
    """Raise `DatacenterFullError` as `check_room` does, and also when schedules take more than their share."""
    _check_share(book, "the schedules of this datacenter", book.size.shares["schedules"], SCHEDULE_SHARE, more)


def _check_share(book: JobBook, what: str, count: int, share: int, more: int = SMALL_RECORD_BYTES) -> None:
    check_room(book, more)
    if (count + more) * share >= book.budget:
        raise _full(what, count, book.budget // share)


def _full(what: str, count: int, most: int) -> DatacenterFullError:
    return DatacenterFullError(f"{what} fill {count:,} of {most:,} bytes", RETRY_AFTER_S)


def check_worker(book: JobBook, worker: str) -> None:
    """Raise `DatacenterFullError` for a new worker where there are too many."""
    workers = book.state.workers
    if len(workers) >= MAX_WORKERS and worker not in workers:
        raise DatacenterFullError(f"{len(workers):,} workers are known, and {MAX_WORKERS:,} may be", RETRY_AFTER_S)


def needs_measuring(book: JobBook) -> bool:
    """Returns True when the bound may be so much too high that it would alarm or refuse without need."""
    return is_crowded(book) and book.size.since_measured * 8 >= book.budget


def archive_is_full(book: JobBook, more: int) -> bool:
    """Returns True when archived ids, with `more` bytes, take more than their share."""
    return (book.size.shares["archive"] + more) * ARCHIVE_SHARE > book.budget


def max_result_bytes(book: JobBook) -> int:
    """Returns the most bytes of a result in the journal. The leader puts a larger one into the store."""
    return SHORT_RESULT_BYTES if held_bytes(book) >= book.budget else LIMITS.max_result_bytes


def max_error_chars(book: JobBook) -> int:
    """Returns the most characters of an error that the state keeps."""
    held = held_bytes(book)
    if held * 6 >= book.budget * 7:
        return 0
    return SHORT_ERROR_CHARS if held >= book.budget else LIMITS.max_error_chars
