"""memberlist's messages as structs, and the numbers that its wire gives them. How they become bytes is `wire`'s."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

Address = tuple[str, int]
"""Host (an IP address as text) and port."""

MAX_NAME_BYTES = 128
MAX_META_BYTES = 512
MAX_HEALTH_BYTES = 256
MAX_INCARNATION = 0xFFFFFFFF

# Protocol minimum, maximum and current, then the delegate's. Serf refuses every new join into a pool that has one
# member with zeros in the last three, so this is never left empty.
VERSIONS = bytes((1, 5, 2, 2, 5, 5))


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


class State(IntEnum):
    """What a node is believed to be; the numbers are the wire's."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


class Ping(Struct, frozen=True):
    """Are you there? `node` is who is asked; an answer goes to `source`, or to where the datagram came from."""

    seq: int
    node: str = ""
    source: Address | None = None
    source_node: str = ""
    health: bytes = b""


class IndirectPing(Struct, frozen=True):
    """Ask `node` at `target` for me. `nack`: tell me also when it does not answer."""

    seq: int
    target: Address
    node: str = ""
    nack: bool = False
    source: Address | None = None
    source_node: str = ""


class Ack(Struct, frozen=True):
    """I am here. `wall_us` is our clock, in microseconds since 1970, for who wants to know how far it is off."""

    seq: int
    payload: bytes = b""
    health: bytes = b""
    wall_us: int = 0


class Nack(Struct, frozen=True):
    """I asked for you, and got no answer: the fault is not between you and me."""

    seq: int


class Suspect(Struct, frozen=True):
    """`origin` believes that `node` may be dead."""

    incarnation: int
    node: str
    origin: str


class Alive(Struct, frozen=True):
    """`node` lives, at this address, with this metadata."""

    incarnation: int
    node: str
    address: Address
    meta: bytes = b""
    versions: bytes = VERSIONS


class Dead(Struct, frozen=True):
    """`node` is dead; when `origin` is the node itself, it left."""

    incarnation: int
    node: str
    origin: str


class User(Struct, frozen=True):
    """What the layer above sends: here, Serf's intents."""

    payload: bytes


class Refused(Struct, frozen=True):
    """The other side of a stream says what it could not do."""

    error: str


class NodeState(Struct, frozen=True):
    """One line of a push/pull: what its sender believes of one node."""

    name: str
    address: Address
    incarnation: int
    state: State
    meta: bytes = b""
    versions: bytes = VERSIONS


class PushPull(Struct, frozen=True):
    """Everything that its sender believes."""

    nodes: tuple[NodeState, ...]
    join: bool = False
    user_state: bytes = b""
    skipped: int = 0  # lines that could not be read


Rumour = Suspect | Alive | Dead
Message = Ping | IndirectPing | Ack | Nack | Suspect | Alive | Dead | User | Refused
