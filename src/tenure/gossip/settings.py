"""How a pool behaves: one frozen struct, with memberlist's three presets.

Every node of a pool should have the same settings; nothing breaks where they differ, but the slowest decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tenure.errors import ConfigurationError, LimitError


class Preset(StrEnum):
    """Where the nodes of a pool are."""

    LOCAL = "local"
    LAN = "lan"
    WAN = "wan"


@dataclass(frozen=True, slots=True)
class Lifeguard:
    """The three parts of Lifeguard, each of which can be left out to see what it does. Keep them all on."""

    probe: bool = True  # slow probing, and patience, while our own probes go unanswered
    suspicion: bool = True  # suspicions start long and shrink as others confirm them
    buddy: bool = True  # who is suspected learns it from the next ping, and not only by rumour


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """The default is the LAN preset. Times are in seconds."""

    probe_interval_s: float = 1.0
    probe_timeout_s: float = 0.5
    suspicion_mult: int = 4
    suspicion_max_mult: int = 6
    retransmit_mult: int = 4
    indirect_checks: int = 3
    gossip_interval_s: float = 0.2
    gossip_nodes: int = 3
    push_pull_interval_s: float = 30.0
    gossip_to_the_dead_s: float = 30.0
    stream_timeout_s: float = 10.0
    reclaim_after_s: float = 30.0
    """A dead node's name may be taken by another address after this long; at once when it left."""
    rejoin_interval_s: float = 60.0
    """How often a seed that is no live member is dialled again, so that long partitions heal."""
    remember_failed_s: float = 86_400.0
    """How long the addresses of failed nodes are among those that are dialled again."""
    awareness_max: int = 8
    packet_bytes: int = 1400
    label: str = "tenure"
    """Keeps pools apart when addresses are reused. Empty to speak with memberlist before 0.3, as Serf 0.9 is."""
    compression: bool = True
    lag_tolerance_s: float = 0.1
    """An event loop that is later than this was not listening: what it missed is not held against others."""
    slow_health_interval_s: float = 10.0
    """How often, at most, a change of health goes to everybody as tags; probes carry each change at once."""
    lifeguard: Lifeguard = Lifeguard()

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
        if not 576 <= self.packet_bytes <= 65_000:
            raise LimitError("packet_bytes", self.packet_bytes, "between 576 and 65,000")
        if self.probe_timeout_s >= self.probe_interval_s:
            raise ConfigurationError(
                f"probe_timeout_s is {self.probe_timeout_s} and probe_interval_s is {self.probe_interval_s}",
                remedy="The timeout must be shorter than the interval: the rest of it is for the indirect probes",
            )

    @property
    def nack_after_s(self) -> float:
        """When a helper says that it got no answer: with a fifth of what the prober still waits to spare.

        The original waits for the whole timeout, and so comes too late, on a WAN even by a second.
        """
        return 0.8 * min(self.probe_timeout_s, self.probe_interval_s - self.probe_timeout_s)

    @classmethod
    def lan(cls, **changes: Any) -> GossipSettings:
        """One datacenter."""
        return replace(cls(), **changes)

    @classmethod
    def wan(cls, **changes: Any) -> GossipSettings:
        """Several datacenters."""
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
        """One machine."""
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
        """By its name."""
        make = {Preset.LOCAL: cls.local, Preset.LAN: cls.lan, Preset.WAN: cls.wan}
        try:
            return make[Preset(preset)](**changes)
        except ValueError as error:
            if isinstance(error, ConfigurationError):
                raise
            raise ConfigurationError(f"there is no preset {preset!r}", remedy="Use local, lan or wan") from error
