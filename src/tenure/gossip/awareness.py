"""How much a node trusts itself (Lifeguard's local health): 0 is well; each point makes it one interval more patient."""

from __future__ import annotations


class Awareness:
    """A score from 0 to `worst`."""

    __slots__ = ("_enabled", "score", "worst")

    def __init__(self, maximum: int, *, enabled: bool = True) -> None:
        self.worst = maximum - 1
        self.score = 0
        self._enabled = enabled

    def add(self, points: int) -> None:
        """Positive for signs that we are the slow one, negative for a probe that went well."""
        if self._enabled:
            self.score = min(self.worst, max(0, self.score + points))

    def scaled(self, seconds: float) -> float:
        """A time, as patient as we should be now."""
        return seconds * (self.score + 1)
