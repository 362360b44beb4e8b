"""A node's health as it rides on gossip messages (document 001, "SWIM Piggyback for Health State").

It decides nothing. It is small enough to share one datagram with gossip, says which version wrote it, and takes no
bytes for health that are not. Gossip is lossy and never authoritative for work: a lost piggyback costs routing quality.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from tenure.errors import LimitError, PiggybackError
from tenure.health.checks import name, whole
from tenure.health.overload import OverloadState

VERSION: Final = 1
MAX_BYTES: Final = 200
"""No encoded piggyback is longer: `MAX_NODE_ID_BYTES`, six numbers of at most five bytes, and seven bytes around them."""
MAX_NODE_ID_BYTES: Final = 128
_MOST: Final = 2**32 - 1


class NodeType(StrEnum):
    """The three kinds of nodes that watch each other."""

    WORKER = "worker"
    MANAGER = "manager"
    GATE = "gate"


# Codes on the wire are positions in these tuples: append, never reorder.
_NODE_TYPES: Final = (NodeType.WORKER, NodeType.MANAGER, NodeType.GATE)
_OVERLOAD_STATES: Final = (
    OverloadState.HEALTHY,
    OverloadState.BUSY,
    OverloadState.STRESSED,
    OverloadState.OVERLOADED,
)

_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class _Wire(msgspec.Struct, array_like=True, frozen=True):
    """The fields in their order on the wire. Only append: a version 1 reader ignores what follows."""

    node_id: str
    node_type: Annotated[int, msgspec.Meta(ge=0, lt=len(_NODE_TYPES))]
    accepting_work: bool
    capacity: _Count
    throughput: _Count
    expected_throughput: _Count
    overload_state: Annotated[int, msgspec.Meta(ge=0, lt=len(_OVERLOAD_STATES))]
    waiting: _Count
    advancing: _Count
    sequence: _Count


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Wire)


@dataclass(frozen=True, slots=True)
class HealthPiggyback:
    """Health state embedded in SWIM messages."""

    node_id: str
    node_type: NodeType | str

    # Readiness signal
    accepting_work: bool
    capacity: int  # available slots

    # Progress signal (last interval)
    throughput: int  # completions, dispatches or forwards
    expected_throughput: int

    # Overload signal
    overload_state: OverloadState | str

    # Not in the document. Without the first two, a receiver cannot tell a long workflow or an idle node from a stuck
    # one; the third lets the newest of two win that arrive out of order (it grows within one incarnation of the node).
    waiting: int = 0
    advancing: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        name("node_id", self.node_id, most_bytes=MAX_NODE_ID_BYTES)
        _choice(self, "node_type", NodeType)
        _choice(self, "overload_state", OverloadState)
        if not isinstance(self.accepting_work, bool):
            raise LimitError("accepting_work", repr(self.accepting_work), "True or False")
        for field in ("capacity", "throughput", "expected_throughput", "waiting", "advancing", "sequence"):
            whole(field, getattr(self, field), most=_MOST)

    def encode(self) -> bytes:
        """At most `MAX_BYTES` bytes: a version byte, then a msgpack array."""
        return bytes((VERSION,)) + _encoder.encode(
            _Wire(
                self.node_id,
                _NODE_TYPES.index(NodeType(self.node_type)),
                self.accepting_work,
                self.capacity,
                self.throughput,
                self.expected_throughput,
                _OVERLOAD_STATES.index(OverloadState(self.overload_state)),
                self.waiting,
                self.advancing,
                self.sequence,
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> HealthPiggyback:
        """Read what `encode` wrote. Raises `PiggybackError`, and nothing else, for any other bytes."""
        if not 1 <= len(data) <= MAX_BYTES:
            raise PiggybackError(f"a health piggyback has 1 to {MAX_BYTES} bytes, this one {len(data)}")
        if data[0] != VERSION:
            raise PiggybackError(f"health piggyback of version {data[0]}, and this node reads version {VERSION}")
        try:
            wire = _decoder.decode(memoryview(data)[1:])
            return cls(
                wire.node_id,
                _NODE_TYPES[wire.node_type],
                wire.accepting_work,
                wire.capacity,
                wire.throughput,
                wire.expected_throughput,
                _OVERLOAD_STATES[wire.overload_state],
                wire.waiting,
                wire.advancing,
                wire.sequence,
            )
        except (msgspec.MsgspecError, UnicodeDecodeError, LimitError) as error:
            raise PiggybackError(f"{len(data)} bytes are not a health piggyback: {error}") from error


def _choice(piggyback: HealthPiggyback, field: str, kind: type[StrEnum]) -> None:
    """Turn the document's string into its enum (they compare equal), or say what may stand there."""
    value = getattr(piggyback, field)
    try:
        object.__setattr__(piggyback, field, kind(value))
    except ValueError:
        raise LimitError(field, repr(value), "one of " + ", ".join(kind)) from None
