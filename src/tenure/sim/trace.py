"""Records the events of a run in order: the evidence of a failure, and by its hash the proof that two runs are the same.

Only whole numbers and text that the seed decides go in: no addresses, no real time, nothing that depends on hash order.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator

from tenure.sim.ticks import to_seconds

_FOLD = 4_096


class Trace:
    """A list of (tick, who, what), hashed as it grows."""

    def __init__(self, *, keep: int | None = 20_000) -> None:
        self.marks = 0
        """The number of events so far that may have changed the state which an invariant reads."""
        self.events = 0
        self._kept: deque[tuple[int, str, str]] = deque(maxlen=keep)
        self._unhashed: list[tuple[int, str, str]] = []
        self._digest = hashlib.blake2b(digest_size=16)

    def record(self, tick: int, who: str, what: str) -> None:
        """An event that invariants are checked after."""
        self.marks += 1
        self.note(tick, who, what)

    def note(self, tick: int, who: str, what: str) -> None:
        """An event that changes no state that invariants look at: a datagram on its way."""
        self.events += 1
        event = (tick, who, what)
        self._kept.append(event)
        self._unhashed.append(event)
        if len(self._unhashed) >= _FOLD:
            self._fold()

    def _fold(self) -> None:
        self._digest.update("".join(f"{tick} {who} {what}\n" for tick, who, what in self._unhashed).encode())
        self._unhashed.clear()

    def digest(self) -> str:
        """32 hexadecimal digits that two runs share when everything recorded is the same."""
        self._fold()
        return self._digest.hexdigest()

    def lines(self, last: int | None = None) -> Iterator[str]:
        """The events that were kept, as a person reads them."""
        kept = list(self._kept)
        for tick, who, what in kept if last is None else kept[-last:]:
            yield f"{to_seconds(tick):>12.6f}  {who:<10} {what}"
