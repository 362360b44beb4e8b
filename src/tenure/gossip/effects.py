"""Everything that the state machine asks its shell to do: datagrams to send, streams to open, events to publish.

`Swim` returns one `Effects` from each call. The shell performs it and reports back what failed or was answered.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from tenure.gossip.messages import Address, Ping, PushPull
from tenure.health.piggyback import HealthPiggyback


class MemberChange(StrEnum):
    """The kinds of change that a member can go through, as this node sees it."""

    JOINED = "joined"
    UPDATED = "updated"
    SUSPECTED = "suspected"
    REFUTED = "refuted"
    FAILED = "failed"
    LEFT = "left"
    RESTARTED = "restarted"
    REAPED = "reaped"


class MemberEvent(Struct, frozen=True):
    """One change of one member. `why` names the node that said so, or the thing that changed."""

    change: MemberChange
    node: str
    address: Address
    incarnation: int
    why: str = ""


class HealthEvent(Struct, frozen=True):
    """A member's health has changed."""

    node: str
    health: HealthPiggyback


class Complaint(StrEnum):
    """The troubles of this node or its network that an operator should hear of."""

    ACCUSED = "accused"  # another node suspected us, and we refuted it
    LAGGED = "lagged"  # our own event loop was late, and we became more patient
    NAME_CONFLICT = "name_conflict"  # two addresses claim one name
    UDP_BLOCKED = "udp_blocked"  # a member answers streams and no datagrams
    SEND_FAILED = "send_failed"  # our own machine refused to send
    OUTBID = "outbid"  # the accusation has the highest incarnation there is, so we cannot refute it


class PoolWarning(Struct, frozen=True):
    """A trouble that people should hear of. `node` is the member that it is about."""

    complaint: Complaint
    node: str
    why: str


Event = MemberEvent | HealthEvent | PoolWarning


class Packet(Struct, frozen=True):
    """Message bodies that travel in one datagram."""

    to: Address
    parts: list[bytes]
    checksum: bool = False
    probe: int = 0  # the number of the probe that it carries; the shell reports it when the packet cannot be sent


class StreamPing(Struct, frozen=True):
    """A ping on a stream. The shell calls `Swim.stream_answered` when the answer comes before `until`."""

    to: Address
    ping: Ping
    until: float


class PushPullExchange(Struct, frozen=True):
    """A push/pull with one address. The shell sends `state`, and gives the answer to `Swim.merge`."""

    to: Address
    state: PushPull


class Effects(Struct):
    """The effects of one call, in the order in which the shell performs them: packets, streams, events."""

    packets: list[Packet] = field(default_factory=list)
    stream_pings: list[StreamPing] = field(default_factory=list)
    exchanges: list[PushPullExchange] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.packets or self.stream_pings or self.exchanges or self.events)
