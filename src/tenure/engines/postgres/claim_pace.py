"""Keeps claims fast while dead rows wait for vacuum.

Claimed and settled messages leave entries in the index until vacuum has been there; a claim that begins at the oldest entry walks over
all of them. So a claim begins at the place where the last one found something, and only now and then at the very
beginning, for what lies before it: unstarted work given back, a lease that ran out, a send that committed late. These are looks that
cost something only when there is something to walk over, so they are spaced by what the last one took.

This decides where to look first, never what is there: a claim that finds less than it was asked for looks everywhere.
"""

from __future__ import annotations

from tenure.engines.checked_mailbox import LostClaims

_FULL_EVERY_S = 0.5
_SHARE = 20.0
"""A full look takes at most one part in this many of the time."""
_SLOW_S = 0.02
_LOOK_AT_LEAST_EVERY_S = 1.0


class ClaimPace:
    """Hints that the consumers of one mailbox in one engine have learned. Threads may share it: a wrong hint costs a query."""

    def __init__(self) -> None:
        self._floor: float | None = None
        self._full_at = 0.0
        self._look_at = 0.0
        self.lost_claims: LostClaims[int] = LostClaims()

    def floor(self, now: float) -> float | None:
        """Where to begin: engine time, or None for the very beginning."""
        return self._floor if now < self._full_at else None

    def look_in(self, now: float) -> float:
        """In how many seconds to ask when the next message is due: 0 for now; not again at once if that was slow."""
        return max(0.0, self._look_at - now)

    def claimed(self, now: float, took: float, floor: float | None, first_due: float | None, *, filled: bool) -> None:
        if floor is None or not filled:
            self._full_at = now + max(_FULL_EVERY_S, _SHARE * took)
        # A little below, because times lose a fraction of a microsecond on their way.
        self._floor = first_due - 0.001 if filled and first_due is not None else None

    def found_nothing(self, now: float, took: float) -> None:
        """`took` is the server's part of it."""
        if took > _SLOW_S:
            self._look_at = now + min(_LOOK_AT_LEAST_EVERY_S, _SHARE * took)

    def moved_back(self) -> None:
        """Something was put before where we would look."""
        self._floor = None
