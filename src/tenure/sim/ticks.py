"""Virtual time is counted in whole ticks of 2**-20 s, a little under a microsecond.

Whole numbers, so that every interpreter and machine agrees. A power of two, so that a tick is exact as a float of
seconds, up to Unix times of this century: a timer set for `when` never fires at a moment that reads earlier than `when`.
"""

from __future__ import annotations

import math

TICKS_PER_S = 1 << 20
NEVER = 1 << 62
"""A tick that no run reaches: what sleeps for `math.inf` waits for it."""


def to_ticks(seconds: float) -> int:
    """The first tick that is not before this many seconds."""
    scaled = seconds * TICKS_PER_S
    return NEVER if scaled >= NEVER else math.ceil(scaled)


def to_seconds(ticks: int) -> float:
    return ticks / TICKS_PER_S
