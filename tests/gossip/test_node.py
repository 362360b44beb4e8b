"""The shell on real sockets: small pools on loopback, with settings fast enough for a test."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import asynccontextmanager

import pytest
from tests.gossip.one_node import health
from tests.patience import wait_until_async

from tenure.errors import ConfigurationError, JoinError
from tenure.gossip import (
    Complaint,
    Event,
    GossipNode,
    GossipSettings,
    Keyring,
    MemberChange,
    MemberEvent,
    MemberState,
    PoolWarning,
    UdpTcpTransport,
    format_address,
    parse_address,
)
from tenure.gossip.sealing import PacketCodec
from tenure.randomness import secret_bytes

pytestmark = pytest.mark.asyncio

FAST = {
    "probe_interval_s": 0.2,
    "probe_timeout_s": 0.1,
    "gossip_interval_s": 0.02,
    "push_pull_interval_s": 1.0,
    "suspicion_mult": 3,
    "suspicion_max_mult": 2,
}


def fast(**changes: object) -> GossipSettings:
    return GossipSettings.local(**{**FAST, **changes})


class Watched:
    """A node and everything it said."""

    def __init__(self, node: GossipNode) -> None:
        self.node = node
        self.events: list[Event] = []
        self.health: list[tuple[str, int]] = []
        node.on_event(self.events.append)
        node.on_health(lambda name, piggyback: self.health.append((name, piggyback.capacity)))

    def saw(self, what: MemberChange, name: str) -> bool:
        return any(isinstance(e, MemberEvent) and e.change is what and e.node == name for e in self.events)

    def alive(self) -> set[str]:
        return {member.name for member in self.node.members if member.state is MemberState.ALIVE}


@asynccontextmanager
async def pool(count: int, settings: GossipSettings | None = None, **more: object):
    nodes = [Watched(GossipNode(f"n{i}", settings=settings or fast(), **more)) for i in range(count)]
    try:
        for watched in nodes:
            await watched.node.start()
        for watched in nodes[1:]:
            await watched.node.join([format_address(nodes[0].node.address)])
        everybody = {watched.node.name for watched in nodes}
        await wait_until_async(lambda: all(watched.alive() == everybody for watched in nodes))
        yield nodes
    finally:
        for watched in nodes:
            await watched.node.close()


async def test_nodes_find_each_other_through_one_seed_and_say_goodbye() -> None:
    async with pool(4, tags={"role": "test"}) as nodes:
        assert all(member.tags["role"] == "test" for member in nodes[3].node.members)
        starts = {watched.node.start_id for watched in nodes}
        assert len(starts) == 4
        assert nodes[0].node.member("n3").start_id == nodes[3].node.start_id
        await nodes[3].node.leave()
        await nodes[3].node.close()
        await wait_until_async(lambda: all(watched.saw(MemberChange.LEFT, "n3") for watched in nodes[:3]))
        assert not any(watched.saw(MemberChange.FAILED, "n3") for watched in nodes)


async def test_the_last_but_one_says_goodbye_to_the_last() -> None:
    async with pool(2) as nodes:
        await nodes[1].node.leave()
        await nodes[1].node.close()
        await wait_until_async(lambda: nodes[0].saw(MemberChange.LEFT, "n1"))
        await asyncio.wait_for(nodes[0].node.leave(), 1.0)  # nobody is left to be told


async def test_a_pool_lives_on_ipv6_too() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    async with pool(3, bind=("::1", 0), keyring=Keyring([bytes(16)], entropy=secret_bytes)) as nodes:
        assert all(member.address[0] == "::1" for member in nodes[2].node.members)
        await nodes[2].node.close()
        await wait_until_async(lambda: all(watched.saw(MemberChange.FAILED, "n2") for watched in nodes[:2]))
        assert all(watched.node.counters.malformed == 0 for watched in nodes)


async def test_a_death_is_noticed_by_all() -> None:
    async with pool(4) as nodes:
        await nodes[3].node.close()
        await wait_until_async(lambda: all(watched.saw(MemberChange.FAILED, "n3") for watched in nodes[:3]))


async def test_a_node_that_comes_back_on_another_port_is_known_at_once() -> None:
    """Its death need not be noticed first, nor the 30 s pass after which a stranger may have its name."""
    patient = fast(suspicion_mult=1_000, reclaim_after_s=3_600.0)
    async with pool(3, patient) as nodes:
        old = nodes[2].node.address
        await nodes[2].node.close()
        again = GossipNode("n2", settings=patient)
        await again.start()
        try:
            await again.join([nodes[0].node.address])
            assert again.address != old
            for one in nodes[:2]:
                await wait_until_async(lambda one=one: one.node.member("n2").address == again.address)
                assert one.node.member("n2").start_id == again.start_id
                assert not one.saw(MemberChange.FAILED, "n2")
        finally:
            await again.close()


async def test_new_tags_and_health_reach_everybody_and_clocks_are_compared() -> None:
    async with pool(3) as nodes:
        nodes[1].node.set_tags({"role": "boss"})
        nodes[2].node.set_health(health(node_id="n2", capacity=5))
        await wait_until_async(lambda: all(w.node.member("n1").tags.get("role") == "boss" for w in nodes))
        await wait_until_async(lambda: all(("n2", 5) in w.health for w in nodes[:2]))
        nodes[2].node.set_health(health(node_id="n2", capacity=4))  # no tag for that: it rides on probes
        await wait_until_async(lambda: all(("n2", 4) in w.health for w in nodes[:2]))
        await wait_until_async(lambda: nodes[0].node.skew("n1") is not None)
        assert abs(nodes[0].node.skew("n1").offset_s) < 0.5
        assert nodes[0].node.own_skew is not None


async def test_an_encrypted_pool_rotates_its_key_and_keeps_others_out() -> None:
    old, new = bytes(16), bytes(range(32))
    rings = [Keyring([old], entropy=secret_bytes) for _ in range(3)]
    nodes = [Watched(GossipNode(f"n{i}", settings=fast(), keyring=rings[i])) for i in range(3)]
    stranger = GossipNode("stranger", settings=fast())
    try:
        for watched in nodes:
            await watched.node.start()
            await watched.node.join([nodes[0].node.address] if watched is not nodes[0] else [])
        await wait_until_async(lambda: all(len(watched.alive()) == 3 for watched in nodes))
        await stranger.start()
        with pytest.raises(JoinError, match="no seed let us in"):
            await stranger.join([nodes[0].node.address])
        for step in ("install", "use", "remove"):
            for ring in rings:
                getattr(ring, step)(old if step == "remove" else new)
                await asyncio.sleep(0.1)
        seen = [watched.node.counters.probes for watched in nodes]
        await wait_until_async(lambda: all(w.node.counters.probes > n + 3 for w, n in zip(nodes, seen, strict=True)))
        assert not any(watched.saw(MemberChange.FAILED, f"n{i}") for watched in nodes for i in range(3))
        assert all(len(watched.alive()) == 3 for watched in nodes)
        assert all(watched.node.counters.malformed == 0 for watched in nodes[1:])
    finally:
        for node in [*(watched.node for watched in nodes), stranger]:
            await node.close()


async def test_malformed_datagrams_and_streams_cost_a_counter_and_nothing_else() -> None:
    async with pool(2) as nodes:
        address = nodes[0].node.address
        before = nodes[0].node.counters.malformed
        junk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for data in (b"", b"\x00", b"\xff" * 1400, PacketCodec(label="other").seal([b"\x08x"])):
            junk.sendto(data, address)
        junk.close()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        await wait_until_async(lambda: nodes[0].node.counters.malformed >= before + 4)
        assert nodes[0].node.counters.streams_failed == 1
        seen = nodes[0].node.counters.probes
        await wait_until_async(lambda: nodes[0].node.counters.probes > seen + 1)
        assert nodes[0].alive() == {"n0", "n1"}


async def test_a_stopped_event_loop_is_noticed_said_and_held_against_nobody() -> None:
    async with pool(3) as nodes:
        time.sleep(1.2)  # everything here is one loop: all of them were deaf for six probe intervals
        await wait_until_async(lambda: all(any(_is(e, Complaint.LAGGED) for e in w.events) for w in nodes))
        await asyncio.sleep(0.5)
        assert not any(w.saw(MemberChange.FAILED, f"n{i}") for w in nodes for i in range(3))
        assert nodes[0].node.counters.lag_seconds > 0.5


def _is(event: Event, complaint: Complaint) -> bool:
    return isinstance(event, PoolWarning) and event.complaint is complaint


async def test_seeds_that_are_not_there_are_named_and_dialled_again() -> None:
    settings = fast(rejoin_interval_s=0.3)
    early, late = GossipNode("early", settings=settings), None
    holder = UdpTcpTransport()
    address = await holder.open(
        packets=lambda *_: None,
        streams=lambda *_: None,
        stream_failed=lambda: None,
        inbox=lambda _: None,
        stream_timeout_s=1,
    )
    await holder.close()
    try:
        await early.start()
        with pytest.raises(JoinError, match=format_address(address)):
            await early.join([address])
        late = GossipNode("late", settings=settings, bind=address)
        await late.start()
        await wait_until_async(
            lambda: early.member("late") is not None and early.member("late").state is MemberState.ALIVE
        )
    finally:
        await early.close()
        if late:
            await late.close()


async def test_a_listener_that_raises_is_logged_and_the_others_hear(caplog: pytest.LogCaptureFixture) -> None:
    async with pool(1) as nodes:
        node = nodes[0].node
        end = node.on_event(lambda event: 1 / 0)
        heard: list[Event] = []
        node.on_event(heard.append)
        other = GossipNode("other", settings=fast())
        await other.start()
        with caplog.at_level(logging.ERROR, "tenure.gossip"):
            await other.join([node.address])
            await wait_until_async(lambda: bool(heard))
        assert "listener raised" in caplog.text
        end()
        await other.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "fd00::1"])
async def test_beyond_loopback_a_key_is_required_or_a_word_that_there_is_none(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"anybody who reaches the port .* --gossip-no-key"):
        GossipNode("n", bind=(host, 0), settings=fast())
    GossipNode("n", bind=(host, 0), settings=fast(no_key=True))
    GossipNode("n", bind=(host, 0), settings=fast(), keyring=Keyring([bytes(16)], entropy=secret_bytes))
    GossipNode("n", bind=("::1", 0), settings=fast())


async def test_what_cannot_work_is_refused_with_a_remedy() -> None:
    node = GossipNode("n", settings=fast())
    with pytest.raises(ConfigurationError, match="not started"):
        node.set_tags({})
    await node.start()
    with pytest.raises(ConfigurationError, match="was started before"):
        await node.start()
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        await GossipNode("m", bind=node.address, settings=fast()).start()
    with pytest.raises(ConfigurationError, match="address to advertise"):
        await GossipNode("m", bind=("0.0.0.0", 0), settings=fast(no_key=True)).start()
    with pytest.raises(JoinError, match="none of their names is known"):
        await node.join(["no-such-host.invalid:1"])
    await node.close()
    await node.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7:80", ("10.0.0.7", 80)),
        ("10.0.0.7", ("10.0.0.7", 7946)),
        ("seed.example", ("seed.example", 7946)),
        ("[::1]:80", ("::1", 80)),
        ("[::1]", ("::1", 7946)),
        ("fd00::1", ("fd00::1", 7946)),
    ],
)
async def test_addresses_are_read_as_people_write_them(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert parse_address(format_address(address)) == address


@pytest.mark.parametrize("text", ["", ":80", "host:port", "host:70000", "host:-1"])
async def test_what_is_no_address_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        parse_address(text)
