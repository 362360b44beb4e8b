"""Decides when a supervisor looks at its slots: ten times a second while there is something to watch, and seldom while it rests.

A supervisor rests while nothing was claimed, nothing runs and every slot is there. It is woken by whatever ends that: a frame of a slot, the end of one,
a call of another thread, and work that another thread hands over, which reads `resting`.
"""

from __future__ import annotations

from collections.abc import Callable

REST_S = 0.5
"""A slot starts nothing while its supervisor has not looked for 3 s, so a rest has to be much shorter."""


class LookTimes:
    """Call it from the supervisor's thread; `resting` may be read by any."""

    def __init__(self, tick_s: float) -> None:
        self._tick_s, self._next = tick_s, 0.0
        self.resting = False

    def wait_s(self, now: float) -> float:
        """Returns the seconds until the next look."""
        return max(0.0, self._next - now)

    def looked(self, now: float, has_nothing_to_watch: Callable[[], bool]) -> None:
        """Notes a look. The question is asked with `resting` set: who hands work over after the answer sees it, and wakes the supervisor."""
        self.resting = True
        self.resting = has_nothing_to_watch()
        self._next = now + (max(REST_S, self._tick_s) if self.resting else self._tick_s)

    def disturbed(self, now: float) -> None:
        """Ends a rest before its time."""
        if self.resting:
            self.resting = False
            self._next = min(self._next, now + self._tick_s)
