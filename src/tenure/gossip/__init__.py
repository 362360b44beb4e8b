"""Gossip tells each node which others are alive and how healthy they are: SWIM with Lifeguard, on the wire of memberlist.

`GossipNode` is one member of a pool. `Swim` is the state machine in it; it does no I/O, and its caller tells it the time. The modules of this
folder are pure; those in `net/` use sockets, the event loop and the log.
"""

from __future__ import annotations

from tenure.gossip.members import PoolMember
from tenure.gossip.messages import Address, MemberState
from tenure.gossip.net.node import GossipNode
from tenure.gossip.net.transport import GossipTransport, UdpTcpTransport
from tenure.gossip.sealing import Keyring, format_key, parse_key
from tenure.gossip.settings import GossipSettings, Preset, format_address, parse_address
from tenure.gossip.state import Complaint, Event, HealthEvent, MemberChange, MemberEvent, PoolWarning
from tenure.health.node_states import HealthPiggyback

__all__ = [
    "Address",
    "Complaint",
    "Event",
    "GossipNode",
    "GossipSettings",
    "GossipTransport",
    "HealthEvent",
    "HealthPiggyback",
    "Keyring",
    "MemberChange",
    "MemberEvent",
    "MemberState",
    "PoolMember",
    "PoolWarning",
    "Preset",
    "UdpTcpTransport",
    "format_address",
    "format_key",
    "parse_address",
    "parse_key",
]
