"""What the state machine gives back: what to send, whom to call, and what happened. The shell performs it."""

from __future__ import annotations

from msgspec import Struct, field

from tenure.gossip.events import Event
from tenure.gossip.messages import Address, Ping, PushPull


class Packet(Struct, frozen=True):
    """Message bodies for one datagram. `probe`: when it cannot be sent, the probe with this number has failed."""

    to: Address
    parts: list[bytes]
    checksum: bool = False
    probe: int = 0


class StreamPing(Struct, frozen=True):
    """Ask on a stream whether a member lives, and report the answer with `stream_answered`."""

    to: Address
    ping: Ping
    until: float


class Exchange(Struct, frozen=True):
    """Do a push/pull with this address: send `state`, and merge the answer."""

    to: Address
    state: PushPull


class Outcome(Struct):
    """In the order in which it is to be performed: packets, streams, events."""

    packets: list[Packet] = field(default_factory=list)
    stream_pings: list[StreamPing] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.packets or self.stream_pings or self.exchanges or self.events)
