"""Probes: this node asks one member at a time whether it is there, and asks on behalf of others.

    ping ──ack──► alive
      └─ probe timeout ─► helpers and a stream ping at once ──ack──► alive
                             └─ probe interval × (score + 1) ─► suspect

The end of a probe tells as much about this node as about the other: the awareness score (Lifeguard) falls with each success, and rises with each
helper that did not even say that it got no answer.
"""

from __future__ import annotations

import heapq

from tenure.gossip.members import (
    NACK_VERSION,
    STREAM_PING_VERSION,
    PoolMember,
    decode_health_field,
    encode_health_field,
)
from tenure.gossip.membership_rules import MembershipRules
from tenure.gossip.messages import Ack, Address, IndirectPing, MemberState, Ping, PingNack, Suspect
from tenure.gossip.state import Complaint, HealthEvent, StreamPing, SwimState
from tenure.gossip.wire import encode

UDP_SILENT_PROBES = 3
"""After so many probes in a row that only a stream answered, the network is at fault, and people should hear of it."""


class _Probe:
    """The probe that is under way."""

    __slots__ = (
        "deadline",
        "direct_until",
        "helpers",
        "member",
        "nacks",
        "sent_at",
        "sent_wall",
        "seq",
        "wanted_nacks",
    )

    def __init__(self, seq: int, member: PoolMember, now: float, wall: float) -> None:
        self.seq, self.member = seq, member
        self.sent_at, self.sent_wall = now, wall
        self.direct_until = self.deadline = now
        self.helpers: list[PoolMember] | None = None  # None until the direct ping has gone unanswered
        self.wanted_nacks = 0  # helpers that can say that they got no answer
        self.nacks: set[Address] = set()  # helpers that said so


class MemberProber:
    """Runs one probe at a time, and suspects the member that did not answer."""

    def __init__(self, pool: SwimState, rumours: MembershipRules) -> None:
        self._pool, self._rumours = pool, rumours
        self._probe: _Probe | None = None
        self.wall_offset = 0.0  # Unix time minus the `now` that we are told

    @property
    def busy(self) -> bool:
        """True while a probe is under way."""
        return self._probe is not None

    @property
    def next_due(self) -> float:
        """The time at which `tick` has something to do; infinity without a probe."""
        probe = self._probe
        if probe is None:
            return float("inf")
        return probe.direct_until if probe.helpers is None else probe.deadline

    def start(self, now: float, member: PoolMember) -> None:
        """Begins the probe of this member."""
        pool, settings = self._pool, self._pool.settings
        wall = now + self.wall_offset
        self._probe = probe = _Probe(pool.next_sequence(), member, now, wall)
        probe.direct_until = now + settings.probe_timeout_s
        probe.deadline = now + pool.awareness.scaled(settings.probe_interval_s)
        pool.counters.probes += 1
        ping = self._ping(probe.seq, member)
        if member.state is MemberState.ALIVE or not settings.lifeguard.buddy:
            pool.send(member.address, ping, member, probe=probe.seq)
            return
        # Lifeguard's buddy system: a suspect hears of the suspicion with the ping, and can refute it at once.
        suspect = Suspect(member.incarnation, member.name, pool.me.name)
        pool.send_parts(member.address, [encode(ping), encode(suspect)], member, probe=probe.seq)

    def _ping(self, seq: int, member: PoolMember) -> Ping:
        """Returns the ping for a member. Nodes of ours get our health and no source address: they answer to the address that the ping came from."""
        me, own = self._pool.me, self._pool.health.own
        if not member.speaks_tenure:
            return Ping(seq, member.name, me.address, me.name)
        health = b"" if own is None else encode_health_field(me.incarnation, own)
        return Ping(seq, member.name, None, me.name, health)

    def tick(self, now: float) -> None:
        """Asks helpers when the direct ping has gone unanswered, and gives up at the deadline."""
        probe = self._probe
        if probe is None:
            return
        if not probe.member.is_here:  # another node declared it dead meanwhile
            self._probe = None
        elif probe.helpers is None and now >= probe.direct_until:
            self._ask_helpers(probe)
        elif probe.helpers is not None and now >= probe.deadline:
            self._fail(now, probe)

    def _ask_helpers(self, probe: _Probe) -> None:
        """Asks a few other members to ping the target, and pings it on a stream as well."""
        pool, target = self._pool, probe.member
        me = pool.me

        def can_help(member: PoolMember) -> bool:
            return member.state is MemberState.ALIVE and member is not target and member is not me

        probe.helpers = pool.roster.pick(pool.settings.indirect_checks, can_help)
        ask = IndirectPing(probe.seq, target.address, target.name, False, me.address, me.name)
        if probe.helpers:
            pool.counters.probes_indirect += 1
        for helper in probe.helpers:
            nack = pool.settings.lifeguard.probe and helper.newest_protocol >= NACK_VERSION
            probe.wanted_nacks += nack
            pool.send(helper.address, _with_nack(ask, nack), helper)
        if target.newest_protocol >= STREAM_PING_VERSION:
            ping = Ping(probe.seq, target.name, me.address, me.name)
            pool.out.stream_pings.append(StreamPing(target.address, ping, probe.deadline))

    def _fail(self, now: float, probe: _Probe) -> None:
        """Ends the probe without an answer: suspects the member, and trusts this node less where the helpers were silent too."""
        pool = self._pool
        self._probe = None
        pool.counters.probes_failed += 1
        # A helper that says "no answer" shows that we can be reached. A silent one hints that the fault is ours.
        pool.awareness.add(max(0, probe.wanted_nacks - len(probe.nacks)) if probe.wanted_nacks else 1)
        self._rumours.suspect(now, Suspect(probe.member.incarnation, probe.member.name, pool.me.name))

    def ack(self, now: float, source: Address, ack: Ack) -> bool:
        """Takes an ack. Returns True when it answers the probe that is under way."""
        probe = self._probe
        if probe is None or ack.seq != probe.seq:
            return False
        is_direct = source == probe.member.address
        if is_direct:
            probe.member.udp_silent = 0
            self._take_extras(now, probe, ack)
        self._succeed()
        return True

    def _take_extras(self, now: float, probe: _Probe, ack: Ack) -> None:
        """Reads the time and the health that nodes of ours put into an ack."""
        if ack.wall_us:
            self._pool.skew.sample(
                probe.member.name,
                sent=probe.sent_wall,
                received=now + self.wall_offset,
                theirs=ack.wall_us / 1_000_000,
            )
        if ack.health:
            take_health_field(self._pool, probe.member, ack.health)

    def nack(self, source: Address, nack: PingNack) -> None:
        """Counts a helper's word that it got no answer."""
        probe = self._probe
        if probe is not None and nack.seq == probe.seq and probe.helpers is not None:
            self._pool.counters.nacks_received += 1
            probe.nacks.add(source)

    def stream_answered(self, seq: int) -> None:
        """Ends the probe with success: a stream got through where datagrams did not."""
        probe = self._probe
        if probe is None or probe.seq != seq:
            return
        member = probe.member
        member.udp_silent += 1
        self._pool.counters.probes_by_stream += 1
        if member.udp_silent == UDP_SILENT_PROBES:
            why = f"{UDP_SILENT_PROBES} probes in a row were answered on a stream only: is UDP blocked?"
            self._pool.warn(Complaint.UDP_BLOCKED, member.name, why)
        self._succeed()

    def _succeed(self) -> None:
        self._probe = None
        self._pool.awareness.add(-1)

    def send_failed(self, seq: int) -> None:
        """Goes on to the helpers at the next tick: our own machine did not send the ping."""
        probe = self._probe
        if probe is not None and probe.seq == seq and probe.helpers is None:
            probe.direct_until = probe.sent_at

    def delay(self, seconds: float) -> None:
        """Prolongs the probe by the time in which this node did not listen: the answer may wait unread."""
        if self._probe is not None:
            self._probe.direct_until += seconds
            self._probe.deadline += seconds


def _with_nack(ask: IndirectPing, nack: bool) -> IndirectPing:
    if not nack:
        return ask
    return IndirectPing(ask.seq, ask.target, ask.node, True, ask.source, ask.source_node)


def take_health_field(pool: SwimState, member: PoolMember, data: bytes) -> None:
    """Takes the health that came with a ping or an ack of this member."""
    found = decode_health_field(data)
    if found is None:
        pool.counters.health_refused += 1
        return
    incarnation, health = found
    if pool.health.offer(member.name, incarnation, health):
        pool.counters.health_received += 1
        pool.happened(HealthEvent(member.name, health))


MAX_RELAYS = 1024
"""More pings for others at once than this are a flood, or a sign of other troubles. They are refused."""


class _Relay:
    """One ping that this node sent on behalf of another."""

    __slots__ = ("answer_to", "asked_seq", "expires", "nack", "nack_at")

    def __init__(self, asked_seq: int, answer_to: Address, nack: bool, nack_at: float, expires: float) -> None:
        self.asked_seq, self.answer_to, self.nack = asked_seq, answer_to, nack
        self.nack_at, self.expires = nack_at, expires


class Relays:
    """Pings members on behalf of others, and tells them that an answer came or, in good time, that none did."""

    def __init__(self, pool: SwimState) -> None:
        self._pool = pool
        self._open: dict[int, _Relay] = {}  # by the sequence number of our ping
        self._due: list[tuple[float, int]] = []  # a heap of (time, sequence number)

    @property
    def next_due(self) -> float:
        """The time at which `tick` has something to do; infinity when no ping is open."""
        return self._due[0][0] if self._due else float("inf")

    def ask(self, now: float, source: Address, request: IndirectPing) -> None:
        """Pings the target of the request for its sender."""
        pool = self._pool
        if len(self._open) >= MAX_RELAYS:
            pool.counters.relays_refused += 1
            return
        pool.counters.relays += 1
        seq = pool.next_sequence()
        nack_at = now + pool.settings.nack_after_s
        relay = _Relay(
            request.seq, request.source or source, request.nack, nack_at, now + pool.settings.probe_interval_s
        )
        self._open[seq] = relay
        heapq.heappush(self._due, (nack_at if request.nack else relay.expires, seq))
        ping = Ping(seq, request.node, pool.me.address, pool.me.name)
        pool.send(request.target, ping, pool.roster.get(request.node))

    def ack(self, ack: Ack) -> bool:
        """Passes an ack on. Returns True when it answers a ping that we sent for another node."""
        relay = self._open.pop(ack.seq, None)
        if relay is None:
            return False
        self._pool.counters.relays_answered += 1
        self._pool.send(relay.answer_to, Ack(relay.asked_seq))
        return True

    def tick(self, now: float) -> None:
        """Tells the nodes that wait that there was no answer yet, and forgets pings that are over."""
        while self._due and self._due[0][0] <= now:
            _, seq = heapq.heappop(self._due)
            relay = self._open.get(seq)
            if relay is None:
                continue
            if relay.nack:
                relay.nack = False
                self._pool.counters.nacks_sent += 1
                self._pool.send(relay.answer_to, PingNack(relay.asked_seq))
            if now >= relay.expires:
                del self._open[seq]
            else:  # a late answer is still passed on
                heapq.heappush(self._due, (relay.expires, seq))

    def delay(self, seconds: float) -> None:
        """Prolongs every open ping by the time in which this node did not listen."""
        for relay in self._open.values():
            relay.nack_at += seconds
            relay.expires += seconds
        self._due = [(relay.nack_at if relay.nack else relay.expires, seq) for seq, relay in self._open.items()]
        heapq.heapify(self._due)
