"""The state that all parts of the state machine share (the members, the rumours that wait, the counters), and the effects that it asks its shell for.

The state has no rules. `membership_rules` changes members, `probing` probes them, `swim` runs the rounds. `Swim` returns one `Effects` from each
call: datagrams to send, streams to open, events to publish. The shell performs it and reports back what failed or was answered.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from msgspec import Struct, field

from tenure.gossip.members import CHECKSUM_VERSION, HealthBook, MemberList, PoolMember
from tenure.gossip.messages import Address, Message, Ping, PushPull, Rumour
from tenure.gossip.settings import Awareness, GossipSettings, retransmit_limit
from tenure.gossip.wire import encode
from tenure.health.node_states import HealthPiggyback
from tenure.randomness import Random


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
    POOL_FULL = "pool_full"  # new names are refused, because as many members are known as the settings allow
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


class Counters(Struct):
    """Numbers that the state machine and the shell count. They only grow; `net/metrics.py` shows them."""

    probes: int = 0
    probes_failed: int = 0
    probes_indirect: int = 0
    probes_by_stream: int = 0
    suspicions: int = 0  # members that became suspects, by anybody's accusation
    accusations: int = 0  # suspicions and confirmations that this node itself uttered
    refutations: int = 0  # accusations of this node that it refuted
    false_alarms: int = 0  # suspects that turned out to live
    failures: int = 0
    late_returns: int = 0  # members that were declared dead and turned out to live: the false positives
    joins: int = 0
    leaves: int = 0
    nacks_sent: int = 0
    nacks_received: int = 0
    relays: int = 0  # pings that this node sent on behalf of others
    relays_answered: int = 0
    relays_refused: int = 0
    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    streams_opened: int = 0
    streams_accepted: int = 0
    streams_failed: int = 0
    stream_bytes_sent: int = 0
    stream_bytes_received: int = 0
    malformed: int = 0
    messages_refused: int = 0  # messages of datagrams beyond the bounds of a second
    states_refused: int = 0  # large states that came while others waited to be merged
    members_refused: int = 0  # alive messages about new names while the pool was full
    misdirected: int = 0  # pings that reached our address and named another node
    send_errors: int = 0
    lags: int = 0
    lag_seconds: float = 0.0
    health_received: int = 0
    health_refused: int = 0


PART_OVERHEAD_BYTES = 2
"""The length that a compound message writes before each part."""
MAX_UNNAMED = 256
SMALLEST_BYTES = 8
"""No message is smaller: a suspicion between two nodes with names of one letter has 30 bytes."""


class _QueuedMessage:
    __slots__ = ("about", "body", "transmits")

    def __init__(self, about: str, body: bytes) -> None:
        self.about, self.body = about, body
        self.transmits = 0


class BroadcastQueue:
    """Holds rumours about nodes and messages of Serf's layer, the least transmitted first. Each is passed on a limited number of times.

    It is bounded: a newer rumour about a node replaces the older one, and other messages have a fixed number of places. Filling a packet costs no
    more than the packet is large, however many messages wait.
    """

    def __init__(self, retransmit_mult: int) -> None:
        self._mult = retransmit_mult
        self._by_name: dict[str, _QueuedMessage] = {}
        self._unnamed: list[_QueuedMessage] = []
        # Maps the number of transmissions, then the size, to the messages that wait, oldest first.
        self._tiers: dict[int, dict[int, list[_QueuedMessage]]] = {}
        self._count = 0
        self.dropped = 0  # unnamed messages that made room for newer ones

    def __len__(self) -> int:
        return self._count

    def put(self, about: str, body: bytes) -> None:
        """Queues a rumour about a node. An older rumour about the same node is out of date, and goes."""
        older = self._by_name.get(about)
        if older is not None:
            self._drop(older)
        self._by_name[about] = waiting = _QueuedMessage(about, body)
        self._insert(waiting)

    def put_unnamed(self, body: bytes) -> None:
        """Queues a message that replaces no other. Beyond the bound the oldest one goes."""
        if len(self._unnamed) >= MAX_UNNAMED:
            self._drop(self._unnamed[0])
            self.dropped += 1
        waiting = _QueuedMessage("", body)
        self._unnamed.append(waiting)
        self._insert(waiting)

    def waits(self, about: str) -> bool:
        """Returns True while a rumour about this node waits."""
        return about in self._by_name

    def take(self, room: int, nodes: int) -> list[bytes]:
        """Returns messages that fit into `room` bytes together: the least transmitted first, then the largest. `nodes` is the size of the pool."""
        if not self._count:
            return []
        limit = retransmit_limit(self._mult, nodes)
        taken: list[_QueuedMessage] = []
        for transmits in sorted(self._tiers):
            if room < SMALLEST_BYTES:
                break
            tier = self._tiers[transmits]
            for size in sorted(tier, reverse=True):
                stack = tier[size]
                # The newest of a size goes first, as in memberlist: fewest nodes know it.
                while stack and size + PART_OVERHEAD_BYTES <= room:
                    taken.append(stack.pop())
                    room -= size + PART_OVERHEAD_BYTES
                if not stack:
                    del tier[size]
            if not tier:
                del self._tiers[transmits]
        for waiting in taken:
            self._count -= 1
            waiting.transmits += 1
            if waiting.transmits < limit:
                self._insert(waiting)
            else:
                self._forget(waiting)
        return [waiting.body for waiting in taken]

    def clear(self) -> None:
        """Drops all messages."""
        self._by_name.clear()
        self._unnamed.clear()
        self._tiers.clear()
        self._count = 0

    def _insert(self, waiting: _QueuedMessage) -> None:
        self._tiers.setdefault(waiting.transmits, {}).setdefault(len(waiting.body), []).append(waiting)
        self._count += 1

    def _drop(self, waiting: _QueuedMessage) -> None:
        tier = self._tiers[waiting.transmits]
        stack = tier[len(waiting.body)]
        stack.remove(waiting)
        if not stack:
            del tier[len(waiting.body)]
        self._count -= 1
        self._forget(waiting)

    def _forget(self, waiting: _QueuedMessage) -> None:
        if not waiting.about:
            self._unnamed.remove(waiting)
        elif self._by_name.get(waiting.about) is waiting:
            del self._by_name[waiting.about]


SYNC_SAMPLE = 64
"""The number of members that a push/pull among nodes of ours compares. With all of them, each node's traffic would grow with the pool."""
SKEW_SAMPLES = 8
"""Samples that are kept of each node."""


class Skew(NamedTuple):
    """One estimate of how far another node's clock is from ours."""

    offset_s: float  # their clock minus ours
    error_s: float  # the truth is at most this far from `offset_s`


class SkewEstimates:
    """Estimates the clocks of other nodes from the time that an ack carries, as NTP does.

    The other node wrote its time between our ping and its ack, so its clock is off by the difference to the middle, give or take half of the
    round trip. The sample with the shortest round trip is the best. People read the estimates; no deadline depends on them.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[Skew]] = {}

    def sample(self, node: str, *, sent: float, received: float, theirs: float) -> None:
        """Takes one sample of wall times: ours when the ping left and when the ack came, theirs from the ack."""
        trip = received - sent
        if trip < 0:  # our own wall clock was set back between the two
            return
        kept = self._samples.setdefault(node, deque(maxlen=SKEW_SAMPLES))
        kept.append(Skew(theirs - (sent + received) / 2, trip / 2))

    def of(self, node: str) -> Skew | None:
        """Returns the best estimate for `node`; None before its first ack."""
        kept = self._samples.get(node)
        return min(kept, key=lambda skew: skew.error_s) if kept else None

    def ours(self) -> float | None:
        """Returns how far our clock is ahead of the median of the pool; None before any ack."""
        best = [skew for node in self._samples if (skew := self.of(node)) is not None]
        return -median(skew.offset_s for skew in best) if best else None

    def forget(self, node: str) -> None:
        self._samples.pop(node, None)


class SwimState:
    """One node's view of its pool. The parts of the state machine call it `pool`, and only they change it."""

    def __init__(
        self,
        name: str,
        address: Address,
        settings: GossipSettings,
        *,
        now: float,
        incarnation: int,
        random: Random,
        packet_overhead: int,
        counters: Counters,
    ) -> None:
        self.settings = settings
        self.random = random
        self.counters = counters
        self.roster = MemberList(random)
        self.queue = BroadcastQueue(settings.retransmit_mult)
        self.awareness = Awareness(settings.awareness_max, enabled=settings.lifeguard.probe)
        self.health = HealthBook()
        self.skew = SkewEstimates()
        # Our own record. Its incarnation is the one that we announce and defend; only this node raises it.
        self.me = PoolMember(name, address, now)
        self.me.incarnation = incarnation
        self.leaving = False
        # The effects of the present call. `Swim` hands them over and starts anew at the end of each call.
        self.out = Effects()
        self._room = settings.packet_bytes - packet_overhead
        self._sequence = 0

    def next_sequence(self) -> int:
        """Returns the number for the next ping: from 1 to the largest that the wire takes, then from 1 again."""
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        return self._sequence

    def broadcast(self, rumour: Rumour) -> None:
        """Queues a rumour for everybody. It replaces an earlier rumour about the same node that still waits."""
        self.queue.put(rumour.node, encode(rumour))

    def send(self, to: Address, message: Message, member: PoolMember | None = None, *, probe: int = 0) -> None:
        """Sends a message to one node, with as many queued rumours as fit beside it."""
        body = encode(message)
        parts = [body]
        if self.queue:
            parts += self.queue.take(self._room - len(body) - 2, len(self.roster))
        self.send_parts(to, parts, member, probe=probe)

    def send_parts(self, to: Address, parts: list[bytes], member: PoolMember | None = None, *, probe: int = 0) -> None:
        """Sends these bodies in one datagram, and nothing beside them."""
        checksum = member is not None and member.newest_protocol >= CHECKSUM_VERSION
        self.out.packets.append(Packet(to, parts, checksum, probe))

    def rumours(self) -> list[bytes]:
        """Takes as many queued rumours as one packet holds."""
        return self.queue.take(self._room, len(self.roster))

    def happened(self, event: Event) -> None:
        """Adds an event to the effects."""
        self.out.events.append(event)

    def tell(self, change: MemberChange, member: PoolMember, why: str = "") -> None:
        """Adds the event that a member has changed."""
        self.happened(MemberEvent(change, member.name, member.address, member.incarnation, why))

    def warn(self, complaint: Complaint, node: str, why: str) -> None:
        """Adds a warning for people."""
        self.happened(PoolWarning(complaint, node, why))

    def everything(self, *, join: bool = False) -> PushPull:
        """Returns all that we believe as a push/pull, with ourselves first: the receiver knows the sender by that."""
        others = (member.as_state() for member in self.roster if member is not self.me)
        return PushPull((self.me.as_state(), *others), join)

    def sample(self) -> PushPull:
        """Returns a random part of what we believe. Over the rounds all of it is compared, and a round costs the same in every pool."""
        if len(self.roster) <= SYNC_SAMPLE:
            return self.everything()
        others = self.roster.pick(SYNC_SAMPLE - 1, lambda member: member is not self.me)
        return PushPull((self.me.as_state(), *(member.as_state() for member in others)))
