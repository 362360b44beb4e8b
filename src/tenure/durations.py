"""Spans of time as people say them: `timeout=hours(6)`. Everything that takes a span takes seconds."""

from __future__ import annotations


def seconds(count: float) -> float:
    """So many seconds."""
    return float(count)


def minutes(count: float) -> float:
    """So many minutes, in seconds."""
    return count * 60.0


def hours(count: float) -> float:
    """So many hours, in seconds."""
    return count * 3_600.0


def days(count: float) -> float:
    """So many days, in seconds."""
    return count * 86_400.0
