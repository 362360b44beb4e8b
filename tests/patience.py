"""Waiting in tests: for the event itself, and never for a time by which it should have happened.

A machine that is busy with other work is no fault. So there is one patience for the whole suite, much longer than anything takes that works, and a test
that fails by it names what did not happen. Bars on time are in bench/.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

PATIENCE_S = 180.0
"""What happens in a moment on a quiet machine may take this long on a busy one."""

FoundT = TypeVar("FoundT")
Why = Callable[[], str] | str


def wait_until(true: Callable[[], FoundT], why: Why = "it") -> FoundT:
    """Returns what `true` found, as soon as that is true. `why` names what is waited for, or tells what the processes said."""
    begun = time.monotonic()
    while not (found := true()):
        time.sleep(_pause_s(begun, why))
    return found


async def wait_until_async(true: Callable[[], FoundT], why: Why = "it") -> FoundT:
    """Does the same on an event loop, which runs on meanwhile."""
    begun = time.monotonic()
    while not (found := true()):
        await asyncio.sleep(_pause_s(begun, why))
    return found


def _pause_s(begun: float, why: Why) -> float:
    """Returns how long to wait before the next look: the longer it takes, the seldomer, because each look may cost a process some work."""
    waited = time.monotonic() - begun
    if waited > PATIENCE_S:
        pytest.fail(f"it did not happen within {PATIENCE_S:g} s: {why if isinstance(why, str) else why()}")
    return min(0.1, 0.005 + waited / 20)
