"""Health that rides along: fast on pings and acks between two nodes, slow in the tags that everybody gets.

The newest wins, by the node's incarnation and the sequence within it, whichever way it came. Incarnations grow over
restarts, so a restarted node's first word is news, and a delayed datagram of its former life is not.
"""

from __future__ import annotations

from dataclasses import replace

from tenure.errors import PiggybackError
from tenure.health.piggyback import HealthPiggyback

Rank = tuple[int, int]


def encode_ride(incarnation: int, health: HealthPiggyback) -> bytes:
    """What stands in a ping or an ack."""
    return incarnation.to_bytes(4, "big") + health.encode()


def decode_ride(data: bytes) -> tuple[int, HealthPiggyback] | None:
    """None where it is no health that we can read."""
    if len(data) < 5:
        return None
    try:
        return int.from_bytes(data[:4], "big"), HealthPiggyback.decode(data[4:])
    except PiggybackError:
        return None


class HealthBook:
    """Our own health, and the newest that we know of each other node."""

    def __init__(self) -> None:
        self.own: HealthPiggyback | None = None
        self.tagged: HealthPiggyback | None = None
        self._sequence = 0
        self._known: dict[str, tuple[Rank, HealthPiggyback]] = {}

    def set_own(self, health: HealthPiggyback) -> None:
        """Takes the next sequence number."""
        self._sequence += 1
        self.own = replace(health, sequence=self._sequence)

    @property
    def tag_is_stale(self) -> bool:
        """Whether those whom we do not probe should hear of a change: of readiness or load, not of each number."""
        return self.own is not None and (self.tagged is None or _class(self.own) != _class(self.tagged))

    def offer(self, node: str, incarnation: int, health: HealthPiggyback) -> bool:
        """True when it is newer than what was known, and differs in more than its number."""
        rank = (incarnation, health.sequence)
        known = self._known.get(node)
        if known is not None and known[0] >= rank:
            return False
        self._known[node] = (rank, health)
        return known is None or replace(known[1], sequence=0) != replace(health, sequence=0)

    def of(self, node: str) -> HealthPiggyback | None:
        known = self._known.get(node)
        return known[1] if known else None

    def forget(self, node: str) -> None:
        self._known.pop(node, None)


def _class(health: HealthPiggyback) -> tuple[object, ...]:
    return (health.node_id, health.node_type, health.accepting_work, health.capacity > 0, health.overload_state)
