"""Parses cron expressions and finds when they are due, in whole minutes of a calendar. Pure arithmetic: it knows no clock and no time zone.

A *civil minute* is a minute on a wall calendar, counted from 1970-01-01 00:00 of that calendar. `tenure.zones` says which instant it is.
Five fields (minute, hour, day of month, month, day of week), lists, ranges, steps, names, and the usual @words. When both days are
restricted, either suffices, as cron has always had it.
"""

from __future__ import annotations

from typing import NamedTuple

from tenure.errors import ConfigurationError

DAY = 1_440
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
_LOOK_AHEAD_YEARS = 9
"""29 February may be eight years away, over a century that is no leap year."""


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
