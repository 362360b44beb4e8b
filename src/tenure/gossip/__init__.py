"""Who is alive, and how healthy: SWIM with Lifeguard on the wire of memberlist.

`GossipNode` is a member of a pool; `Swim` is the state machine in it, which does no I/O and is told the time.
"""

from __future__ import annotations

from tenure.gossip.addresses import format_address, parse_address
from tenure.gossip.counters import Counters
from tenure.gossip.events import Complaint, Event, HealthEvent, MemberEvent, Warned, What
from tenure.gossip.keyring import Keyring, format_key, parse_key
from tenure.gossip.members import Member
from tenure.gossip.messages import Address, State
from tenure.gossip.node import GossipNode
from tenure.gossip.outcome import Outcome
from tenure.gossip.settings import GossipSettings, Lifeguard, Preset
from tenure.gossip.skew import Skew
from tenure.gossip.swim import Swim
from tenure.gossip.transport import GossipTransport, UdpTcpTransport
from tenure.health.piggyback import HealthPiggyback

__all__ = [
    "Address",
    "Complaint",
    "Counters",
    "Event",
    "GossipNode",
    "GossipSettings",
    "GossipTransport",
    "HealthEvent",
    "HealthPiggyback",
    "Keyring",
    "Lifeguard",
    "Member",
    "MemberEvent",
    "Outcome",
    "Preset",
    "Skew",
    "State",
    "Swim",
    "UdpTcpTransport",
    "Warned",
    "What",
    "format_address",
    "format_key",
    "parse_address",
    "parse_key",
]
