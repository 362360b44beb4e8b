"""Keeps how an attempt went by the looks of its supervisor, so that a beat costs nothing for it: its longest silence, and how its beats grew."""

from __future__ import annotations

from tenure.attempt_data import AttemptSilence
from tenure.beat.record import BeatReading, BeatRecord, Brake, Occupant
from tenure.clock import Clock

LEAST_RUN_S = 1.0


class GapWatch:
    """Follows the stall clock of one attempt. A silence counts when a later proof has ended it.

    Looks are rarer than beats can be. One new beat since the last look tells the silence exactly. Of several, the first came after that look, so
    the silence is known up to that look: it is told too short by less than the time between two looks.
    """

    __slots__ = ("_looked_at", "_since", "_steps", "longest_s")

    def __init__(self) -> None:
        self._since: float | None = None
        self._looked_at, self._steps = 0.0, 0
        self.longest_s = 0.0

    def look(self, since: float, steps: int, now: float) -> bool:
        """Takes a look: since when the stall clock runs, and the beats so far. Returns True when the longest silence grew."""
        before, self._since = self._since, since
        looked_at, self._looked_at = self._looked_at, now
        new, self._steps = steps - self._steps, steps
        if before is None or since <= before:
            return False
        gap = (since if new <= 1 else min(since, looked_at)) - before
        if gap <= self.longest_s:
            return False
        self.longest_s = gap
        return True


def silence_of(
    occupant: Occupant, record: BeatRecord, clock: Clock, reading: BeatReading | None = None
) -> AttemptSilence | None:
    """Returns how long an attempt was silent that ends now; None where a leader has no use for it.

    Work that runs for less than a second has no silence that a threshold could meet, and there is much of it: its record is not even read.
    """
    if not occupant.managed or not occupant.started_at or clock.boottime() - occupant.started_at < LEAST_RUN_S:
        return None
    reading = reading or record.read(cold=False)
    now, longest_s = clock.monotonic(), record.gap_of(reading.serial)
    held = reading.brake is not Brake.NONE  # then its stall clock stands still
    last_s = 0.0 if held else max(0.0, now - max(reading.beat_at, min(reading.silent_until, now)))
    return AttemptSilence(round(longest_s, 2), round(last_s, 2), occupant.stall_s, occupant.version, occupant.learned)


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
