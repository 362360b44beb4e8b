"""Decides the requests that an overloaded gate turns away: new work of low priority first, then all new work and requests that only inform.

Never a cancel, a result, a report or a timeout: turning those away would make the load last longer. Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tenure.health.overload import OverloadState


class Asked(StrEnum):
    """Kinds of requests, from the first to be turned away to those that never are."""

    SUBMIT = "submit"
    INFORM = "inform"  # lists and explanations
    VITAL = "vital"  # cancels, results, reports, timeouts, probes


_LOWEST: Final = {OverloadState.HEALTHY: float("-inf"), OverloadState.BUSY: 0.0, OverloadState.STRESSED: 1.0}
"""The lowest priority that is still taken. 0 is what a job has that asks for none."""


_RETRY_AFTER_S: Final = {
    OverloadState.HEALTHY: 1.0,
    OverloadState.BUSY: 2.0,
    OverloadState.STRESSED: 5.0,
    OverloadState.OVERLOADED: 10.0,
}


def retry_after_s(state: OverloadState) -> float:
    """Returns the seconds that a refused caller should stay away: the worse the overload, the longer the recovery."""
    return _RETRY_AFTER_S[state]


def what_passes(state: OverloadState, asked: Asked) -> str:
    """Returns what a refused caller could do instead of waiting; empty where nothing helps."""
    if asked is Asked.SUBMIT and state in (OverloadState.BUSY, OverloadState.STRESSED):
        return f"or submit it with priority {_LOWEST[state]:.0f} or above"
    return ""


def why_shed(state: OverloadState, asked: Asked, priority: int = 0) -> str:
    """Empty when it may pass."""
    if asked is Asked.VITAL:
        return ""
    if state is OverloadState.OVERLOADED:
        return "the gate is overloaded and takes nothing new"
    if asked is Asked.SUBMIT and priority < _LOWEST[state]:
        return f"the gate is {state} and takes jobs of priority {_LOWEST[state]:.0f} and above; this one has {priority}"
    return ""
