"""One probe at a time: ask directly, then through helpers and on a stream, then suspect.

    ping ──ack──► alive
      └─ probe timeout ─► helpers and a stream ping at once ──ack──► alive
                             └─ probe interval × (score + 1) ─► suspect

How it ends tells as much of ourselves as of the other: the awareness score (Lifeguard) falls with each success, and rises
by the helpers that did not even say that they got no answer.
"""

from __future__ import annotations

from tenure.gossip.events import Complaint, HealthEvent
from tenure.gossip.members import NACK_VERSION, STREAM_PING_VERSION, Member
from tenure.gossip.messages import Ack, Address, IndirectPing, Nack, Ping, State, Suspect
from tenure.gossip.outcome import StreamPing
from tenure.gossip.pool import Pool
from tenure.gossip.riding import decode_ride, encode_ride
from tenure.gossip.rumours import Rumours
from tenure.gossip.wire import encode

UDP_SILENT_PROBES = 3
"""After so many probes in a row that only a stream answered, the network is at fault and people should know."""


class _Probe:
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

    def __init__(self, seq: int, member: Member, now: float, wall: float) -> None:
        self.seq, self.member = seq, member
        self.sent_at, self.sent_wall = now, wall
        self.direct_until = self.deadline = now
        self.helpers: list[Member] | None = None  # None until the direct ping has gone unanswered
        self.wanted_nacks = 0
        self.nacks: set[Address] = set()


class Prober:
    """Probes members in turn, and answers for what the probes show."""

    def __init__(self, pool: Pool, rumours: Rumours) -> None:
        self._pool, self._rumours = pool, rumours
        self._probe: _Probe | None = None
        self.wall_offset = 0.0

    @property
    def busy(self) -> bool:
        return self._probe is not None

    @property
    def next_due(self) -> float:
        probe = self._probe
        if probe is None:
            return float("inf")
        return probe.direct_until if probe.helpers is None else probe.deadline

    def start(self, now: float, member: Member) -> None:
        """Ask this member whether it is there."""
        pool, settings = self._pool, self._pool.settings
        wall = now + self.wall_offset
        self._probe = probe = _Probe(pool.next_sequence(), member, now, wall)
        probe.direct_until = now + settings.probe_timeout_s
        probe.deadline = now + pool.awareness.scaled(settings.probe_interval_s)
        pool.counters.probes += 1
        ping = self._ping(probe.seq, member)
        if member.state is State.ALIVE or not settings.lifeguard.buddy:
            pool.send(member.address, ping, member, probe=probe.seq)
            return
        # The buddy system: who is suspected hears it with the ping, and can refute at once.
        suspect = Suspect(member.incarnation, member.name, pool.me.name)
        pool.send_parts(member.address, [encode(ping), encode(suspect)], member, probe=probe.seq)

    def _ping(self, seq: int, member: Member) -> Ping:
        """Only nodes of ours are sent what only ours understand; they answer to where a ping came from."""
        me, own = self._pool.me, self._pool.health.own
        if not member.speaks_tenure:
            return Ping(seq, member.name, me.address, me.name)
        health = b"" if own is None else encode_ride(me.incarnation, own)
        return Ping(seq, member.name, None, me.name, health)

    def tick(self, now: float) -> None:
        """Go on to the helpers, or give up."""
        probe = self._probe
        if probe is None:
            return
        if not probe.member.is_here:  # somebody else was faster
            self._probe = None
        elif probe.helpers is None and now >= probe.direct_until:
            self._ask_helpers(probe)
        elif probe.helpers is not None and now >= probe.deadline:
            self._fail(now, probe)

    def _ask_helpers(self, probe: _Probe) -> None:
        pool, target = self._pool, probe.member
        me = pool.me

        def can_help(member: Member) -> bool:
            return member.state is State.ALIVE and member is not target and member is not me

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
        pool = self._pool
        self._probe = None
        pool.counters.probes_failed += 1
        # Helpers that are silent hint at us; helpers that say "no answer" speak for us.
        pool.awareness.add(max(0, probe.wanted_nacks - len(probe.nacks)) if probe.wanted_nacks else 1)
        self._rumours.suspect(now, Suspect(probe.member.incarnation, probe.member.name, pool.me.name))

    def ack(self, now: float, source: Address, ack: Ack) -> bool:
        """True when it answers our probe."""
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
        if ack.wall_us:
            self._pool.skew.sample(
                probe.member.name,
                sent=probe.sent_wall,
                received=now + self.wall_offset,
                theirs=ack.wall_us / 1_000_000,
            )
        if ack.health:
            take_ride(self._pool, probe.member, ack.health)

    def nack(self, source: Address, nack: Nack) -> None:
        probe = self._probe
        if probe is not None and nack.seq == probe.seq and probe.helpers is not None:
            self._pool.counters.nacks_received += 1
            probe.nacks.add(source)

    def stream_answered(self, seq: int) -> None:
        """The stream got through where datagrams did not."""
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
        """Our own machine did not send the ping: no use in waiting for its answer."""
        probe = self._probe
        if probe is not None and probe.seq == seq and probe.helpers is None:
            probe.direct_until = probe.sent_at

    def delay(self, seconds: float) -> None:
        """We were not listening for so long: the answer may wait unread."""
        if self._probe is not None:
            self._probe.direct_until += seconds
            self._probe.deadline += seconds


def _with_nack(ask: IndirectPing, nack: bool) -> IndirectPing:
    if not nack:
        return ask
    return IndirectPing(ask.seq, ask.target, ask.node, True, ask.source, ask.source_node)


def take_ride(pool: Pool, member: Member, data: bytes) -> None:
    """Health that came with a ping or an ack."""
    ride = decode_ride(data)
    if ride is None:
        pool.counters.health_refused += 1
        return
    incarnation, health = ride
    if pool.health.offer(member.name, incarnation, health):
        pool.counters.health_received += 1
        pool.happened(HealthEvent(member.name, health))
