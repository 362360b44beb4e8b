"""Estimates how many seconds of work each queue has left, for one slot: what an autoscaler needs to know, and what a count of jobs hides.

Work that runs counts with what it has left. Pure: it is told the time. Nothing is decided by it in here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice

from tenure.jobs.book import JobBook
from tenure.jobs.learned_rates import usual
from tenure.jobs.model import JobInfo, WorkflowRecord
from tenure.jobs.work_indexes import lane_of

UNKNOWN_S = 60.0
"""Work of which too little has completed to say how long it takes counts as a minute, until it has lasted longer than that."""
MOST_LOOKED_AT = 1_000
"""The estimate looks at so many items of a lane, and takes their average for the rest. So a scrape costs the same with a million jobs."""

TimeLeft = Callable[[str, str], float | None]
"""Returns the seconds that a running workflow of a job says it has left; None when it says nothing."""


def work_left(book: JobBook, now: float, says: TimeLeft) -> dict[str, float]:
    """Returns the seconds of work of each queue that waits for a slot or has one. Work that waits for anything else is not counted."""
    found: dict[str, float] = {}
    for lanes in (book.ready, book.queued):
        for lane, waiting in lanes.items():
            if waiting and not _is_paused(book, lane[0]):
                looked_at = [_whole_s(book, *job) for job in _records(book, islice(waiting, MOST_LOOKED_AT))]
                average = math.fsum(looked_at) / len(looked_at) if looked_at else 0.0
                found[lane[0]] = found.get(lane[0], 0.0) + average * len(waiting)
    for running in book.on_worker.values():
        for info, workflow in _records(book, running):
            queue = lane_of(info)[0]
            found[queue] = found.get(queue, 0.0) + _rest_s(book, info, workflow, now, says)
    return found


def _is_paused(book: JobBook, queue: str) -> bool:
    """Returns True for a queue that an operator paused: more workers would not help it."""
    record = book.state.queues.get(queue)
    return record is not None and record.paused


def _records(book: JobBook, keys: Iterable[tuple[str, str]]) -> Iterable[tuple[JobInfo, WorkflowRecord]]:
    for job_id, name in keys:
        info = book.jobs.get(job_id)
        if info is not None and name in info.workflows:
            yield info, info.workflows[name]


def _whole_s(book: JobBook, info: JobInfo, workflow: WorkflowRecord) -> float:
    """Returns the mean duration: of many that wait the sum counts, and a median would leave out what the slow ones take."""
    known = usual(book.state.rates, workflow.spec)
    return math.exp(known.log_s + known.spread**2 / 2) if known is not None else UNKNOWN_S


def _rest_s(book: JobBook, info: JobInfo, workflow: WorkflowRecord, now: float, says: TimeLeft) -> float:
    said = says(info.id, workflow.spec.name)
    if said is not None:
        return said
    lasted_s = max(0.0, now - workflow.started_at)
    known = usual(book.state.rates, workflow.spec, workflow.worker)
    ends_s = known.seconds(lasted_s=lasted_s) if known is not None else max(UNKNOWN_S, lasted_s)
    # It has outlived almost all runs before it: as long again is as good a guess as any, and it never counts as idle.
    return max(1.0, ends_s - lasted_s) if ends_s is not None and ends_s > lasted_s else max(1.0, lasted_s)
