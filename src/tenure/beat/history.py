"""Keeps how an attempt's counter of beats grew, in a few points, however long the attempt runs. Pure: it is told the time."""

from __future__ import annotations

MOST_POINTS = 16


class BeatHistory:
    """When the points are too many, every second one goes and the next ones come half as often. So the points spread evenly over the attempt."""

    __slots__ = ("_due", "_every_s", "points")

    def __init__(self, every_s: float = 0.5) -> None:
        self._every_s, self._due = every_s, 0.0
        self.points: list[tuple[float, int]] = []
        """(seconds since the start, beats so far)."""

    def look(self, age_s: float, beats: int) -> None:
        """Notes the counter, if a point is due."""
        if age_s < self._due:
            return
        self._note(age_s, beats)
        if len(self.points) >= MOST_POINTS:
            del self.points[1::2]
            self._every_s *= 2
        self._due = age_s + self._every_s

    def end(self, age_s: float, beats: int) -> list[tuple[float, int]]:
        """Returns the points, and the counter at the end."""
        self._note(age_s, beats)
        return self.points

    def _note(self, age_s: float, beats: int) -> None:
        self.points.append((round(max(0.0, age_s), 1), beats))
