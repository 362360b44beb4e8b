"""The health and the tags of nodes as they travel with gossip.

Health goes two ways. Pings and acks carry it at once, between the two nodes of a probe. Tags carry a slow copy to everybody, inside the metadata
that memberlist gossips. The newest wins, by the node's incarnation and the sequence within it, on whichever way it came. Incarnations grow over
restarts, so the first health of a restarted node is news, and a delayed datagram of its former life is not.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace

from tenure.errors import ConfigurationError, LimitError, PiggybackError, WireError
from tenure.gossip.encodings import pack, unpack
from tenure.gossip.messages import MAX_META_BYTES
from tenure.health.piggyback import HealthPiggyback

# Two tags are ours: `start` names one start of a node, `health` is the slow copy of its health.
START = "start"
HEALTH = "health"
RESERVED = (START, HEALTH)

# Serf keeps tags in the metadata as this byte and a msgpack map. Ours and the user's share its 512 bytes.
_MAGIC = 0xFF


def encode_tags(tags: Mapping[str, str]) -> bytes:
    """Returns the metadata that carries these tags. Raises `LimitError` when they are too long together."""
    meta = bytes((_MAGIC,)) + pack(dict(tags))
    if len(meta) > MAX_META_BYTES:
        raise LimitError("tags", f"{len(meta)} bytes", f"at most {MAX_META_BYTES} bytes together")
    return meta


def decode_tags(meta: bytes) -> dict[str, str]:
    """Returns the tags in a node's metadata. Metadata of another form becomes the tag `role`, as in Serf."""
    if not meta:
        return {}
    if meta[0] != _MAGIC:
        return {"role": meta.decode(errors="replace")}
    try:
        pairs, _ = unpack(meta, 1)
    except WireError:
        return {}
    if not isinstance(pairs, dict):
        return {}
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in pairs.items()
        if isinstance(key, bytes) and isinstance(value, bytes)
    }


def check_user_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the user's tags. Raises `ConfigurationError` where one is no text or has a name of ours."""
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise ConfigurationError(f"tag {name!r} is {value!r}; names and values of tags are text")
        if name in RESERVED:
            raise ConfigurationError(f"the tag {name!r} is Tenure's own", remedy="Give it another name")
    return dict(tags)


def health_tag(health: HealthPiggyback) -> str:
    """Returns health as text for a tag, so that `serf members` can print it."""
    return base64.b64encode(health.encode()).decode()


def health_from_tag(text: str) -> HealthPiggyback | None:
    """Returns the health in a tag; None where it cannot be read."""
    try:
        return HealthPiggyback.decode(base64.b64decode(text, validate=True))
    except (binascii.Error, PiggybackError, ValueError):
        return None


Rank = tuple[int, int]
"""The incarnation of a node, and the sequence number of its health within it. The higher rank is the newer health."""


def encode_health_field(incarnation: int, health: HealthPiggyback) -> bytes:
    """Returns the bytes of the extra field of a ping or an ack: the incarnation and the health."""
    return incarnation.to_bytes(4, "big") + health.encode()


def decode_health_field(data: bytes) -> tuple[int, HealthPiggyback] | None:
    """Returns the incarnation and the health in such a field; None where it cannot be read."""
    if len(data) < 5:
        return None
    try:
        return int.from_bytes(data[:4], "big"), HealthPiggyback.decode(data[4:])
    except PiggybackError:
        return None


class HealthBook:
    """Holds this node's own health, and the newest health that it knows of each other node."""

    def __init__(self) -> None:
        self.own: HealthPiggyback | None = None
        # The health that our tags carry now. It lags behind `own`, because each change of tags costs a broadcast.
        self.tagged: HealthPiggyback | None = None
        self._sequence = 0
        self._known: dict[str, tuple[Rank, HealthPiggyback]] = {}

    def set_own(self, health: HealthPiggyback) -> None:
        """Replaces our own health and gives it the next sequence number."""
        self._sequence += 1
        self.own = replace(health, sequence=self._sequence)

    @property
    def tag_is_stale(self) -> bool:
        """True when readiness or load differ from what the tags say. A change of a number alone is not worth a broadcast."""
        return self.own is not None and (self.tagged is None or _class(self.own) != _class(self.tagged))

    def offer(self, node: str, incarnation: int, health: HealthPiggyback) -> bool:
        """Keeps health that is newer than what is known. Returns True when it differs in more than its sequence number."""
        rank = (incarnation, health.sequence)
        known = self._known.get(node)
        if known is not None and known[0] >= rank:
            return False
        self._known[node] = (rank, health)
        return known is None or replace(known[1], sequence=0) != replace(health, sequence=0)

    def of(self, node: str) -> HealthPiggyback | None:
        """Returns the newest health of another node; None before the first."""
        known = self._known.get(node)
        return known[1] if known else None

    def forget(self, node: str) -> None:
        self._known.pop(node, None)


def _class(health: HealthPiggyback) -> tuple[object, ...]:
    """Returns the parts of health that a scheduler acts on. Two healths with equal parts are one class."""
    return (health.node_id, health.node_type, health.accepting_work, health.capacity > 0, health.overload_state)
