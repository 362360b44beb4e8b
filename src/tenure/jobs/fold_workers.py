"""Folds the events about workers into the book: verdicts, evictions, and the time that workers earned for their jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tenure.jobs import events as e
from tenure.jobs.model import EVICTED, DrainRecord, JobInfo, WorkerRecord

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


def extension_granted(book: JobBook, event: e.ExtensionGranted) -> None:
    record = worker_record(book, event.worker)
    record.extension_count, record.total_extended = event.count, event.total
    record.last_progress, record.last_counter = event.progress, event.counter
    record.deadline = event.deadline
    for job_id in event.jobs:
        info = book.jobs.get(job_id)
        if info is None or info.state.terminal:
            continue
        tracking = info.timeout_tracking
        given = tracking.extensions_by_worker
        given[event.worker] = min(event.bound, given.get(event.worker, 0.0) + event.seconds)
        # The maximum, not the sum: a job's deadline must not grow with the size of the fleet.
        tracking.total_extensions_granted = max(given.values())
        progressed(info, event.at)


def progressed(info: JobInfo, at: float) -> None:
    tracking = info.timeout_tracking
    if at > tracking.last_progress_at:
        tracking.last_progress_at = at


def extension_denied(book: JobBook, event: e.ExtensionDenied) -> None:
    worker_record(book, event.worker)


def extensions_reset(book: JobBook, event: e.ExtensionsReset) -> None:
    record = worker_record(book, event.worker)
    record.extension_count, record.total_extended = 0, 0.0
    record.last_progress, record.last_counter = 0.0, None


def worker_judged(book: JobBook, event: e.WorkerJudged) -> None:
    record = worker_record(book, event.worker)
    if event.incarnation and event.incarnation != record.incarnation:
        # A new incarnation inherits neither the verdict nor the series of extensions of the one before it.
        record = book.state.workers[event.worker] = WorkerRecord(incarnation=event.incarnation)
    record.verdict, record.reason, record.since = event.verdict, event.reason, event.at


def worker_evicted(book: JobBook, event: e.WorkerEvicted) -> None:
    record = book.state.workers.get(event.worker)
    if record is not None and event.incarnation and record.incarnation not in ("", event.incarnation):
        return  # the record is of another incarnation, which this eviction does not concern
    # The record stays, so that a new leader, too, tells this incarnation that it was evicted if it ever reports again.
    book.state.workers[event.worker] = WorkerRecord(
        incarnation=event.incarnation, verdict=EVICTED, reason=event.reason, since=event.at
    )


def worker_forgotten(book: JobBook, event: e.WorkerForgotten) -> None:
    book.state.workers.pop(event.worker, None)


def worker_record(book: JobBook, worker: str) -> WorkerRecord:
    record = book.state.workers.get(worker)
    if record is None:
        record = book.state.workers[worker] = WorkerRecord()
    return record


def worker_drained(book: JobBook, event: e.WorkerDrained) -> None:
    if event.drained:
        book.state.drained[event.worker] = DrainRecord(at=event.at, by=event.by, reason=event.reason)
    else:
        book.state.drained.pop(event.worker, None)


WORKER_FOLDS: Mapping[type[e.Event], Callable[[JobBook, Any], None]] = {
    e.ExtensionGranted: extension_granted,
    e.ExtensionDenied: extension_denied,
    e.ExtensionsReset: extensions_reset,
    e.WorkerJudged: worker_judged,
    e.WorkerEvicted: worker_evicted,
    e.WorkerForgotten: worker_forgotten,
    e.WorkerDrained: worker_drained,
}
