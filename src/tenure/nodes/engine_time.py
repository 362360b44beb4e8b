"""Tells the engine's time without asking the engine each time: it anchors this machine's boot time to it now and then.

Times in the journal are the engine's (DESIGN.md, rule 6), and a wall clock that is an hour off must move no deadline. Between two anchors
this machine's clock only measures a span. `now` never goes back, not even when an anchor shows that this machine ran ahead.
"""

from __future__ import annotations

from tenure.clock import Clock
from tenure.engines.aio import Calls
from tenure.engines.contracts import Engine
from tenure.errors import EngineUnavailableError


class EngineTime:
    """The engine's time. Call `refresh` now and then, and `now` at any time after the first `refresh`."""

    def __init__(self, engine: Engine, calls: Calls, clock: Clock) -> None:
        self._engine, self._calls, self._clock = engine, calls, clock
        self._offset: float | None = None
        self._last = 0.0
        self.uncertainty_s = 0.0
        """Half of the round trip of the last anchor: the most by which the anchor may be wrong."""

    async def refresh(self) -> None:
        asked = self._clock.boottime()
        theirs = await self._calls.run(self._engine.now)
        answered = self._clock.boottime()
        # The engine read its clock at some moment between the two, so the middle is off by half of the round trip at most.
        self._offset = theirs - (asked + answered) / 2
        self.uncertainty_s = (answered - asked) / 2

    def now(self) -> float:
        if self._offset is None:
            raise EngineUnavailableError(
                "the engine's time is not known yet",
                remedy="Ask again: the node reads it when the engine answers for the first time",
            )
        self._last = max(self._last, self._clock.boottime() + self._offset)
        return self._last

    @property
    def skew_s(self) -> float:
        """The seconds that this machine's wall clock is ahead of the engine's. It is shown to people; no deadline uses it."""
        return self._clock.wall() - self.now()
