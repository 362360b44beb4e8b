"""Three independent signals and the decision matrix over them (document 001).

Liveness asks whether the process answers, readiness whether it can take work, progress whether work moves. This file
holds the matrix and what the three kinds of nodes share; it knows no fleet, no history and no deadline.

It also checks numbers from outside before a decision rests on them. NaN compares as neither less nor greater, so an
unchecked one slips through every threshold: it is refused at the door.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, runtime_checkable

from tenure.clock import Clock, SystemClock
from tenure.errors import LimitError


def finite(field: str, value: float, *, least: float = 0.0, most: float = math.inf) -> float:
    """Returns the value when it is a real number within the bounds. Otherwise it raises `LimitError`, which names the field."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not least <= value <= most:
        allowed = f"a finite number from {least:g} up" if most == math.inf else f"a number from {least:g} to {most:g}"
        raise LimitError(field, repr(value), allowed)
    return value


def whole(field: str, value: int, *, least: int = 0, most: int | None = None) -> int:
    """Returns the value when it is a whole number within the bounds. Otherwise it raises `LimitError`, which names the field."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number or value < least or (most is not None and value > most):
        allowed = f"a whole number from {least} up" if most is None else f"a whole number from {least} to {most}"
        raise LimitError(field, repr(value), allowed)
    return value


def name(field: str, value: str, *, most_bytes: int) -> str:
    """Returns the value when it is printable text that is neither empty nor too long for a datagram."""
    text = isinstance(value, str) and value != "" and value.isprintable()
    if not text or len(value.encode(errors="surrogatepass")) > most_bytes:
        raise LimitError(field, repr(value)[:80], f"printable text of 1 to {most_bytes} bytes")
    return value


class ProgressState(StrEnum):
    """How work moves, against what was expected. Nothing to do is `idle`, and counts as normal."""

    IDLE = "idle"
    NORMAL = "normal"
    SLOW = "slow"
    DEGRADED = "degraded"
    STUCK = "stuck"


class RoutingDecision(StrEnum):
    """The decision about a node. `evict` stops new work at once; `should_evict` decides the eviction itself."""

    ROUTE = "route"
    INVESTIGATE = "investigate"
    DRAIN = "drain"
    EVICT = "evict"
    UNKNOWN = "unknown"


class HealthClass(StrEnum):
    """The classes of the decision matrix, worst first: SUSPECT < STUCK < DEGRADED < SLOW < BUSY < HEALTHY."""

    SUSPECT = "SUSPECT"
    STUCK = "STUCK"
    DEGRADED = "DEGRADED"
    SLOW = "SLOW"
    BUSY = "BUSY"
    HEALTHY = "HEALTHY"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return _RANKS[self]

    # A string would compare by its letters, and HEALTHY would be worse than STUCK.
    def __lt__(self, other: str) -> bool:
        return self.rank < HealthClass(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= HealthClass(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > HealthClass(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= HealthClass(other).rank


_RANKS: Final = {health_class: rank for rank, health_class in enumerate(HealthClass)}

# The document's matrix, row for row. The first row that fits decides; None fits anything.
_NORMAL: Final = (ProgressState.NORMAL, ProgressState.IDLE)
_LOW: Final = (ProgressState.SLOW, ProgressState.DEGRADED)
_ZERO: Final = (ProgressState.STUCK,)
_ANY: Final = tuple(ProgressState)
MATRIX: Final = (
    # liveness, readiness, progress, class, decision
    (True, True, _NORMAL, HealthClass.HEALTHY, RoutingDecision.ROUTE),
    (True, False, _NORMAL, HealthClass.BUSY, RoutingDecision.DRAIN),
    (True, True, _LOW, HealthClass.SLOW, RoutingDecision.INVESTIGATE),
    (True, False, _LOW, HealthClass.DEGRADED, RoutingDecision.DRAIN),
    (True, None, _ZERO, HealthClass.STUCK, RoutingDecision.EVICT),
    (False, None, _ANY, HealthClass.SUSPECT, RoutingDecision.EVICT),
)
DECISIONS: Final = {health_class: decision for *_, health_class, decision in MATRIX}
_CELLS: Final = {
    (liveness, readiness, progress): health_class
    for liveness, ready, states, health_class, _ in reversed(MATRIX)
    for readiness in ((True, False) if ready is None else (ready,))
    for progress in states
}


def classify(liveness: bool, readiness: bool, progress: str) -> HealthClass:
    """Returns the matrix's class for three signals."""
    return _CELLS[liveness, readiness, ProgressState(progress)]


class Assessment(NamedTuple):
    """A class, what to do, and why, in words."""

    health_class: HealthClass
    decision: RoutingDecision
    reason: str


@runtime_checkable
class HealthSignals(Protocol):
    """Protocol for health signal providers."""

    @property
    def liveness(self) -> bool: ...
    @property
    def readiness(self) -> bool: ...
    @property
    def progress_state(self) -> str: ...


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """Where the three signals fail. Each kind of node may have its own."""

    liveness_timeout_s: float = 30.0
    max_liveness_failures: int = 3
    normal_share: float = 0.8  # of the expected rate, and above: normal
    slow_share: float = 0.3  # and above: slow; below: degraded

    def __post_init__(self) -> None:
        finite("liveness_timeout_s", self.liveness_timeout_s)
        whole("max_liveness_failures", self.max_liveness_failures, least=1)
        finite("normal_share", self.normal_share)
        finite("slow_share", self.slow_share)
        if self.slow_share > self.normal_share:
            raise LimitError("slow_share", self.slow_share, f"at most normal_share, which is {self.normal_share}")

    def grade(self, actual: float, expected: float) -> ProgressState:
        """Grades the progress by the document's thresholds. Where nothing was expected, nothing is missing."""
        if actual >= expected * self.normal_share:
            return ProgressState.NORMAL
        if actual >= expected * self.slow_share:
            return ProgressState.SLOW
        return ProgressState.DEGRADED if actual > 0 else ProgressState.STUCK


class NodeHealthState(ABC):
    """The fields and rules that the three kinds of nodes share. States are values: a new report is a new state.

    A method that ends in `_at` is pure and told the time; the document's properties without `now` ask `clock`, the
    machine's own where none was given. Times are monotonic seconds of the node that watches.
    """

    __slots__ = ()

    last_liveness_response: float
    consecutive_liveness_failures: int
    config: HealthConfig
    clock: Clock | None

    @property
    @abstractmethod
    def readiness(self) -> bool:
        """Can it take new work?"""

    @property
    @abstractmethod
    def progress_state(self) -> ProgressState:
        """Does work move at the expected rate?"""

    @abstractmethod
    def _why_not_ready(self) -> str: ...

    @abstractmethod
    def _progress_in_words(self) -> str: ...

    @property
    def lives_until(self) -> float:
        """The time from which liveness is False, if nothing is heard until then."""
        if self.consecutive_liveness_failures >= self.config.max_liveness_failures:
            return float("-inf")
        return self.last_liveness_response + self.config.liveness_timeout_s

    def liveness_at(self, now: float) -> bool:
        """Returns True when the process is alive and responsive."""
        # One definition for the state and for the tracker's expiry heap, so that rounding cannot part them.
        return now < self.lives_until

    def class_at(self, now: float) -> HealthClass:
        """Returns the matrix's class."""
        return _CELLS[self.liveness_at(now), self.readiness, self.progress_state]

    def assess_at(self, now: float) -> Assessment:
        """Returns the class, the decision and the reason in words."""
        health_class = self.class_at(now)
        return Assessment(health_class, DECISIONS[health_class], self._reason_at(now, health_class))

    @property
    def liveness(self) -> bool:
        """Is the process alive and responsive, by the clock?"""
        return self.liveness_at(self._now())

    @property
    def health_class(self) -> HealthClass:
        """The matrix's class, by the clock."""
        return self.class_at(self._now())

    def get_routing_decision(self) -> RoutingDecision:
        """Determine action: route, drain, investigate, or evict."""
        return DECISIONS[self.class_at(self._now())]

    def _now(self) -> float:
        return (self.clock or SystemClock()).monotonic()

    def _reason_at(self, now: float, health_class: HealthClass) -> str:
        if health_class is HealthClass.SUSPECT:
            return self._why_not_alive(now)
        if health_class is HealthClass.STUCK:
            return f"answers, but nothing moves: {self._progress_in_words()}"
        if health_class is HealthClass.HEALTHY:
            return f"answers, takes work, {self._progress_in_words()}"
        ready = "takes work" if self.readiness else self._why_not_ready()
        return f"answers, {ready}, {self._progress_in_words()}"

    def _why_not_alive(self, now: float) -> str:
        missed, limit = self.consecutive_liveness_failures, self.config.max_liveness_failures
        if missed >= limit:
            return f"missed {missed} probes in a row (limit {limit})"
        silent = now - self.last_liveness_response
        return f"no answer for {silent:.1f} s (limit {self.config.liveness_timeout_s:g} s)"

    def _check_liveness(self) -> None:
        finite("last_liveness_response", self.last_liveness_response, least=float("-inf"))
        whole("consecutive_liveness_failures", self.consecutive_liveness_failures)
