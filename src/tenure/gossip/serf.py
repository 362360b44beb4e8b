"""The little of Serf's own layer that a polite member of its pool needs: intents to join and to leave, and their clock.

Serf shows a node as "left" only when its intent to leave came before memberlist's "dead", with a Lamport time above the
last one about that node. Events, queries and coordinates are Serf's business; what they say is skipped.
"""

from __future__ import annotations

from msgspec import Struct

from tenure.errors import WireError
from tenure.gossip.msgpack import pack, unpack
from tenure.gossip.wire import take_name, take_uint, unpack_fields

_LEAVE, _JOIN, _PUSH_PULL = 0, 1, 2
_MOST_TIME = 0xFFFFFFFFFFFFFFFF


class Intent(Struct, frozen=True):
    """A node is about to leave, or says that it means to stay."""

    node: str
    time: int
    leaves: bool


def decode_intent(payload: bytes) -> Intent | None:
    """An intent, or None for Serf's other messages."""
    if not payload or payload[0] not in (_LEAVE, _JOIN):
        return None
    fields, _ = unpack_fields(payload, 1)
    return Intent(take_name(fields, b"Node"), take_uint(fields, b"LTime", _MOST_TIME), payload[0] == _LEAVE)


class SerfClock:
    """Serf's Lamport clock, as far as we take part in it."""

    def __init__(self) -> None:
        self.time = 1

    def witness(self, time: int) -> None:
        """Somebody has seen this time; a time that leaves us no room above is a forgery."""
        if self.time <= time < _MOST_TIME // 2:
            self.time = time + 1

    def witness_state(self, user_state: bytes, node: str) -> None:
        """Learn the time from the user state of a push/pull; what is no such state is skipped."""
        if user_state[:1] != bytes((_PUSH_PULL,)):
            return
        try:
            fields, _ = unpack(user_state, 1)
            if not isinstance(fields, dict):
                return
            self.witness(take_uint(fields, b"LTime", _MOST_TIME))
            statuses = fields.get(b"StatusLTimes")
            if isinstance(statuses, dict):
                self.witness(take_uint(statuses, node.encode(), _MOST_TIME))
        except WireError:
            return

    def leave(self, node: str) -> bytes:
        """What tells a pool that this node leaves on purpose."""
        self.time += 1
        return bytes((_LEAVE,)) + pack({"LTime": self.time, "Node": node, "Prune": False})

    def stay(self, node: str) -> bytes:
        """What tells a pool that this node did not mean to leave."""
        self.time += 1
        return bytes((_JOIN,)) + pack({"LTime": self.time, "Node": node})
