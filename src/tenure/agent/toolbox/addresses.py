"""Judges whether an IP address is one of the public network. Pure.

The list is our own: Python's `is_global` changes from release to release, and calls addresses public that carry a private one inside. An IPv6 address in which
an IPv4 address is embedded leads to that address, through a translator or a tunnel, and is judged by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_DENIED_V4 = {
    IPv4Network(net): name
    for net, name in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relays"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarks"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
}
_DENIED_V6 = {
    IPv6Network(net): name
    for net, name in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("2001::/23", "protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
}
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_TEREDO = IPv6Network("2001::/32")
_IN_LAST_BITS = {
    IPv6Network(net): name
    for net, name in (
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b::/96", "NAT64"),
    )
}
"""Networks whose addresses end in an IPv4 address."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The middle of an interface id that ends in an IPv4 address, in any network (RFC 5214)."""


def why_not_public(text: str) -> str | None:
    """Returns the reason why an address is not one of the public network, or None when it is. A zone id names a link of this machine."""
    bare, zone, _ = text.partition("%")
    if zone:
        return "it has a zone id"
    address = ip_address(bare)
    if isinstance(address, IPv4Address):
        return next((name for net, name in _DENIED_V4.items() if address in net), None)
    for how, inner in _embedded(address):
        if why := why_not_public(str(inner)):
            return f"{how} {inner}: {why}"
        if how in _IN_LAST_BITS.values():
            return None  # the translator's network itself is in no list
    if address not in _TEREDO:
        for net, name in _DENIED_V6.items():
            if address in net:
                return name
    return None if address in _GLOBAL_UNICAST else "not global unicast"


def _embedded(address: IPv6Address) -> Iterator[tuple[str, IPv4Address]]:
    """Yields each IPv4 address that an IPv6 address leads to, with the name of the way."""
    bits, last = int(address), IPv4Address(int(address) & 0xFFFFFFFF)
    if bits in (0, 1):  # `is_loopback` of Python 3.13 also says yes to ::ffff:127.0.0.1
        return  # ::1 and :: are in the network of the IPv4-compatible addresses, and are none
    for net, name in _IN_LAST_BITS.items():
        if address in net:
            yield name, last
    if address.sixtofour is not None:
        yield "6to4", address.sixtofour
    if address.teredo is not None:
        yield from (("Teredo server", address.teredo[0]), ("Teredo client", address.teredo[1]))
    if (bits >> 32) & 0xFFFFFFFF in _ISATAP:
        yield "ISATAP", last
