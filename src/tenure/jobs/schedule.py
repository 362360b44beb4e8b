"""Decides when jobs that come again are due, and which of their missed instants still run.

Pure. `due` returns the instants that have come since the last one; the leader fires or skips them, each with one append. The caller
passes a time zone as a function, because a pure folder does not know what clocks show in Berlin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import count, dropwhile, takewhile
from typing import NamedTuple

import msgspec

from tenure import bounds as b
from tenure.bound_checks import check
from tenure.errors import ConfigurationError, LimitError
from tenure.jobs.cron import Cron
from tenure.jobs.model import JobSubmission

LEAST_EVERY_S = 1.0
MOST_MISSED = 100
"""The most missed instants that still run, under `Missed.ALL`."""
_DAY_S = 86_400.0
_WINDOW_S = 3_600.0


class Missed(StrEnum):
    """Sets what becomes of instants that passed while no manager led."""

    LATEST = "latest"  # only the newest runs
    ALL = "all"  # each runs, up to the newest hundred
    SKIP = "skip"  # none runs that is more than `grace_s` late


class Overlap(StrEnum):
    """Sets what becomes of an instant while the run before it goes on."""

    SKIP = "skip"
    ALLOW = "allow"


Zone = Callable[[float], int]
"""Takes a Unix time, and returns the seconds by which local clocks are ahead of UTC."""


def utc(instant: float) -> int:
    return 0


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A job to submit at each instant of `cron` or of `every_s`. The ids of its runs are `name/instant`."""

    name: b.ScheduleName
    job: JobSubmission
    """The template; its `job_id` is not used."""
    cron: b.CronText = ""
    every_s: b.EverySeconds = 0.0
    """Fires at multiples of this since 1970, so that every leader computes the same instants."""
    zone: b.ZoneName = "UTC"
    missed: Missed = Missed.LATEST
    grace_s: b.Seconds = 60.0
    overlap: Overlap = Overlap.SKIP
    paused: bool = False
    until: b.UnixTime | None = None
    """Unix time after which nothing fires."""


class ScheduleRecord(msgspec.Struct, kw_only=True):
    """Holds a schedule, and what became of its instants."""

    schedule: Schedule
    since: float
    """Only instants after this time count: a new schedule owes no run of the past."""
    last_instant: float = 0.0
    last_job: str = ""
    fired: int = 0
    skipped: int = 0
    last_skipped: str = ""
    trouble: str = ""
    """The error for which the leader paused it. Empty again once a user sets the schedule anew."""

    @property
    def done_until(self) -> float:
        return max(self.since, self.last_instant)


class Due(NamedTuple):
    """The instants that have come, oldest first. All that are skipped come before all that fire."""

    skip: tuple[float, ...]
    fire: tuple[float, ...]


def validate(schedule: Schedule) -> None:
    """Raises for a schedule that cannot work, before it is written. The caller also checks its job as a submission, under the id of a run."""
    check(
        msgspec.structs.replace(schedule, job=msgspec.structs.replace(schedule.job, job_id=schedule.job.job_id or "-"))
    )
    if bool(schedule.cron) == bool(schedule.every_s):
        raise ConfigurationError(
            f"schedule {schedule.name!r} has {'both' if schedule.cron else 'neither'} of cron and every_s",
            remedy="Give one of them: cron='0 6 * * *', or every_s=3600",
        )
    if schedule.cron:
        cron = Cron.parse(schedule.cron)
        if cron.next_after(0) is None:
            raise ConfigurationError(f"the cron expression {schedule.cron!r} is never due", remedy="Mind its day")
    elif schedule.every_s < LEAST_EVERY_S:
        raise LimitError("every_s", schedule.every_s, f"at least {LEAST_EVERY_S:g} s")
    if schedule.missed is Missed.ALL and schedule.overlap is Overlap.SKIP:
        raise ConfigurationError(
            f"schedule {schedule.name!r} makes up for all missed runs, and skips a run while another goes on",
            remedy="Say overlap='allow' with missed='all': what is made up for starts at once",
        )


def instants(schedule: Schedule, after: float, zone: Zone) -> Iterator[float]:
    """Returns the instants of a schedule after a time, in order. There may be no last one."""
    end = math.inf if schedule.until is None else schedule.until
    found = (
        _multiples(schedule.every_s, after) if schedule.every_s else _by_cron(Cron.parse(schedule.cron), after, zone)
    )
    return takewhile(lambda instant: instant <= end, found)


def _multiples(every_s: float, after: float) -> Iterator[float]:
    first = math.floor(after / every_s)
    return dropwhile(lambda instant: instant <= after, (number * every_s for number in count(first)))


def _by_cron(cron: Cron, after: float, zone: Zone) -> Iterator[float]:
    """Walks from one change of the clocks to the next.

    When the clocks are set forward, instants in the hour that is left out fire once, at the change. When they are set back, a schedule
    that runs every hour goes on every hour, and one with fixed hours does not repeat them.
    """
    instant, offset = after, zone(after)
    minute = math.floor((after + offset) / 60)
    while (found := cron.next_after(minute)) is not None:
        wanted = found * 60.0 - offset
        change = _change(instant, wanted, offset, zone)
        if change is None:
            yield wanted
            instant, minute = wanted, found
            continue
        before, offset = offset, zone(change)
        instant = change
        if offset > before:
            minute = math.ceil((change + offset) / 60) - 1
            if found <= minute:
                yield change
                minute += 1  # the instant that was just yielded also stands for one that is due at the change itself
        else:
            repeated = change + (offset if cron.every_hour else before)
            minute = math.ceil(repeated / 60) - 1


def _change(start: float, end: float, offset: int, zone: Zone) -> float | None:
    """Returns the first whole second after `start` and up to `end` at which the clocks are set, or None."""
    low = start
    while zone(high := min(low + _DAY_S, end)) == offset:
        if high >= end:
            return None
        low = high
    first, last = math.floor(low), math.ceil(high)
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if zone(middle) == offset else (first, middle)
    return float(last)


def next_instant(record: ScheduleRecord, zone: Zone) -> float:
    """Returns when the leader has to look at the schedule next; infinity when it never fires again, or is paused."""
    return math.inf if record.schedule.paused else next(instants(record.schedule, record.done_until, zone), math.inf)


def due(record: ScheduleRecord, now: float, zone: Zone) -> Due:
    """Returns the instants since the last one that fired or was skipped, divided by the schedule's rule for missed ones."""
    come = _come(record.schedule, record.done_until, now, zone)
    fire = len(come)
    if record.schedule.missed is Missed.ALL:
        fire = min(fire, MOST_MISSED)
    elif come:
        in_time = record.schedule.missed is Missed.LATEST or now - come[-1] <= record.schedule.grace_s
        fire = 1 if in_time else 0
    return Due(tuple(come[: len(come) - fire]), tuple(come[len(come) - fire :]))


def _come(schedule: Schedule, after: float, now: float, zone: Zone) -> list[float]:
    """Returns the newest instants after `after` and up to `now`, at most one more than may fire.

    It widens its window step by step, so that it does not walk through years of minutes.
    """
    span = _WINDOW_S
    while True:
        start = max(after, now - span)
        found = list(takewhile(lambda instant: instant <= now, instants(schedule, start, zone)))
        if start == after or len(found) > MOST_MISSED:
            return found[-MOST_MISSED - 1 :]
        span *= 4
