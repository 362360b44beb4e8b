"""What can happen in a pool, as this node sees it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from tenure.gossip.messages import Address
from tenure.health.piggyback import HealthPiggyback


class What(StrEnum):
    """The kinds of events about members."""

    JOINED = "joined"
    UPDATED = "updated"
    SUSPECTED = "suspected"
    REFUTED = "refuted"
    FAILED = "failed"
    LEFT = "left"
    RESTARTED = "restarted"
    REAPED = "reaped"


class MemberEvent(Struct, frozen=True):
    """Something about one member. `why` names who said so, or what changed."""

    what: What
    node: str
    address: Address
    incarnation: int
    why: str = ""


class HealthEvent(Struct, frozen=True):
    """A member's health is news."""

    node: str
    health: HealthPiggyback


class Complaint(StrEnum):
    """What an operator should know about this node or its network."""

    ACCUSED = "accused"  # somebody suspects us, and we had to refute
    LAGGED = "lagged"  # our own event loop was late, and we became more patient
    NAME_CONFLICT = "name_conflict"  # two addresses claim one name
    UDP_BLOCKED = "udp_blocked"  # a member answers streams only
    SEND_FAILED = "send_failed"  # our own machine refused to send
    OUTBID = "outbid"  # we are accused with the highest incarnation there is, and cannot refute


class Warned(Struct, frozen=True):
    """Something that people should hear of."""

    complaint: Complaint
    node: str
    why: str


Event = MemberEvent | HealthEvent | Warned
