"""How a node gossips, as it is said on the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The address, the seeds and the keys with which a node gossips. With neither a `bind` nor a key it does not gossip."""

    bind: str = ""
    """host:port; port 0 for a free one. Empty, with a key: the address from which this machine reaches the engine, and a free port."""
    join: tuple[str, ...] = ()
    """Addresses of any members. The node dials them again while they are missing."""
    advertise: str = ""
    key_file: str = ""
    """Keys in base64, one a line; the first encrypts. A rotation of keys is written to it."""
    no_key: bool = False
    """True allows gossip without a key beyond loopback."""
    label: str = "tenure"

    def __post_init__(self) -> None:
        if self.bind:
            from tenure.gossip import parse_address  # most workers do not gossip, and shall start quickly
            from tenure.gossip.settings import require_key

            require_key(parse_address(self.bind), is_keyed=bool(self.key_file), no_key=self.no_key)
