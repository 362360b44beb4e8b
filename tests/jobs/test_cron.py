"""Cron expressions on a calendar without zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import ConfigurationError
from tenure.jobs.cron import Cron, civil_date, weekday


def minute(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) // 60


def told(value: int | None) -> str:
    return "never" if value is None else datetime.fromtimestamp(value * 60, UTC).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * * * *", "2026-11-15 10:00", "2026-11-15 10:01"),
        ("30 6 * * *", "2026-11-15 06:30", "2026-11-16 06:30"),
        ("30 6 * * *", "2026-11-15 06:29", "2026-11-15 06:30"),
        ("*/15 * * * *", "2026-11-15 10:46", "2026-11-15 11:00"),
        ("5/20 * * * *", "2026-11-15 10:06", "2026-11-15 10:25"),
        ("0 9-17/4 * * *", "2026-11-15 09:00", "2026-11-15 13:00"),
        ("0 0 * * mon-fri", "2026-11-13 00:00", "2026-11-16 00:00"),
        ("0 0 * * 7", "2026-11-15 00:00", "2026-11-22 00:00"),
        ("0 0 * * fri-sun", "2026-11-15 00:00", "2026-11-20 00:00"),
        ("0 0 31 * *", "2026-11-01 00:00", "2026-12-31 00:00"),
        ("0 0 29 feb *", "2096-03-01 00:00", "2104-02-29 00:00"),
        ("0 0 1,15 * wed", "2026-11-15 00:00", "2026-11-18 00:00"),
        ("0 0 1 * wed", "2026-11-29 00:00", "2026-12-01 00:00"),
        ("@hourly", "2026-11-15 10:00", "2026-11-15 11:00"),
        ("@Yearly", "2026-11-15 10:00", "2027-01-01 00:00"),
        ("0 0 30 2 *", "2026-11-15 10:00", "never"),
    ],
)
def test_the_next_time_that_is_due(expression: str, after: str, expected: str) -> None:
    assert told(Cron.parse(expression).next_after(minute(after))) == expected


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
        ("60 * * * *", "minute of the cron expression '60 [*] [*] [*] [*]' has '60'"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("a * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("1- * * * *", "minute"),
        ("² * * * *", "minute"),
        ("@never", "has 1 fields"),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(expression: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as raised:
        Cron.parse(expression)
    assert raised.value.remedy


@given(st.integers(-200_000, 2_000_000))
def test_days_have_the_dates_that_the_calendar_gives_them(day: int) -> None:
    expected = datetime(1970, 1, 1, tzinfo=UTC).date() + timedelta(days=day)
    assert civil_date(day) == (expected.year, expected.month, expected.day)
    assert weekday(day) == expected.isoweekday() % 7


_FIELD = st.sampled_from(["*", "*/7", "0-5", "3", "1,4", "2-5/2"])


@given(
    st.tuples(_FIELD, _FIELD, st.sampled_from(["*", "1", "28-31", "*/5"]), st.sampled_from(["*", "2", "1-6"]), _FIELD),
    st.integers(0, 40_000_000),
)
def test_nothing_that_is_due_is_passed_over(fields: tuple[str, ...], start: int) -> None:
    """Against a walk through every minute of the next days."""
    cron = Cron.parse(" ".join(fields))
    found = cron.next_after(start)

    def matches(at: int) -> bool:
        when = datetime.fromtimestamp(at * 60, UTC)
        by_month, by_week = when.day in cron.days, when.isoweekday() % 7 in cron.weekdays
        on = (by_month or by_week) if cron.either_day else (by_month and by_week)
        return on and when.month in cron.months and when.hour in cron.hours and when.minute in cron.minutes

    assert found is not None
    assert found > start
    assert matches(found)
    assert not any(matches(at) for at in range(start + 1, min(found, start + 3_000)))
