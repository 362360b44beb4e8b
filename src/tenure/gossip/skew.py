"""How far the clocks of other nodes are from ours, from the time that an ack carries.

As NTP does it: the answer was written somewhere between our ping and its ack, so its clock is off by the difference to
the middle, give or take half of the round trip. The sample with the shortest round trip is the best one. Deadlines never
depend on it: it is for people, and for explaining evidence.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import NamedTuple

SAMPLES = 8


class Skew(NamedTuple):
    """Their clock minus ours, and how wrong that can be."""

    offset_s: float
    error_s: float


class SkewEstimates:
    """The last samples of each node."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Skew]] = {}

    def sample(self, node: str, *, sent: float, received: float, theirs: float) -> None:
        """Wall times: ours when the ping left and when the ack came, theirs between."""
        trip = received - sent
        if trip < 0:  # our own wall clock was set back meanwhile
            return
        kept = self._samples.setdefault(node, deque(maxlen=SAMPLES))
        kept.append(Skew(theirs - (sent + received) / 2, trip / 2))

    def of(self, node: str) -> Skew | None:
        """The best estimate, or None before the first ack."""
        kept = self._samples.get(node)
        return min(kept, key=lambda skew: skew.error_s) if kept else None

    def ours(self) -> float | None:
        """How far our clock is from the pool's middle: positive when we are ahead."""
        best = [skew for node in self._samples if (skew := self.of(node)) is not None]
        return -median(skew.offset_s for skew in best) if best else None

    def forget(self, node: str) -> None:
        self._samples.pop(node, None)
