"""What the parts of the state machine share: who is known, what waits to be passed on, and what is to be done."""

from __future__ import annotations

from tenure.gossip.awareness import Awareness
from tenure.gossip.broadcasts import BroadcastQueue
from tenure.gossip.counters import Counters
from tenure.gossip.events import Complaint, Event, MemberEvent, Warned, What
from tenure.gossip.members import CHECKSUM_VERSION, Member, Roster
from tenure.gossip.messages import Address, Message, Rumour
from tenure.gossip.outcome import Outcome, Packet
from tenure.gossip.riding import HealthBook
from tenure.gossip.settings import GossipSettings
from tenure.gossip.skew import SkewEstimates
from tenure.gossip.wire import encode
from tenure.randomness import Random


class Pool:
    """State without rules. `me` is our own record: its incarnation is the one that we answer for."""

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
        self.roster = Roster(random)
        self.queue = BroadcastQueue(settings.retransmit_mult)
        self.awareness = Awareness(settings.awareness_max, enabled=settings.lifeguard.probe)
        self.health = HealthBook()
        self.skew = SkewEstimates()
        self.me = Member(name, address, now)
        self.me.incarnation = incarnation
        self.leaving = False
        self.out = Outcome()
        self._room = settings.packet_bytes - packet_overhead
        self._sequence = 0

    def next_sequence(self) -> int:
        """A number for a ping, from 1 to the largest that the wire takes, and around."""
        self._sequence = self._sequence % 0xFFFFFFFF + 1
        return self._sequence

    def broadcast(self, rumour: Rumour) -> None:
        """Pass it on, in place of what we said of that node before."""
        self.queue.put(rumour.node, encode(rumour))

    def send(self, to: Address, message: Message, member: Member | None = None, *, probe: int = 0) -> None:
        """A message to one node, with as many rumours as fit beside it."""
        body = encode(message)
        parts = [body]
        if self.queue:
            parts += self.queue.take(self._room - len(body) - 2, len(self.roster))
        self.send_parts(to, parts, member, probe=probe)

    def send_parts(self, to: Address, parts: list[bytes], member: Member | None = None, *, probe: int = 0) -> None:
        """Just these, in one datagram."""
        checksum = member is not None and member.newest_protocol >= CHECKSUM_VERSION
        self.out.packets.append(Packet(to, parts, checksum, probe))

    def rumours(self) -> list[bytes]:
        """One packet full of what waits."""
        return self.queue.take(self._room, len(self.roster))

    def happened(self, event: Event) -> None:
        self.out.events.append(event)

    def tell(self, what: What, member: Member, why: str = "") -> None:
        self.happened(MemberEvent(what, member.name, member.address, member.incarnation, why))

    def warn(self, complaint: Complaint, node: str, why: str) -> None:
        self.happened(Warned(complaint, node, why))
