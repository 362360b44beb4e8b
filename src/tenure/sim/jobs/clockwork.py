"""Virtual time for pure state machines: a heap of what happens next, one seed for all chance, and a network that fails.

The kernel of `tenure.sim` runs real asyncio nodes. Here there is nothing to await: a run of some hundred events takes
milliseconds, so that tens of thousands of schedules fit into a test.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


class BrokenPromise(AssertionError):
    """A run did what must never happen."""


class Clockwork:
    """What happens when."""

    def __init__(self, seed: int, *, story: bool = False) -> None:
        self.random = Random(seed)  # noqa: S311  chance here is for schedules, not for secrets
        self.now = 0.0
        self.events = 0
        self.lines: list[str] | None = [] if story else None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._tickets = 0

    def after(self, delay: float, act: Callable[..., None], *arguments: Any) -> None:
        self._tickets += 1
        heapq.heappush(self._heap, (self.now + delay, self._tickets, act, arguments))

    def step(self) -> bool:
        """Let the next thing happen; False when nothing is left."""
        if not self._heap:
            return False
        self.now, _, act, arguments = heapq.heappop(self._heap)
        self.events += 1
        act(*arguments)
        return True

    def tell(self, line: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.now:9.3f}  {line}")

    def require(self, holds: bool, promise: str) -> None:
        if not holds:
            raise BrokenPromise(promise)


class Wire:
    """Between one datacenter and the gates: slow, lossy, doubling, reordering, and at times cut."""

    def __init__(self, clockwork: Clockwork, *, loss: float, double: float, slow: float) -> None:
        self.clockwork = clockwork
        self.loss, self.double, self.slow = loss, double, slow
        self.up = True

    def send(self, deliver: Callable[[Any], None], message: Any) -> None:
        clockwork = self.clockwork
        draw = clockwork.random.random
        if not self.up or draw() < self.loss:
            return
        # A long tail: some messages come long after those that were sent later.
        clockwork.after(self.slow * (0.02 + draw() ** 8), deliver, message)
        if draw() < self.double:
            clockwork.after(self.slow * draw(), deliver, message)
