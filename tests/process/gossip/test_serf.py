"""Real Serf agents are the judge: we join them, they join us, and each sees what the other does.

At the LAN settings a death among two to four nodes takes 4 s of suspicion and up to a few probes before it; `BOUND_S`
leaves room for a loaded machine.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.patience import wait_until_async
from tests.process.gossip.serf import SerfAgent
from tests.process.stillness import Stillness

from tenure.errors import JoinError
from tenure.gossip import GossipNode, GossipSettings, Keyring, MemberChange, MemberEvent, MemberState, format_key
from tenure.gossip.messages import Address, Suspect
from tenure.gossip.net.transport import PacketHandler, StreamHandler, UdpTcpTransport
from tenure.gossip.sealing import PacketCodec
from tenure.gossip.stream import StreamMessage
from tenure.gossip.wire import encode
from tenure.randomness import secret_bytes

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

LAN = GossipSettings.lan(label="")  # Serf 0.9 is older than labels
BOUND_S = 180.0
STILL_S = 0.3
"""A machine that stands still for longer lets a probe of half a second fail, on either side."""
StartSerf = Callable[..., SerfAgent]


class CutTransport(UdpTcpTransport):
    """Real sockets on which a test can cut the ways to and from single addresses."""

    def __init__(self, bind: Address = ("127.0.0.1", 0)) -> None:
        super().__init__(bind)
        self.not_to: set[Address] = set()
        self.not_from: set[Address] = set()
        """Their datagrams are lost, and nobody's streams are answered: a stream's port says nothing about its node."""
        self.sent_to: list[Address] = []

    async def open(self, *, packets: PacketHandler, streams: StreamHandler, **given: Any) -> Address:
        def heard(source: Address, data: bytes) -> None:
            if source not in self.not_from:
                packets(source, data)

        def answered(source: Address, message: StreamMessage) -> bytes | None:
            return None if self.not_from else streams(source, message)

        return await super().open(packets=heard, streams=answered, **given)

    def send(self, to: Address, data: bytes) -> None:
        if to not in self.not_to:
            self.sent_to.append(to)
            super().send(to, data)

    async def exchange(self, to: Address, data: bytes, *, timeout_s: float) -> StreamMessage:
        if to in self.not_to:
            raise ConnectionRefusedError("cut off by the test")
        return await super().exchange(to, data, timeout_s=timeout_s)


class Ours:
    """A node of ours, and what it saw."""

    def __init__(self, name: str, *, bind: Address = ("127.0.0.1", 0), **options: object) -> None:
        self.transport = CutTransport(bind)
        self.node = GossipNode(name, transport=self.transport, **{"settings": LAN, **options})
        self.events: list[tuple[float, MemberEvent]] = []
        self.node.on_event(
            lambda event: self.events.append((time.monotonic(), event)) if isinstance(event, MemberEvent) else None
        )

    def saw(self, what: MemberChange, name: str) -> bool:
        return any(event.change is what and event.node == name for _, event in self.events)

    def state(self, name: str) -> MemberState | None:
        member = self.node.member(name)
        return member.state if member else None

    async def __aenter__(self) -> Ours:
        await self.node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.close()


async def probing_goes_well(ours: Ours) -> None:
    """Three probes in a row, all answered."""
    before, failed = ours.node.counters.probes, ours.node.counters.probes_failed
    with Stillness() as machine:
        await wait_until_async(lambda: ours.node.counters.probes >= before + 3)
    assert ours.node.counters.probes_failed == failed or machine.excuses(STILL_S), "a probe failed"


def ring(*keys: bytes) -> Keyring:
    return Keyring(keys, entropy=secret_bytes)


@pytest.mark.parametrize("compression", [True, False], ids=["compressed", "plain"])
@pytest.mark.parametrize("encrypted", [True, False], ids=["encrypted", "open"])
async def test_we_join_them_and_they_join_us_and_all_list_all_with_tags(
    serf: StartSerf, compression: bool, encrypted: bool
) -> None:
    key = bytes(range(16))
    more = {"keyring": ring(key)} if encrypted else {}
    secret = {"key": format_key(key)} if encrypted else {}
    settings = GossipSettings.lan(label="", compression=compression)
    first = await asyncio.to_thread(serf, "serf-1", tags={"role": "db"}, compression=compression, **secret)
    async with Ours("ours-1", tags={"role": "web"}, settings=settings, **more) as ours:
        await ours.node.join([first.address])
        second = await asyncio.to_thread(
            serf, "serf-2", tags={"dc": "west"}, join=ours.node.address, compression=compression, **secret
        )
        everybody = {"serf-1", "serf-2", "ours-1"}

        def complete() -> bool:
            views = [
                {name for name, (status, _) in agent.members().items() if status == "alive"}
                for agent in (first, second)
            ]
            views.append({member.name for member in ours.node.members if member.state is MemberState.ALIVE})
            return all(view == everybody for view in views)

        await wait_until_async(complete, why="a full list on all sides")
        for agent in (first, second):
            tags = {name: tags for name, (_, tags) in agent.members().items()}
            assert tags["ours-1"]["role"] == "web"
            assert tags["ours-1"]["start"] == ours.node.start_id
        assert ours.node.member("serf-1").tags == {"role": "db"}
        assert ours.node.member("serf-2").tags == {"dc": "west"}
        # Both directions keep probing each other: nobody becomes a suspect.
        await probing_goes_well(ours)
        assert ours.node.counters.malformed == 0


async def test_killed_on_either_side_is_seen_by_the_other_within_the_same_bounds(serf: StartSerf) -> None:
    agents = [await asyncio.to_thread(serf, f"serf-{i}") for i in range(3)]
    async with AsyncExitStack() as stack:
        ours = [await stack.enter_async_context(Ours(f"ours-{i}")) for i in range(3)]
        for agent in agents[1:]:
            await asyncio.to_thread(agent.run, "join", f"127.0.0.1:{agents[0].address[1]}")
        for mine in ours:
            await mine.node.join([agents[0].address])
        await wait_until_async(lambda: all(len(mine.node.members) == 6 for mine in ours))
        await wait_until_async(lambda: all(len(agent.members()) == 6 for agent in agents))
        begun = time.monotonic()
        agents[2].kill()
        await ours[2].node.close()
        took: dict[tuple[str, str], float] = {}

        def note() -> bool:
            for watcher, dead in (("serf-0", "serf-2"), ("serf-0", "ours-2"), ("serf-1", "ours-2")):
                if (watcher, dead) not in took and agents[int(watcher[-1])].status(dead) == "failed":
                    took[watcher, dead] = time.monotonic() - begun
            for mine in ours[:2]:
                for dead in ("serf-2", "ours-2"):
                    if (mine.node.name, dead) not in took and mine.saw(MemberChange.FAILED, dead):
                        took[mine.node.name, dead] = time.monotonic() - begun
            return len(took) == 7

        await wait_until_async(note, why=f"the deaths (seen so far: {took})")
        # Six nodes: 4 s of suspicion at least; the first probe of the dead comes within a few intervals.
        assert all(3.9 < seconds < BOUND_S for seconds in took.values()), took
        assert not any(
            mine.saw(MemberChange.FAILED, name) for mine in ours[:2] for name in ("serf-0", "serf-1", "ours-0")
        )


async def test_leave_rejoin_and_tag_updates_go_both_ways(serf: StartSerf) -> None:
    agent = await asyncio.to_thread(serf, "serf-1", tags={"role": "db"})
    async with Ours("stays") as stays:
        await stays.node.join([agent.address])
        async with Ours("goes", tags={"v": "1"}) as goes:
            await goes.node.join([agent.address])
            await wait_until_async(lambda: agent.status("goes") == "alive")
            goes.node.set_tags({"v": "2"})
            await wait_until_async(lambda: agent.members()["goes"][1].get("v") == "2", why="our tags at Serf")
            await asyncio.to_thread(agent.run, "tags", "-set", "role=cache")
            await wait_until_async(
                lambda: stays.node.member("serf-1").tags.get("role") == "cache", why="Serf's tags at us"
            )
            address = goes.node.address
            await goes.node.leave()
        await wait_until_async(lambda: agent.status("goes") == "left", why="left, not failed")
        await wait_until_async(lambda: stays.saw(MemberChange.LEFT, "goes"))
        async with Ours("goes", tags={"v": "3"}, bind=address) as again:  # the same name, at the same place
            await again.node.join([agent.address])
            await wait_until_async(
                lambda: agent.members()["goes"][0] == "alive" and agent.members()["goes"][1]["v"] == "3"
            )
            await wait_until_async(lambda: stays.state("goes") is MemberState.ALIVE)
            await again.node.leave()
        await wait_until_async(lambda: agent.status("goes") == "left", why="left again")
        await asyncio.to_thread(agent.run, "leave")
        await wait_until_async(lambda: stays.saw(MemberChange.LEFT, "serf-1"), why="Serf's leave at us")
        assert not stays.saw(MemberChange.FAILED, "serf-1")


async def test_an_accusation_is_refuted_by_both_kinds(serf: StartSerf) -> None:
    agent = await asyncio.to_thread(serf, "serf-1")
    async with Ours("ours-1") as accused, Ours("ours-2") as witness:
        for mine in (accused, witness):
            await mine.node.join([agent.address])
        await wait_until_async(lambda: len(agent.members()) == 3 and len(witness.node.members) == 3)
        # The pool is told that our node is suspect: it must answer above the accusation, and Serf must believe it.
        before = accused.node.incarnation
        lie = Suspect(before, "ours-1", "serf-1")
        witness.transport.send(agent.address, PacketCodec(label="").seal([encode(lie)]))
        await wait_until_async(lambda: accused.node.incarnation > before, why="our refutation")
        # And Serf refutes what we say of it.
        incarnation = witness.node.member("serf-1").incarnation
        lie = Suspect(incarnation, "serf-1", "ours-2")
        accused.transport.send(agent.address, PacketCodec(label="").seal([encode(lie)]))
        await wait_until_async(lambda: witness.node.member("serf-1").incarnation > incarnation, why="Serf's refutation")
        await wait_until_async(lambda: agent.status("ours-1") == "alive")
        assert accused.node.counters.refutations >= 1


async def test_stopped_and_continued_on_either_side_is_suspected_and_comes_back(serf: StartSerf) -> None:
    agent = await asyncio.to_thread(serf, "serf-1")
    async with Ours("ours-1") as one, Ours("ours-2") as two:
        for mine in (one, two):
            await mine.node.join([agent.address])
        await wait_until_async(lambda: len(one.node.members) == 3 and len(two.node.members) == 3)
        agent.signal(signal.SIGSTOP)
        await wait_until_async(lambda: one.saw(MemberChange.SUSPECTED, "serf-1"), why="the suspicion")
        agent.signal(signal.SIGCONT)
        await wait_until_async(
            lambda: one.state("serf-1") is MemberState.ALIVE and two.state("serf-1") is MemberState.ALIVE
        )
        assert one.saw(MemberChange.REFUTED, "serf-1")
        assert not one.saw(MemberChange.FAILED, "serf-1")


@pytest.mark.parametrize("helper", ["serf", "ours"])
async def test_an_indirect_probe_goes_through_either_kind(serf: StartSerf, helper: str) -> None:
    """The prober cannot reach the target directly, by datagram or stream; one helper of the kind in question can."""
    target = await asyncio.to_thread(serf, "target")
    settings = GossipSettings.lan(label="")
    async with AsyncExitStack() as stack:
        prober = await stack.enter_async_context(Ours("prober", settings=settings))
        await prober.node.join([target.address])
        if helper == "serf":
            via = await asyncio.to_thread(serf, "helper", join=target.address)
            helper_address = via.address
        else:
            mine = await stack.enter_async_context(Ours("helper", settings=settings))
            await mine.node.join([target.address])
            helper_address = mine.node.address
        await wait_until_async(lambda: len(prober.node.members) == 3)
        prober.transport.not_to.add(target.address)
        prober.transport.sent_to.clear()
        before = prober.node.counters.probes_indirect
        with Stillness() as machine:
            # Three whole rounds: each began after the one before it had ended, and each would have accused the target.
            await wait_until_async(lambda: prober.node.counters.probes_indirect >= before + 4, why="indirect probes")
        assert {port for _, port in prober.transport.sent_to} == {helper_address[1]}
        assert prober.state("target") is not MemberState.DEAD
        assert prober.node.counters.probes_failed == 0 or machine.excuses(STILL_S)
        assert not prober.saw(MemberChange.SUSPECTED, "target") or machine.excuses(STILL_S)


async def test_a_serf_agent_probes_through_us(serf: StartSerf) -> None:
    """Serf's direct pings to the target are dropped by the target itself; its helper is our node, which is answered."""
    agent = await asyncio.to_thread(serf, "serf-1")
    async with Ours("helper") as helper, Ours("target") as target:
        for mine in (helper, target):
            await mine.node.join([agent.address])
        await wait_until_async(lambda: len(agent.members()) == 3 and len(target.node.members) == 3)
        target.transport.not_from.add(agent.address)
        await wait_until_async(lambda: helper.node.counters.relays_answered >= 3, why="Serf's requests for help")
        assert agent.status("target") == "alive"
        assert "Marking target as failed" not in agent.log.read_text()
        target.transport.not_from.clear()


async def test_serf_keys_rotates_the_key_of_a_mixed_pool_and_loses_nobody(serf: StartSerf) -> None:
    old, new = bytes(range(16)), bytes(range(16, 32))
    agents = [await asyncio.to_thread(serf, f"serf-{i}", key=format_key(old)) for i in range(2)]
    async with Ours("ours-1", keyring=ring(old)) as ours:
        await asyncio.to_thread(agents[1].run, "join", f"127.0.0.1:{agents[0].address[1]}")
        await ours.node.join([agents[0].address])
        await wait_until_async(lambda: len(ours.node.members) == 3 and len(agents[0].members()) == 3)
        keyring = ours.node.keyring
        # Serf's client succeeds only when every node of the pool has answered, and ours is one of them.
        for step, key, expected in (("install", new, (old, new)), ("use", new, (new, old)), ("remove", old, (new,))):
            await asyncio.to_thread(agents[0].run, "keys", f"-{step}={format_key(key)}")
            assert keyring.keys == expected
        listed = await asyncio.to_thread(agents[0].run, "keys", "-list")
        assert f"{format_key(new)}  [3/3]" in listed
        assert format_key(old) not in listed
        await probing_goes_well(ours)
        assert all(agent.status("ours-1") == "alive" for agent in agents)
        # The old key is really gone: who has only that is not let in.
        async with Ours("late", keyring=ring(old)) as late:
            with pytest.raises(JoinError, match="no seed let us in"):
                await late.node.join([agents[0].address])


async def test_serfs_own_events_travel_through_our_nodes(serf: StartSerf) -> None:
    agents = [await asyncio.to_thread(serf, f"serf-{i}") for i in range(2)]
    async with Ours("between") as between:
        await asyncio.to_thread(agents[1].run, "join", f"127.0.0.1:{agents[0].address[1]}")
        await between.node.join([agents[0].address])
        await wait_until_async(lambda: all(len(agent.members()) == 3 for agent in agents))
        await asyncio.to_thread(agents[0].run, "event", "deploy", "v7")
        await wait_until_async(lambda: "deploy" in agents[1].log.read_text(), why="the event at the other agent")
        assert between.node.counters.malformed == 0
