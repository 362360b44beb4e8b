"""Parses cron expressions and finds when they are due. Pure arithmetic: it knows no clock.

The caller passes a time zone as a function, because a pure folder does not know what clocks show in Berlin. A *civil minute* is a minute on a wall calendar, counted from 1970-01-01 00:00 of that calendar. `tenure.clock` says which instant it is.
Five fields (minute, hour, day of month, month, day of week), lists, ranges, steps, names, and the usual @words. When both days are
restricted, either suffices, as cron has always had it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count, dropwhile, takewhile
from typing import NamedTuple

from tenure.errors import ConfigurationError
from tenure.jobs.state_records import Missed, Schedule, ScheduleRecord

DAY = 1_440
_DAY_S = 86_400.0
WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MOST_MISSED = 100
"""The most missed instants that still run, under `Missed.ALL`."""
_WINDOW_S = 3_600.0
_LOOK_AHEAD_YEARS = 9
"""29 February may be eight years away, over a century that is no leap year."""


Zone = Callable[[float], int]
"""Takes a Unix time, and returns the seconds by which local clocks are ahead of UTC."""


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _WEEKDAYS),
)


class Cron(NamedTuple):
    """The minutes at which a schedule is due. `parse` makes one."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either_day: bool
    """True when both kinds of day are restricted. Then one of them suffices."""

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Returns the parsed expression. Raises `ConfigurationError`, naming the field, what is wrong with it, and what may stand there."""
        fields = WORDS.get(text.strip().lower(), text).split()
        if len(fields) != len(_FIELDS):
            raise ConfigurationError(
                f"the cron expression {text!r} has {len(fields)} fields",
                remedy=f"Write five (minute hour day month weekday), as '30 6 * * mon-fri', or one of {', '.join(WORDS)}",
            )
        minutes, hours, days, months, weekdays = (
            _values(text, written, field) for written, field in zip(fields, _FIELDS, strict=True)
        )
        return cls(
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            frozenset(days),
            frozenset(months),
            frozenset(day % 7 for day in weekdays),
            either_day=fields[2] != "*" and fields[4] != "*",
        )

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24

    def next_after(self, minute: int) -> int | None:
        """Returns the first civil minute after this one that is due; None when there is none (30 February)."""
        day, rest = divmod(minute + 1, DAY)
        found = self._within_day(rest) if self._on(day) else None
        for _ in range(_LOOK_AHEAD_YEARS * 366):
            if found is not None:
                return day * DAY + found
            day += 1
            found = self._within_day(0) if self._on(day) else None
        return None

    def _on(self, day: int) -> bool:
        _, month, of_month = civil_date(day)
        if month not in self.months:
            return False
        by_month, by_week = of_month in self.days, weekday(day) in self.weekdays
        return by_month or by_week if self.either_day else by_month and by_week

    def _within_day(self, earliest: int) -> int | None:
        for hour in self.hours:
            for minute in self.minutes:
                if hour * 60 + minute >= earliest:
                    return hour * 60 + minute
        return None


def weekday(day: int) -> int:
    """Returns the day of the week, 0 for Sunday. 1970-01-01 was a Thursday."""
    return (day + 4) % 7


def civil_date(day: int) -> tuple[int, int, int]:
    """Returns year, month and day of month of the day with this number; day 0 is 1970-01-01. Inside, years begin in March."""
    era, of_era = divmod(day + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = era * 400 + year_of_era + (1 if month <= 2 else 0)
    return year, month, of_year - (153 * shifted + 2) // 5 + 1


def _values(text: str, written: str, field: _Field) -> set[int]:
    values: set[int] = set()
    for part in written.split(","):
        span, slash, step = part.partition("/")
        if slash and (not step.isdecimal() or int(step) == 0):
            raise _wrong(text, field, part)
        first, last = _span(text, span, field, part, stepped=bool(slash))
        if first > last:
            raise _wrong(text, field, part)
        values.update(range(first, last + 1, int(step) if slash else 1))
    return values


def _span(text: str, span: str, field: _Field, part: str, *, stepped: bool) -> tuple[int, int]:
    if span == "*":
        return field.least, field.most
    low, dash, high = span.partition("-")
    first = _one(text, low, field, part)
    if dash:
        last = _one(text, high, field, part)
        # A week may end on Sunday: fri-sun is 5-7.
        return (first, 7) if field.most == 7 and last == 0 and first > 0 else (first, last)
    return first, field.most if stepped else first


def _one(text: str, word: str, field: _Field, part: str) -> int:
    if word.lower() in field.words:
        return field.words.index(word.lower()) + field.least
    if not word.isdecimal() or not field.least <= int(word) <= field.most:
        raise _wrong(text, field, part)
    return int(word)


def _wrong(text: str, field: _Field, part: str) -> ConfigurationError:
    words = f", or {field.words[0]} to {field.words[-1]}" if field.words else ""
    return ConfigurationError(
        f"the {field.name} of the cron expression {text!r} has {part!r}",
        remedy=f"Write {field.least} to {field.most}{words}; lists as 1,2, ranges as 1-5, steps as */10",
    )


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


def instants(schedule: Schedule, after: float, zone: Zone) -> Iterator[float]:
    """Returns the instants of a schedule after a time, in order. There may be no last one."""
    end = math.inf if schedule.until is None else schedule.until
    found = (
        _multiples(schedule.every_s, after) if schedule.every_s else _by_cron(Cron.parse(schedule.cron), after, zone)
    )
    return takewhile(lambda instant: instant <= end, found)


def next_instant(record: ScheduleRecord, zone: Zone) -> float:
    """Returns when the leader has to look at the schedule next; infinity when it never fires again, or is paused."""
    return math.inf if record.schedule.paused else next(instants(record.schedule, record.done_until, zone), math.inf)


class Due(NamedTuple):
    """The instants that have come, oldest first. All that are skipped come before all that fire."""

    skip: tuple[float, ...]
    fire: tuple[float, ...]


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
