"""Puts a span of time into words. It imports nothing, because clients import it."""

from __future__ import annotations


def seconds(value: float) -> str:
    """Returns a span of time as people say it."""
    if value < 120:
        return f"{value:g} s" if value == round(value, 1) else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
