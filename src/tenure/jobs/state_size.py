"""Keeps the size of a datacenter's state, as an upper bound of the bytes of its snapshot.

A snapshot has a limit (`STATE_LIMIT`). Measuring a state means encoding it, which costs 2 ms for each megabyte, so each event adds the
most that it can add and subtracts what it removed. The bound is exact after every measurement, and about a tenth too high when a quarter
of the budget was folded since. It is never too low: a property test compares the two after every event.

The bound is an index: it is not part of a snapshot, and no fold reads it. Only decisions read it, and they are journaled.
`history` and the three shares are exact, because folds read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.jobs import events as e

if TYPE_CHECKING:
    from tenure.jobs.book import BookState
    from tenure.jobs.model import ArchivedJob, JobInfo, Tombstone
    from tenure.jobs.schedule import ScheduleRecord

STATE_LIMIT = 67_108_864
"""The bytes that a snapshot may have (`MAX_SNAPSHOT_BYTES` of the engines). A leader with more than that cannot save its state."""

_HEADER = 5
"""The most bytes that msgpack puts before a string, a list or a map."""
_NUMBERS_OF_A_JOB = 90
"""The most bytes by which the numbers and closed choices of a job grow between its start and its end."""
_NUMBERS_OF_A_WORKFLOW = 50
_WORKER = 320
"""The bytes of a worker's record without its strings."""
_LINE = 5
"""The bytes that a line of history takes beside its own."""

_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


def _text(*values: str) -> int:
    """Returns the most bytes that these strings take. A character has at most four."""
    count = 0
    for value in values:  # a loop, not a generator: this is half of the cost of counting an event
        count += _HEADER + (len(value) if value.isascii() else 4 * len(value))
    return count


def _encoded(*values: Any) -> int:
    count = 0
    try:
        for value in values:
            count += len(_encode(value))
        return count
    except OverflowError:
        # An integer beyond 64 bits, from a journal that was written before `validate` refused it. Folding must go on: taking the snapshot raises.
        return sum(2 * len(_encode_json(value)) for value in values)


class StateSize:
    """Counts the bytes of the state. Folds call it for each thing that came or left."""

    def __init__(self, state: BookState, total: int | None = None) -> None:
        """`total` is the length of the snapshot that `state` was read from, where there is one."""
        self.total = _encoded(state) if total is None else total
        self.since_measured = 0
        """The bytes that were added since `total` was exact."""
        self.archive = _encoded(state.archive)
        self.tombstones = _encoded(state.tombstones)
        self.schedules = _encoded(state.schedules)
        self.history = sum(sum(map(len, info.history)) for info in state.jobs.values())
        """The bytes of all lines that jobs keep for `why`."""

    def measured(self, total: int) -> None:
        """Notes that the state was encoded just now and has `total` bytes."""
        self.total, self.since_measured = total, 0

    def folded(self, event: e.Event) -> None:
        """Adds the most that this event can have added. Folds count jobs, archived ids, tombstones and schedules with the methods below."""
        grow = _GROWTH.get(type(event))
        if grow is not None:
            count = grow(event)
            self.total += count
            self.since_measured += count

    def _add(self, count: int) -> None:
        self.total += count
        self.since_measured += count

    # Folds call these for each thing that came or left.

    def job_came(self, info: JobInfo) -> None:
        numbers = _NUMBERS_OF_A_JOB + _NUMBERS_OF_A_WORKFLOW * len(info.workflows)
        self._add(_encoded(info, info.id) + numbers + _HEADER)

    def job_left(self, info: JobInfo) -> None:
        self.total -= _encoded(info, info.id)
        self.history -= sum(map(len, info.history))

    def line_came(self, line: bytes) -> None:
        count = len(line)
        self.history += count
        self.total += count + _LINE
        self.since_measured += count

    def line_left(self, line: bytes) -> None:
        self.history -= len(line)
        self.total -= len(line)

    def archived_came(self, job_id: str, archived: ArchivedJob) -> None:
        count = _encoded(job_id, archived)
        self.archive += count
        self._add(count)

    def archived_left(self, job_id: str, archived: ArchivedJob) -> None:
        count = _encoded(job_id, archived)
        self.archive -= count
        self.total -= count

    def tombstone_came(self, job_id: str, stone: Tombstone) -> None:
        count = _encoded(job_id, stone)
        self.tombstones += count
        self._add(count)

    def tombstone_left(self, job_id: str, stone: Tombstone | None) -> None:
        if stone is not None:
            count = _encoded(job_id, stone)
            self.tombstones -= count
            self.total -= count

    def schedule_came(self, name: str, record: ScheduleRecord) -> None:
        count = _encoded(name, record)
        self.schedules += count
        self._add(count)

    def schedule_left(self, name: str, record: ScheduleRecord) -> None:
        count = _encoded(name, record)
        self.schedules -= count
        self.total -= count


_GROWTH: Mapping[type[e.Event], Callable[[Any], int]] = {
    e.LeaderElected: lambda event: _text(event.leader) + 20,
    e.WorkflowStarted: lambda event: _text(event.worker, event.incarnation),
    e.WorkflowCompleted: lambda event: _text(event.worker, event.result_key) + _encoded(event.result),
    # The state holds the worker twice: in the workflow, and among its excluded workers.
    e.AttemptFailed: lambda event: _text(event.worker, event.worker, event.error),
    e.ResultRefused: lambda event: _text(event.worker) + 30,
    # The state holds the reason twice: in the job, and as the reason of its timeout.
    e.JobEnded: lambda event: _text(event.reason, event.reason),
    e.LocalTimeoutReported: lambda event: _text(event.reason),
    e.ExtensionGranted: lambda event: (_text(event.worker) + 9) * (len(event.jobs) + 1) + _WORKER,
    e.ExtensionDenied: lambda event: _text(event.worker) + _WORKER,
    e.ExtensionsReset: lambda event: _text(event.worker) + _WORKER,
    e.WorkerJudged: lambda event: _text(event.worker, event.verdict, event.reason, event.incarnation) + _WORKER,
    e.WorkerEvicted: lambda event: _text(event.worker, event.reason, event.incarnation) + _WORKER,
    e.WorkerDrained: lambda event: _text(event.worker, event.by, event.reason) + 60,
    e.QueueChanged: lambda event: _text(event.queue) + 120,
    e.JobArchived: lambda event: 9,
}
"""Maps each other event to the most bytes that it adds to the strings and lists of the state. Events that are not here change numbers only."""
