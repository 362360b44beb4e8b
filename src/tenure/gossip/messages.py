"""memberlist's messages as structs, and the numbers that its wire gives them. `wire` turns them into bytes."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

Address = tuple[str, int]
"""The host, as the text of an IP address, and the port."""

MAX_NAME_BYTES = 128
MAX_META_BYTES = 512
MAX_HEALTH_BYTES = 256
MAX_INCARNATION = 0xFFFFFFFF

VERSIONS = bytes((1, 5, 2, 2, 5, 5))
"""Minimum, maximum and current version of the protocol, then of the delegate. Never send zeros in the last three: Serf refuses every new join into a
pool that has one such member."""


class Kind(IntEnum):
    """The first byte of a message."""

    PING = 0
    INDIRECT_PING = 1
    ACK = 2
    SUSPECT = 3
    ALIVE = 4
    DEAD = 5
    PUSH_PULL = 6
    COMPOUND = 7
    USER = 8
    COMPRESS = 9
    ENCRYPT = 10
    NACK = 11
    HAS_CRC = 12
    ERROR = 13
    LABEL = 244


class MemberState(IntEnum):
    """The state in which a node is believed to be. The numbers are the wire's."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


class Ping(Struct, frozen=True):
    """Asks `node` whether it is there. The answer goes to `source`, or to the address that the datagram came from."""

    seq: int
    node: str = ""
    source: Address | None = None
    source_node: str = ""
    health: bytes = b""


class IndirectPing(Struct, frozen=True):
    """Asks the receiver to ping `node` at `target`. With `nack`, the receiver also says that it got no answer."""

    seq: int
    target: Address
    node: str = ""
    nack: bool = False
    source: Address | None = None
    source_node: str = ""


class Ack(Struct, frozen=True):
    """Answers a ping. `wall_us` is the sender's clock in microseconds since 1970; receivers estimate its skew from it."""

    seq: int
    payload: bytes = b""
    health: bytes = b""
    wall_us: int = 0


class PingNack(Struct, frozen=True):
    """Says that an indirect ping got no answer. It shows the asker that the fault is not between it and the helper."""

    seq: int


class Suspect(Struct, frozen=True):
    """`origin` believes that `node` may be dead."""

    incarnation: int
    node: str
    origin: str


class Alive(Struct, frozen=True):
    """`node` is alive, at this address, with this metadata."""

    incarnation: int
    node: str
    address: Address
    meta: bytes = b""
    versions: bytes = VERSIONS


class Dead(Struct, frozen=True):
    """`node` is dead. Where `origin` is the node itself, it left."""

    incarnation: int
    node: str
    origin: str


class User(Struct, frozen=True):
    """A message of the layer above memberlist: here, of Serf."""

    payload: bytes


class StreamRefusal(Struct, frozen=True):
    """The other side of a stream says why it refuses."""

    error: str


class NodeState(Struct, frozen=True):
    """One line of a push/pull: the sender's belief about one node."""

    name: str
    address: Address
    incarnation: int
    state: MemberState
    meta: bytes = b""
    versions: bytes = VERSIONS


class PushPull(Struct, frozen=True):
    """The sender's beliefs about all nodes, or about some of them."""

    nodes: tuple[NodeState, ...]
    join: bool = False
    user_state: bytes = b""
    skipped: int = 0  # lines that the receiver could not read; not on the wire


Rumour = Suspect | Alive | Dead
Message = Ping | IndirectPing | Ack | PingNack | Suspect | Alive | Dead | User | StreamRefusal
