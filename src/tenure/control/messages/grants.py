"""The grants of time that a job, an attempt or a worker holds, for people and programs."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class GrantKind(StrEnum):
    """The kind of a grant, as DESIGN.md's table names it."""

    LEASE = "lease"  # one delivery: then others may take it
    STALL = "stall"  # one attempt without a beat: then its slot is killed
    HEALTHCHECK = "healthcheck"  # one worker without proof: then it is suspect, and evicted
    STUCK = "stuck"  # one job of which nothing advances: then it is timed out
    DEADLINE = "deadline"  # one job, whatever it does, with the extensions that it earned
    REST = "rest"  # not a grant but a wait: then the next attempt may begin


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Time that is left, unless somebody proves that they advance."""

    kind: GrantKind
    until: float
    """The engine's time at which it is over: compare it with the `now` of the same answer."""
    span_s: float = 0.0
    """How much there is of it when it was just earned; 0 where that is not known."""
    note: str = ""


def shifted(grants: tuple[Grant, ...], seconds: float) -> tuple[Grant, ...]:
    """Returns the grants with their times moved to a clock that is ahead of the reporter's by `seconds`."""
    return tuple(msgspec.structs.replace(one, until=one.until + seconds) for one in grants)
