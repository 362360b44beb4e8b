"""Decides whether work that beats also gets somewhere (decision 0316). Pure: it is told the time and given counters.

A beat says that the work's own thread runs. *Novelty* says that the work has something that it did not have before: an item, a higher
fraction, another checkpoint, output. Work that has once counted what it does must go on counting: beats without novelty for the stuck
threshold are *spinning*, and end like a stall. Work that only ever beats is judged by its beats.

`NoveltyMark` is the work's side and says what is new. `ProofClock` is the side of whoever watches, and says when too little is. The promise
is "not by accident", never "cannot be faked".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tenure.errors import ConfigurationError

STUCK_S: Final = 120.0
"""The least stuck threshold, where none was chosen."""
_ALMOST: Final = 0.9
"""A count that got this far was finished, as far as a fraction tells: many loops never say 1.0."""
UNPROVEN: Final = (
    "unproven: beats only. Say how far it is, with ctx.track(items), ctx.beat(completed_items=...) or ctx.checkpoint(...), "
    'or declare it with @workflow(proof="beat")'
)


class Proof(StrEnum):
    """The proof that a workflow has to bring, where its author fixes it: `@workflow(proof=...)`."""

    BEAT = "beat"  # its beats are proof, whatever it counts
    PROGRESS = "progress"  # it shows something new within the stuck threshold, from the start

    @classmethod
    def _missing_(cls, value: object) -> Proof:
        raise ConfigurationError(f"proof is {value!r}", remedy="Choose 'beat' or 'progress', or leave it out")


def stuck_threshold(stall_s: float, chosen_s: float | None = None) -> float:
    """Returns the seconds that work may beat without anything new."""
    return chosen_s or max(STUCK_S, 2 * stall_s)


def must_show_news(mark: int, proof: str) -> bool:
    """Returns True where beats alone are no progress: the work counts what it does, and has more to show, or its author says so."""
    return proof == Proof.PROGRESS or (bool(mark & 1) and proof != Proof.BEAT)


class NoveltyMark:
    """The high-water mark of one attempt. `word` changes whenever something is new; its lowest bit says that more has to follow."""

    __slots__ = ("_fraction", "_items", "_total", "bound", "count")

    def __init__(self) -> None:
        self.count = 0
        """The new things so far."""
        self.bound = False
        """True while an unfinished count, or saved work, says that more has to come."""
        self._items, self._total, self._fraction = 0, 0, 0.0

    @property
    def word(self) -> int:
        return self.count << 1 | self.bound

    def items(self, completed: int, total: int) -> bool:
        """Takes a count of items (`total` is 0 where nobody knows it); returns True when it is news.

        A count may begin anew after the last one was finished, and where it counts to another total. Falling back and coming up to the
        same place again is what a loop does that fails and starts over: that is no news.
        """
        fell = completed < self._items
        if not (
            completed > self._items or (fell and (total != self._total or self._finished(self._items, self._total)))
        ):
            return False
        self._items, self._total = completed, total
        self.show(binds=not total or completed < total)
        return True

    def fraction(self, fraction: float) -> bool:
        """Takes a fraction; returns True when it is higher than before, or the first of a new count."""
        if not (fraction > self._fraction or (fraction < self._fraction and self._fraction >= _ALMOST)):
            return False
        self._fraction = fraction
        self.show(binds=fraction < 1.0)
        return True

    def begin_count(self) -> None:
        """Notes that another count begins: its first item is news, whatever was counted before."""
        self._items, self._total, self._fraction = 0, 0, 0.0

    def copy(self, word: int) -> None:
        """Takes the state of another mark over, as it was written to shared memory."""
        self.count, self.bound = word >> 1, bool(word & 1)

    def end_count(self) -> None:
        """Notes that a loop over items came to its end: what follows is judged by its beats, until it shows something new."""
        self.bound = False

    def show(self, *, binds: bool) -> None:
        """Records one new thing. A line of a log is one that binds to nothing: work that says that it starts need not go on talking."""
        self.count += 1
        self.bound = binds

    def output(self) -> None:
        """Records new output. It proves something, and promises nothing."""
        self.count += 1

    @staticmethod
    def _finished(items: int, total: int) -> bool:
        return total > 0 and (items >= total - 1 or items >= _ALMOST * total)


class ShownProof(NamedTuple):
    """The proof that work shows at one look."""

    beats: int
    mark: int
    """`NoveltyMark.word`."""
    excused: bool = False
    """True in a declared silence and while it polls, as it declared."""


class Spinning(NamedTuple):
    """Work that beat for too long without anything new."""

    beats: int
    seconds: float

    def reason(self, place: str, stuck_s: float) -> str:
        """Returns the evidence in words; `place` is where the work stood all the time."""
        return (
            f"spinning: {self.beats} beats in {_span(self.seconds)}, {place} throughout; "
            f"it may go on for {stuck_s:g} s without anything new"
        )


def place_of(items: int, total: int, fraction: float) -> str:
    """Returns where work stands, in words."""
    if total:
        return f"item {items} of {total}"
    if items:
        return f"item {items}"
    return f"{fraction:.0%} done" if fraction > 0 else "nothing new"


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


@dataclass(slots=True)
class ProofClock:
    """Counts the time since the last new thing of one attempt. An excused time holds the clock; it does not set it back."""

    _mark: int = -1
    _since: float = 0.0
    _beats: int = 0
    _looked_at: float = 0.0

    def look(self, shown: ShownProof, now: float, *, stuck_s: float, proof: str = "") -> Spinning | None:
        """Returns the evidence when the work spins. `proof` is a `Proof`, where the author of the work fixed one."""
        bound = must_show_news(shown.mark, proof)
        if shown.mark != self._mark or not bound:
            self._mark, self._since, self._beats = shown.mark, now, shown.beats
        elif shown.excused:
            self._since += now - self._looked_at
        self._looked_at = now
        # Work without a single beat is silent, not spinning: the stall threshold ends it.
        if now - self._since < stuck_s or shown.beats <= self._beats:
            return None
        return Spinning(shown.beats - self._beats, now - self._since)
