"""The election: one leader at a time, in epochs that only grow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class Term(NamedTuple):
    """The right to lead for a while."""

    epoch: int
    candidate: str
    ttl: float
    safe_until: float
    """Our own boot time after which we must not act as the leader: asked-at + ttl - margin."""


class Leader(NamedTuple):
    """The holder of a term, as every process may read it."""

    candidate: str
    epoch: int
    expires_in: float


class Election(ABC):
    """One leader at a time. Epochs only grow: over crashes, clean stops and lost engine data."""

    name: str

    @abstractmethod
    def campaign(self, candidate: str, ttl: float, *, above: int = 0) -> Term | None:
        """Become the leader, with an epoch above the last one and above `above` (the journal's); None when somebody leads.

        A candidate that leads already and campaigns again (it restarted, or lost the answer) gets a new, higher epoch.
        """

    @abstractmethod
    def renew(self, term: Term) -> Term:
        """Lead for another ttl, in the same epoch. Raises `TermLostError`."""

    @abstractmethod
    def resign(self, term: Term) -> None:
        """Stop leading now, so that the next one need not wait. Harmless when the term is over."""

    @abstractmethod
    def current(self) -> Leader | None: ...


def term_margin(ttl: float) -> float:
    """How much earlier than the engine the holder takes its own term as over: clocks run at slightly different rates."""
    return min(1.0, ttl * 0.1)
