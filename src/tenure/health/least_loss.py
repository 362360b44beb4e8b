"""Decides when attempts leave a worker that must go, so that the least work is lost (decision 0486). Pure: it is given marks, and told the time.

Work since the last durable mark (a checkpoint or a recorded step) is done again elsewhere. An attempt that has just saved loses nothing, so it goes
first. One whose next mark comes in time waits for it. One whose next mark comes too late goes now, because its loss only grows.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, NamedTuple, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

JUST_SAVED_S = 3.0
"""A mark that was seen so short a time ago was saved just now: reports come once a second."""
JUST_SAVED_SHARE = 0.05
"""Or so small a part of the usual time between two marks ago."""


class Saved(NamedTuple):
    """The marks of one attempt, as far as they were seen."""

    mark: int
    since: float
    """When the mark was first seen; when the attempt began, or was first heard of, where it has none."""
    every_s: float = 0.0
    """The longest time between two marks; 0 before the first one."""


class MarkWatch(Generic[KeyT]):
    """Follows the durable marks of attempts. It is the memory of one leader, or of one supervisor."""

    def __init__(self) -> None:
        self._saved: dict[KeyT, Saved] = {}

    def look(self, key: KeyT, mark: int, now: float, began: float | None = None) -> None:
        """Takes the newest mark of an attempt. `began`: when it began, where that is known."""
        known = self._saved.get(key)
        if known is None:
            self._saved[key] = Saved(mark, now if mark or began is None else min(now, began))
        elif mark != known.mark:
            self._saved[key] = Saved(mark, now, max(known.every_s, now - known.since))

    def forget(self, key: KeyT) -> None:
        self._saved.pop(key, None)

    def keep(self, keys: Collection[KeyT]) -> None:
        """Forgets every attempt that is not among these."""
        for key in [key for key in self._saved if key not in keys]:
            del self._saved[key]

    def saved(self, key: KeyT) -> Saved | None:
        return self._saved.get(key)

    def loss_s(self, key: KeyT, now: float) -> float:
        """Returns the seconds of work that would be lost if the attempt ended now."""
        known = self._saved.get(key)
        return max(0.0, now - known.since) if known is not None else 0.0

    def leaving(self, keys: Collection[KeyT], now: float, until: float) -> list[KeyT]:
        """Returns those that leave now, of attempts that all have to by `until`: the least loss first."""
        going = [key for key in keys if _leaves(self._saved.get(key) or Saved(0, now), now, until)]
        return sorted(going, key=lambda key: self.loss_s(key, now))


def _leaves(saved: Saved, now: float, until: float) -> bool:
    loss = now - saved.since
    if now >= until:
        return True
    if saved.mark and loss <= max(JUST_SAVED_S, JUST_SAVED_SHARE * saved.every_s):
        return True
    # The next mark comes too late, so waiting only adds to what is lost. Of work that never saved nobody knows: it may complete.
    return bool(saved.every_s) and saved.since + saved.every_s > until
