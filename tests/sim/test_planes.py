"""The real `GossipNode` on the simulator: its clock, loop and network are virtual, everything else is what runs outside."""

from __future__ import annotations

import asyncio

import pytest
from tests.soak import sized
from tests.worlds.planes import AddressBook, SimGossipTransport

from tenure.gossip import (
    Complaint,
    Event,
    GossipNode,
    GossipSettings,
    HealthPiggyback,
    MemberChange,
    MemberEvent,
    MemberState,
    PoolWarning,
)
from tenure.sim import Host, Scenario, World
from tenure.sim.faults import FaultKind, FaultProfile
from tenure.sim.scenario import run_one

SETTINGS = GossipSettings.lan(rejoin_interval_s=15.0)
EVERYTHING = (
    FaultKind.CRASH,
    FaultKind.REBOOT,
    FaultKind.STALL,
    FaultKind.PARTITION,
    FaultKind.ONE_WAY,
    FaultKind.LOSS,
    FaultKind.DELAY,
    FaultKind.DUPLICATE,
    FaultKind.REORDER,
    FaultKind.BREAK,
    FaultKind.SKEW,
    FaultKind.DRIFT,
)


class SimPool:
    """Nodes in a world, and what each of their lives saw."""

    def __init__(self, world: World, count: int) -> None:
        self.world, self.book = world, AddressBook()
        self.names = [f"n{number}" for number in range(count)]
        self.nodes: dict[str, GossipNode] = {}
        self.seen: list[tuple[float, str, Event]] = []
        for name in self.names:
            self.book.address(name)
        for name in self.names:
            world.node(name, self.program).start()

    async def program(self, host: Host) -> None:
        node = self.nodes[host.name] = GossipNode(
            host.name,
            settings=SETTINGS,
            clock=host.clock,
            random=host.random,
            ids=host.ids,
            transport=SimGossipTransport(host.transport, self.book),
        )
        node.on_event(lambda event: self.seen.append((self.world.now, host.name, event)))
        async with node:
            node.set_health(HealthPiggyback(host.name, "worker", True, 4, 0, 0, "healthy"))
            seeds = [self.book.address(name) for name in self.names[:2] if name != host.name]
            try:
                await node.join(seeds)
            except Exception as error:  # the seeds may be down just now: they are dialled again
                host.record(f"join failed: {type(error).__name__}")
            await asyncio.Event().wait()

    def agree(self) -> bool:
        everybody = set(self.names)
        return all(
            {member.name for member in self.nodes[name].members if member.state is MemberState.ALIVE} == everybody
            for name in self.names
        )

    def failed(self) -> set[str]:
        return {e.node for _, _, e in self.seen if isinstance(e, MemberEvent) and e.change is MemberChange.FAILED}


def test_a_pool_forms_and_a_crash_is_known_to_all_and_a_restart_is_a_new_start() -> None:
    with World(3) as world:
        pool = SimPool(world, 8)
        world.run_for(5)
        assert pool.agree()
        first_life = pool.nodes["n5"].start_id
        world.nodes["n5"].crash()
        world.run_for(20)
        assert all(pool.nodes[name].member("n5").state is MemberState.DEAD for name in pool.names if name != "n5")
        world.nodes["n5"].start()
        world.run_for(10)
        assert pool.agree()
        assert pool.nodes["n5"].start_id != first_life
        restarts = [e for _, _, e in pool.seen if isinstance(e, MemberEvent) and e.change is MemberChange.RESTARTED]
        assert {event.node for event in restarts} == {"n5"}
        assert pool.failed() == {"n5"}


def test_a_stalled_process_says_that_it_lagged_and_accuses_nobody() -> None:
    with World(4) as world:
        pool = SimPool(world, 6)
        world.run_for(5)
        world.nodes["n2"].stall()
        world.at(world.now + 3.5, world.nodes["n2"].resume)
        world.run_for(30)
        lagged = [
            e for _, by, e in pool.seen if by == "n2" and isinstance(e, PoolWarning) and e.complaint is Complaint.LAGGED
        ]
        assert lagged
        assert pool.failed() == set()
        assert pool.agree()


def test_clock_skew_between_machines_is_estimated() -> None:
    """The world sets each wall clock up to two seconds wrong."""
    with World(5) as world:
        pool = SimPool(world, 4)
        world.nodes["n3"].clock.step_wall(40.0)
        world.run_for(20)
        clocks = {name: world.nodes[name].clock.wall() for name in pool.names}
        for name in pool.names[1:]:
            skew = pool.nodes["n0"].skew(name)
            assert skew is not None
            assert skew.offset_s == pytest.approx(clocks[name] - clocks["n0"], abs=skew.error_s + 0.001)
        assert pool.nodes["n3"].own_skew == pytest.approx(40.0, abs=3.0)


def test_health_reaches_every_node_and_a_change_of_capacity_rides_on_probes() -> None:
    with World(6) as world:
        pool = SimPool(world, 5)
        world.run_for(8)
        for name in pool.names:
            assert all(pool.nodes[other].health(name).capacity == 4 for other in pool.names)
        pool.nodes["n1"].set_health(HealthPiggyback("n1", "worker", True, 3, 1, 1, "healthy"))
        world.run_for(12)
        assert all(pool.nodes[other].health("n1").capacity == 3 for other in pool.names)


def test_one_seed_gives_one_run() -> None:
    def digest() -> str:
        with World(7) as world:
            SimPool(world, 5)
            world.run_for(20)
            return world.trace.digest()

    assert digest() == digest()


def test_gossip_shares_the_network_of_a_process_that_serves_other_requests() -> None:
    book, answers = AddressBook(), []

    async def serving(host: Host) -> None:
        gossip = SimGossipTransport(host.transport, book, shared=True)

        async def handle(sender: str, message: object) -> object:
            return await gossip.answer(sender, message) if isinstance(message, bytes) else {"echo": message}

        host.transport.serve(handle)
        node = GossipNode(
            host.name, settings=SETTINGS, clock=host.clock, random=host.random, ids=host.ids, transport=gossip
        )
        async with node:
            if host.name == "b":
                await node.join([book.address("a")])
                assert node.member("a") is not None
            await asyncio.sleep(5)
        if host.name == "b":  # gossip is closed, the process goes on
            answers.append(await host.transport.request("a", {"hello": 1}, timeout=2))
        else:
            await asyncio.sleep(100)

    with World(8) as world:
        for name in ("a", "b"):
            book.address(name)
            world.node(name, serving).start()
        world.run_for(10)
    assert answers == [{"echo": {"hello": 1}}]


class Weather(Scenario):
    """A pool in every kind of weather; when it is over, all find each other again."""

    duration_s = 150.0
    faults = FaultProfile(kinds=EVERYTHING, most=10, until_s=60.0, duration_s=(0.5, 40.0))

    def setup(self, world: World) -> None:
        self.pool = SimPool(world, 6)

    def finish(self, world: World) -> None:
        for _ in range(60):
            if self.pool.agree():
                return
            world.run_for(2)
        views = {name: self.pool.nodes[name].members for name in self.pool.names}
        self.require(False, f"after calm weather all know each other: {views}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(sized("kinds of weather for gossip nodes", short=6, long=40)))
def test_after_any_weather_all_who_live_find_each_other(seed: int) -> None:
    outcome = run_one(Weather, seed)
    assert outcome.ok, f"seed {seed}: {outcome.failure}\n{outcome.details}"
