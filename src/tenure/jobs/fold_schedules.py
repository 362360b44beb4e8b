"""Folds the events about schedules into the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tenure.jobs import events as e
from tenure.jobs.schedule import ScheduleRecord

if TYPE_CHECKING:
    from tenure.jobs.book import JobBook


def cron_fired(book: JobBook, event: e.CronFired) -> None:
    if record := book.state.schedules.get(event.schedule):
        book.size.schedule_left(event.schedule, record)
        record.last_instant = max(event.instant, record.last_instant)
        record.last_job, record.fired = event.job_id, record.fired + 1
        book.size.schedule_came(event.schedule, record)


def schedule_set(book: JobBook, event: e.ScheduleSet) -> None:
    name = event.schedule.name
    record = book.state.schedules.get(name)
    if record is None:
        record = book.state.schedules[name] = ScheduleRecord(schedule=event.schedule, since=event.at)
    else:
        book.size.schedule_left(name, record)
        record.schedule, record.since = event.schedule, event.at
        record.trouble = str(event.evidence.get("error", ""))
    book.size.schedule_came(name, record)


def schedule_removed(book: JobBook, event: e.ScheduleRemoved) -> None:
    book.size.schedule_left(event.schedule, book.state.schedules.pop(event.schedule))


def instants_skipped(book: JobBook, event: e.InstantsSkipped) -> None:
    record = book.state.schedules[event.schedule]
    book.size.schedule_left(event.schedule, record)
    record.last_instant = max(event.until, record.last_instant)
    record.skipped, record.last_skipped = record.skipped + event.count, event.reason
    book.size.schedule_came(event.schedule, record)


SCHEDULE_FOLDS: Mapping[type[e.Event], Callable[[JobBook, Any], None]] = {
    e.CronFired: cron_fired,
    e.ScheduleSet: schedule_set,
    e.ScheduleRemoved: schedule_removed,
    e.InstantsSkipped: instants_skipped,
}
