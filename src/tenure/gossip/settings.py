"""The settings of a pool, with memberlist's three presets, and the arithmetic of the protocol over them.

Every node of a pool should have the same settings. Nothing breaks where they differ, but the slowest node decides.

The arithmetic says how long a suspicion lasts, how patient a node is, and how the numbers grow with the pool. Each formula is memberlist's or
the Lifeguard paper's, and stands alone. The addresses of nodes are here as people write them. Nothing here knows messages or members.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tenure.errors import ConfigurationError, LimitError
from tenure.gossip.messages import Address


class Preset(StrEnum):
    """Names the presets by the place of the nodes: one machine, one datacenter, several datacenters."""

    LOCAL = "local"
    LAN = "lan"
    WAN = "wan"


@dataclass(frozen=True, slots=True)
class Lifeguard:
    """The three parts of Lifeguard. Each can be switched off to measure its effect; keep them all on."""

    probe: bool = True  # a node whose probes go unanswered probes more slowly and waits for longer
    suspicion: bool = True  # a suspicion starts long and becomes shorter as others confirm it
    buddy: bool = True  # a suspect hears of the suspicion with the next ping, and not only by rumour


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """All settings of a pool. The defaults are the LAN preset."""

    probe_interval_s: float = 1.0  # one member is probed in each interval
    probe_timeout_s: float = 0.5  # for the direct ping; the rest of the interval is for helpers
    suspicion_mult: int = 4  # a confirmed suspicion lasts so many intervals, times log10 of the pool's size
    suspicion_max_mult: int = 6  # an unconfirmed one lasts so many times as long
    retransmit_mult: int = 4  # a rumour is passed on so often, times log10 of the pool's size
    indirect_checks: int = 3  # helpers for a probe that went unanswered
    gossip_interval_s: float = 0.2  # how often waiting rumours are sent
    gossip_nodes: int = 3  # members that hear the waiting rumours in each interval
    push_pull_interval_s: float = 30.0  # how often two members compare everything that they know
    gossip_to_the_dead_s: float = 30.0  # the dead still hear rumours for so long, and are forgotten afterwards
    stream_timeout_s: float = 10.0  # for one stream, from its first byte to its last
    reclaim_after_s: float = 30.0
    """Another address may take the name of a dead node after this long; at once when the node left."""
    rejoin_interval_s: float = 60.0
    """A seed that is no live member is dialled again in each interval, so that long partitions heal."""
    remember_failed_s: float = 86_400.0
    """The addresses of failed nodes are dialled again for this long."""
    awareness_max: int = 8  # the number of scores that a node can give itself
    packet_bytes: int = 1400  # the largest datagram
    max_members: int = 10_000
    """New names beyond so many members are refused. The dead count until they are forgotten."""
    messages_per_s: int = 3_000
    """Messages of datagrams that are taken in a second, a third of them from one address. More of them cost others their answers."""
    label: str = "tenure"
    """Keeps pools apart when addresses are reused. Leave it empty for memberlist before 0.3, which Serf 0.9 has."""
    no_key: bool = False
    """True allows a pool without a key beyond loopback. Anybody who reaches the port can then speak for any node."""
    compression: bool = True  # packets that become smaller by it are compressed
    lag_tolerance_s: float = 0.1
    """An event loop that is later than this did not listen, so nobody else is blamed for that time."""
    slow_health_interval_s: float = 10.0
    """A change of health goes to everybody, as tags, at most once in each interval. Probes carry each change at once."""
    lifeguard: Lifeguard = Lifeguard()  # which of Lifeguard's rules hold

    def __post_init__(self) -> None:
        for field in (
            "probe_interval_s",
            "probe_timeout_s",
            "gossip_interval_s",
            "push_pull_interval_s",
            "stream_timeout_s",
            "rejoin_interval_s",
        ):
            if not 0 < getattr(self, field) < float("inf"):
                raise LimitError(field, getattr(self, field), "a positive number of seconds")
        for field in ("gossip_to_the_dead_s", "reclaim_after_s", "remember_failed_s", "lag_tolerance_s"):
            if not 0 <= getattr(self, field) < float("inf"):
                raise LimitError(field, getattr(self, field), "zero or a positive number of seconds")
        for field in ("suspicion_mult", "suspicion_max_mult", "retransmit_mult", "gossip_nodes", "awareness_max"):
            if getattr(self, field) < 1:
                raise LimitError(field, getattr(self, field), "at least 1")
        if self.indirect_checks < 0:
            raise LimitError("indirect_checks", self.indirect_checks, "zero or more")
        if not 2 <= self.max_members <= 50_000:
            raise LimitError("max_members", self.max_members, "between 2 and 50,000")
        if not self.messages_per_s >= 100:
            raise LimitError("messages_per_s", self.messages_per_s, "at least 100")
        if not 576 <= self.packet_bytes <= 65_000:
            raise LimitError("packet_bytes", self.packet_bytes, "between 576 and 65,000")
        if self.probe_timeout_s >= self.probe_interval_s:
            raise ConfigurationError(
                f"probe_timeout_s is {self.probe_timeout_s} and probe_interval_s is {self.probe_interval_s}",
                remedy="The timeout must be shorter than the interval: the rest of it is for the indirect probes",
            )

    @property
    def largest_datagram_bytes(self) -> int:
        """The largest datagram that is opened. Honest ones have `packet_bytes`; a pool may have members with other settings."""
        return max(4096, 2 * self.packet_bytes)

    @property
    def nack_after_s(self) -> float:
        """The time after which a helper says that it got no answer. It leaves a fifth of the prober's remaining wait to spare.

        memberlist's helper waits for the whole timeout, so its word comes too late, on a WAN even by a second.
        """
        return 0.8 * min(self.probe_timeout_s, self.probe_interval_s - self.probe_timeout_s)

    @classmethod
    def lan(cls, **changes: Any) -> GossipSettings:
        """Returns settings for one datacenter."""
        return replace(cls(), **changes)

    @classmethod
    def wan(cls, **changes: Any) -> GossipSettings:
        """Returns settings for several datacenters."""
        base = cls(
            probe_interval_s=5.0,
            probe_timeout_s=3.0,
            suspicion_mult=6,
            gossip_interval_s=0.5,
            gossip_nodes=4,
            push_pull_interval_s=60.0,
            gossip_to_the_dead_s=60.0,
            stream_timeout_s=30.0,
        )
        return replace(base, **changes)

    @classmethod
    def local(cls, **changes: Any) -> GossipSettings:
        """Returns settings for one machine."""
        base = cls(
            probe_timeout_s=0.2,
            suspicion_mult=3,
            retransmit_mult=2,
            indirect_checks=1,
            gossip_interval_s=0.1,
            push_pull_interval_s=15.0,
            gossip_to_the_dead_s=15.0,
            stream_timeout_s=1.0,
        )
        return replace(base, **changes)

    @classmethod
    def preset(cls, preset: Preset | str, **changes: Any) -> GossipSettings:
        """Returns the preset of that name. Raises `ConfigurationError` where there is none."""
        make = {Preset.LOCAL: cls.local, Preset.LAN: cls.lan, Preset.WAN: cls.wan}
        try:
            return make[Preset(preset)](**changes)
        except ValueError as error:
            if isinstance(error, ConfigurationError):
                raise
            raise ConfigurationError(f"there is no preset {preset!r}", remedy="Use local, lan or wan") from error


def suspicion_min_s(mult: int, nodes: int, interval_s: float) -> float:
    """Returns how long a suspicion lasts at least: so long once enough others have confirmed it."""
    return mult * max(1.0, math.log10(max(1, nodes))) * interval_s


def confirmations_wanted(mult: int, nodes: int) -> int:
    """Returns how many others must confirm a suspicion to make it as short as it can be; 0 when the pool is too small for that."""
    wanted = mult - 2
    return 0 if wanted < 1 or nodes - 2 < wanted else wanted


def suspicion_timeout_s(confirmed: int, wanted: int, min_s: float, max_s: float) -> float:
    """Returns the length of a suspicion. It falls from `max_s` to `min_s` with the logarithm of the confirmations (Lifeguard, section IV-B)."""
    if wanted < 1:
        return min_s
    share = math.log(confirmed + 1) / math.log(wanted + 1)
    return max(min_s, max_s - (max_s - min_s) * share)


def retransmit_limit(mult: int, nodes: int) -> int:
    """Returns how often one node passes a rumour on."""
    return mult * math.ceil(math.log10(nodes + 1))


def push_pull_scale(nodes: int) -> int:
    """Returns by which factor push/pulls become rarer. Above 32 nodes it grows, so that the work of all nodes together stays bounded."""
    return 1 if nodes <= 32 else math.ceil(math.log2(nodes) - 5) + 1


class Awareness:
    """A node's trust in itself (Lifeguard's local health). 0 means that it is well; each point makes it one interval more patient."""

    __slots__ = ("_enabled", "score", "worst")

    def __init__(self, maximum: int, *, enabled: bool = True) -> None:
        self.worst = maximum - 1
        self.score = 0  # 0 <= score <= worst
        self._enabled = enabled

    def add(self, points: int) -> None:
        """Adds points for signs that this node is the slow one. A probe that went well takes one away."""
        if self._enabled:
            self.score = min(self.worst, max(0, self.score + points))

    def scaled(self, seconds: float) -> float:
        """Returns `seconds`, made longer by the present score."""
        return seconds * (self.score + 1)


class Suspicion:
    """One suspicion, from the accusation until it is refuted or its deadline passes. Each new confirmation may only bring the deadline nearer."""

    __slots__ = ("_confirmed_by", "_max_s", "_min_s", "_wanted", "begun", "deadline", "incarnation")

    def __init__(self, *, now: float, accuser: str, incarnation: int, wanted: int, min_s: float, max_s: float) -> None:
        self.begun = now
        self.incarnation = incarnation  # the incarnation of the suspect that was accused
        self._wanted, self._min_s, self._max_s = wanted, min_s, max_s
        # The accuser is in the set so that its own repetition does not count as a confirmation.
        self._confirmed_by = {accuser}
        self.deadline = now + suspicion_timeout_s(0, wanted, min_s, max_s)

    @property
    def confirmations(self) -> int:
        """The number of nodes beside the accuser that suspect the same incarnation."""
        return len(self._confirmed_by) - 1

    def confirm(self, by: str) -> bool:
        """Counts a confirmation. Returns True when it was news, and so worth passing on."""
        if self.confirmations >= self._wanted or by in self._confirmed_by:
            return False
        self._confirmed_by.add(by)
        timeout = suspicion_timeout_s(self.confirmations, self._wanted, self._min_s, self._max_s)
        self.deadline = min(self.deadline, self.begun + timeout)
        return True

    def delay(self, seconds: float) -> None:
        """Moves the suspicion by the time in which this node did not listen: a refutation may wait unread."""
        self.begun += seconds
        self.deadline += seconds


DEFAULT_PORT = 7946


def parse_address(text: str, *, port: int = DEFAULT_PORT) -> Address:
    """Returns the host and the port of `host:port`, `[::1]:7946` or a host alone. The host may be a name that is still to be resolved."""
    host, colon, tail = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
        host, tail = text, str(port)
    try:
        number = int(tail)
    except ValueError:
        number = -1
    host = host.removeprefix("[").removesuffix("]")
    if not host or not 0 <= number <= 65_535:
        raise ConfigurationError(f"{text!r} is no address", remedy="Write host:port, as in 10.0.0.7:7946")
    return host, number


def format_address(address: Address) -> str:
    """Returns the text of an address, as `parse_address` reads it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def require_key(bind: Address, *, is_keyed: bool, no_key: bool) -> None:
    """Raises `ConfigurationError` where a node would gossip beyond loopback without a key and nobody said that it may."""
    host = bind[0]
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not (is_loopback or is_keyed or no_key):
        raise ConfigurationError(
            f"gossip on {format_address(bind)} has no key: anybody who reaches the port can speak for any node",
            remedy="Give a key file (`tenure gossip keygen` makes a key), listen on 127.0.0.1, or say --gossip-no-key",
        )
