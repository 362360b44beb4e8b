"""The brake: when most of a fleet seems to fail at once, doubt the observer before the fleet (document 001).

A switch reboots, an engine pauses, our own link is cut: each node fails its test, and evicting them all makes a blip
an outage. So above half, evictions are held. Not for ever: after `max_hold_s` they go on, at a limited rate. It knows
counts and the time, not nodes' states; one brake per kind of node.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tenure.health.signals import finite, whole


class BrakePhase(StrEnum):
    """The brake lets evictions pass freely, holds them, or lets them through slowly."""

    RELEASED = "released"
    HOLDING = "holding"
    LIMITED = "limited"


@dataclass(frozen=True, slots=True)
class BrakeConfig:
    """Sets when the brake holds, for how long, and how fast it lets go."""

    share: float = 0.5  # more than this share failing
    min_nodes: int = 3  # of a fleet of at least this size: one or two nodes prove nothing about a common cause
    min_failing: int = 2
    max_hold_s: float = 300.0
    rate_share: float = 0.1  # then at most this share of the fleet (at least one node) ...
    rate_period_s: float = 60.0  # ... in any span of this length
    memory_s: float = 60.0  # nodes evicted within this time count as failing; a hold within it goes on with the last

    def __post_init__(self) -> None:
        finite("share", self.share, most=1.0)
        whole("min_nodes", self.min_nodes, least=1)
        whole("min_failing", self.min_failing, least=1)
        finite("max_hold_s", self.max_hold_s)
        finite("rate_share", self.rate_share, most=1.0)
        finite("rate_period_s", self.rate_period_s, least=0.001)
        finite("memory_s", self.memory_s)


class BrakeStatus(NamedTuple):
    """The phase of the brake and the reason, for people."""

    phase: BrakePhase
    reason: str
    failing: int
    total: int
    since: float | None
    """When this hold began; None while it is released."""


class EvictionBrake:
    """Holds evictions while most of a fleet fails. Told the counts and the time."""

    def __init__(self, config: BrakeConfig | None = None) -> None:
        self.config = config or BrakeConfig()
        self._engaged = False
        self._since = 0.0
        self._released_at: float | None = None
        self._allowance = 1
        self._gone: deque[float] = deque()
        self._let_through: deque[float] = deque()
        self._failing = self._total = 0

    def observe(self, failing: int, total: int, now: float) -> None:
        """Notes that so many nodes of so many fail now."""
        self._failing, self._total = failing, total
        if not self._engaged:
            # One cause is seen node by node, over as long as probes take. Were those evicted a moment ago forgotten, no
            # sweep would ever see half of the fleet failing, and all of it would go.
            while self._gone and now - self._gone[0] >= self.config.memory_s:
                self._gone.popleft()
        # While it holds, all that went count on: else the first few evictions would bring the share under one half, and
        # the rest would follow at once.
        over = failing > 0 and self._over(failing + len(self._gone), total + len(self._gone))
        if over and not self._engaged:
            self._engage(total, now)
        elif not over and self._engaged:
            self._engaged = False
            self._released_at = now

    def phase(self, now: float) -> BrakePhase:
        """Returns the phase by the last counts."""
        if not self._engaged:
            return BrakePhase.RELEASED
        return BrakePhase.HOLDING if now - self._since < self.config.max_hold_s else BrakePhase.LIMITED

    def let_through(self, now: float) -> bool:
        """Returns True when one more node may be evicted. In the limited phase this uses up a place in the rate."""
        phase = self.phase(now)
        if phase is not BrakePhase.LIMITED:
            return phase is BrakePhase.RELEASED
        while self._let_through and now - self._let_through[0] >= self.config.rate_period_s:
            self._let_through.popleft()
        if len(self._let_through) >= self._allowance:
            return False
        self._let_through.append(now)
        return True

    def on_failing_removed(self, now: float) -> None:
        """Notes that a failing node left the fleet."""
        self._gone.append(now)

    def status(self, now: float) -> BrakeStatus:
        """Returns the phase, with the reason in words."""
        phase = self.phase(now)
        return BrakeStatus(
            phase, self._in_words(phase, now), self._failing, self._total, self._since if self._engaged else None
        )

    def _engage(self, total: int, now: float) -> None:
        self._engaged = True
        self._allowance = max(1, int((total + len(self._gone)) * self.config.rate_share))
        # A fleet that flaps around one half earns no new hold each time, so no hold lasts for ever.
        if self._released_at is None or now - self._released_at >= self.config.memory_s:
            self._since = now

    def _over(self, failing: int, total: int) -> bool:
        config = self.config
        return total >= config.min_nodes and failing >= config.min_failing and failing > total * config.share

    def _in_words(self, phase: BrakePhase, now: float) -> str:
        counts = f"{self._failing} of {self._total} nodes fail"
        if phase is BrakePhase.RELEASED:
            return counts
        gone = f" and {len(self._gone)} are gone" if self._gone else ""
        held = f"{counts}{gone}: taken for one common cause; held for {now - self._since:.0f} s"
        if phase is BrakePhase.HOLDING:
            return f"{held} of at most {self.config.max_hold_s:g} s"
        return (
            f"{held}, longer than {self.config.max_hold_s:g} s: "
            f"evicting at most {self._allowance} per {self.config.rate_period_s:g} s"
        )
