"""Checks numbers from outside before a decision rests on them.

NaN compares as neither less nor greater, so an unchecked one slips through every threshold: it is refused at the door.
"""

from __future__ import annotations

import math

from tenure.errors import LimitError


def finite(field: str, value: float, *, least: float = 0.0, most: float = math.inf) -> float:
    """The value, when it is a real number within the bounds; `LimitError` names the field otherwise."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not least <= value <= most:
        allowed = f"a finite number from {least:g} up" if most == math.inf else f"a number from {least:g} to {most:g}"
        raise LimitError(field, repr(value), allowed)
    return value


def whole(field: str, value: int, *, least: int = 0, most: int | None = None) -> int:
    """The value, when it is a whole number within the bounds; `LimitError` names the field otherwise."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number or value < least or (most is not None and value > most):
        allowed = f"a whole number from {least} up" if most is None else f"a whole number from {least} to {most}"
        raise LimitError(field, repr(value), allowed)
    return value


def name(field: str, value: str, *, most_bytes: int) -> str:
    """The value, when it is printable text that is neither empty nor too long for a datagram."""
    text = isinstance(value, str) and value != "" and value.isprintable()
    if not text or len(value.encode(errors="surrogatepass")) > most_bytes:
        raise LimitError(field, repr(value)[:80], f"printable text of 1 to {most_bytes} bytes")
    return value
