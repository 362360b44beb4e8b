from __future__ import annotations

import pytest

from tenure.agent.toolbox.addresses import why_not_public


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("0.0.0.0", "this network"),
        ("10.1.2.3", "private"),
        ("100.64.0.1", "shared by a carrier"),
        ("169.254.169.254", "link-local"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("192.0.0.192", "protocol assignments"),
        ("198.19.0.1", "benchmarks"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "it has a zone id"),
        ("2606:4700::1111%1", "it has a zone id"),
        ("fec0::1", "site-local"),
        ("fd00:ec2::254", "private"),
        ("ff02::1", "multicast"),
        ("2001:db8::1", "documentation"),
        ("4000::1", "not global unicast"),
        ("::ffff:127.0.0.1", "IPv4-mapped 127.0.0.1: loopback"),
        ("::ffff:169.254.169.254", "IPv4-mapped 169.254.169.254: link-local"),
        ("::ffff:0:10.0.0.1", "IPv4-translated 10.0.0.1: private"),
        ("::10.0.0.1", "IPv4-compatible 10.0.0.1: private"),
        ("64:ff9b::169.254.169.254", "NAT64 169.254.169.254: link-local"),
        ("64:ff9b::127.0.0.1", "NAT64 127.0.0.1: loopback"),
        ("64:ff9b:1::8.8.8.8", "local NAT64"),
        ("2002:7f00:1::", "6to4 127.0.0.1: loopback"),
        ("2002:a9fe:a9fe::1", "6to4 169.254.169.254: link-local"),
        ("2001:0:808:808::f5ff:fffe", "Teredo client 10.0.0.1: private"),
        ("2001:0:7f00:1::f7f7:f7f7", "Teredo server 127.0.0.1: loopback"),
        ("2606:4700::5efe:10.0.0.1", "ISATAP 10.0.0.1: private"),
        ("2606:4700::200:5efe:192.168.1.1", "ISATAP 192.168.1.1: private"),
    ],
)
def test_addresses_inside_are_known_also_in_their_disguises(address: str, why: str) -> None:
    assert why_not_public(address) == why


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "100.63.255.255", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450:4001:828::200e",
     "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"],
)  # fmt: skip
def test_addresses_of_the_public_network_are_let_through_and_so_is_a_translator_that_leads_to_one(address: str) -> None:
    assert why_not_public(address) is None
