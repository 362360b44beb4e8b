"""Addresses as people write them: `host:port`, `[::1]:7946`, or a host alone with memberlist's port."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from tenure.errors import ConfigurationError
from tenure.gossip.messages import Address

DEFAULT_PORT = 7946


def parse_address(text: str, *, port: int = DEFAULT_PORT) -> Address:
    """Host and port; the host may be a name that is still to be resolved."""
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
    """The inverse."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolve(address: Address) -> list[Address]:
    """The IP addresses of a host, which may be one already; none where the name is unknown."""
    host, port = address
    try:
        return [(ipaddress.ip_address(host).compressed, port)]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys((str(entry[4][0]), port) for entry in found))
