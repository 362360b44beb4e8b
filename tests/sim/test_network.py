from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tenure.errors import LimitError
from tenure.sim import Disturbance, Host, NetworkCut, NetworkLink, World


async def listen(host: Host) -> None:
    seen = host.disk.setdefault("seen", [])
    while True:
        datagram = await host.transport.receive()
        seen.append((datagram.sender, datagram.data, host.clock.monotonic()))


def speak(count: int, to: str = "b", gap: float = 0.01) -> Any:
    async def program(host: Host) -> None:
        for number in range(count):
            host.transport.send(to, b"%d" % number)
            await asyncio.sleep(gap)
        await asyncio.sleep(1_000)

    return program


def heard(world: World, name: str = "b") -> list[bytes]:
    return [data for _, data, _ in world.nodes[name].disk.get("seen", [])]


def talk(world: World, count: int = 200) -> list[bytes]:
    world.node("b", listen).start()
    world.node("a", speak(count)).start()
    world.run_for(60)
    return heard(world)


def test_datagrams_arrive_within_the_delay_of_their_link() -> None:
    async def one(host: Host) -> None:
        host.transport.send("b", b"x")

    with World(link=NetworkLink(delay_s=(0.25, 0.5))) as world:
        world.node("b", listen).start()
        begun = world.nodes["b"].clock.monotonic()
        world.node("a", one).start()
        world.run_for(1)
        (_, _, at) = world.nodes["b"].disk["seen"][0]
    assert 0.25 <= at - begun <= 0.5


def test_without_faults_every_datagram_arrives_once() -> None:
    with World(7) as world:
        assert Counter(talk(world)) == Counter(b"%d" % number for number in range(200))


def test_loss_takes_about_its_share() -> None:
    with World(7, link=NetworkLink(loss=0.3)) as world:
        assert 200 * 0.6 < len(talk(world)) < 200 * 0.8


def test_duplicates_arrive_twice_and_reordered_ones_out_of_order() -> None:
    with World(7, link=NetworkLink(duplicate=0.5)) as world:
        assert 200 * 1.35 < len(talk(world)) < 200 * 1.65
    with World(7, link=NetworkLink(reorder=0.5)) as world:
        arrived = [int(data) for data in talk(world)]
    assert sorted(arrived) == list(range(200))
    assert arrived != sorted(arrived)


def test_a_one_way_cut_stops_one_direction_only() -> None:
    with World() as world:
        for name, other in (("a", "b"), ("b", "a")):

            async def both(host: Host, other: str = other) -> None:
                listener = asyncio.create_task(listen(host))
                host.transport.send(other, b"hello")
                await listener

            world.node(name, both)
        world.network.cut(NetworkCut(("a",), ("b",)))
        for name in "ab":
            world.nodes[name].start()
        world.run_for(1)
        assert heard(world, "a") == [b"hello"]
        assert heard(world, "b") == []


def test_a_partition_heals() -> None:
    with World() as world:
        cuts = world.network.partition(["a"], ["b"])
        world.at(1.0, lambda: [world.network.mend(cut) for cut in cuts])
        arrived = {int(data) for data in talk(world)}
    assert arrived == set(range(100, 200)) or arrived == set(range(99, 200))


def test_one_link_can_be_worse_than_the_others_and_disturbances_come_and_go() -> None:
    with World() as world:
        network = world.network
        network.set_link("a", "b", NetworkLink(loss=1.0))
        assert network.link("a", "b").loss == 1.0
        assert network.link("b", "a").loss == 0.0
        storm = Disturbance(("b",), NetworkLink((1.0, 1.0), loss=0.5))
        network.disturb(storm)
        assert network.link("b", "c") == NetworkLink((1.0005, 1.005), loss=0.5)
        assert network.link("a", "c").loss == 0.0
        network.calm(storm)
        network.set_link("a", "b", None)
        assert network.link("a", "b") == network.default


def test_a_stopped_process_finds_its_datagrams_when_it_goes_on() -> None:
    with World() as world:
        node = world.node("b", listen)
        node.start()
        world.at(0.5, node.stall)
        world.at(20, node.resume)
        world.node("a", speak(100)).start()
        world.run_for(19)
        assert len(heard(world)) < 60
        world.run_for(2)
        assert len(heard(world)) == 100


async def echo(host: Host) -> None:
    async def answer(sender: str, message: Any) -> Any:
        host.disk.setdefault("asked", []).append((sender, message))
        if message == "slow":
            await asyncio.sleep(10)
        return {"echo": message, "from": sender}

    host.transport.serve(answer)
    await asyncio.sleep(10_000)


def ask(world: World, message: Any, *, timeout: float = 1.0) -> Any:
    """One request from a to b: its reply, or the error's type."""
    answers: list[Any] = []

    async def program(host: Host) -> None:
        try:
            answers.append(await host.transport.request("b", message, timeout=timeout))
        except (TimeoutError, ConnectionError) as error:
            answers.append(type(error))

    world.node("a", program).start()
    world.run_for(60)
    return answers[0]


def test_a_request_is_answered_with_a_copy() -> None:
    message = {"list": [1]}
    with World() as world:
        world.node("b", echo).start()
        reply = ask(world, message)
        assert reply == {"echo": message, "from": "a"}
        assert reply["echo"] is not message
        assert world.nodes["b"].disk["asked"][0][1] is not message


def test_a_request_to_nobody_is_refused_and_through_a_cut_it_times_out() -> None:
    with World() as world:
        assert ask(world, "x") is ConnectionRefusedError
    with World() as world:
        world.node("b", echo).start()
        world.network.partition(["a"], ["b"])
        assert ask(world, "x") is TimeoutError
        assert "asked" not in world.nodes["b"].disk


def test_a_request_may_fail_before_or_after_the_peer_acted() -> None:
    with World(link=NetworkLink(break_before=1.0)) as world:
        world.node("b", echo).start()
        assert ask(world, "x") is ConnectionResetError
        assert "asked" not in world.nodes["b"].disk
    with World(link=NetworkLink(break_after=1.0)) as world:
        world.node("b", echo).start()
        assert ask(world, "x") is ConnectionResetError
        assert world.nodes["b"].disk["asked"] == [("a", "x")]


def test_a_cut_on_the_way_back_loses_the_reply_after_the_peer_acted() -> None:
    with World() as world:
        world.node("b", echo).start()
        world.network.cut(NetworkCut(("b",), ("a",)))
        assert ask(world, "x") is TimeoutError
        assert world.nodes["b"].disk["asked"] == [("a", "x")]


def test_a_peer_that_crashes_while_it_works_resets_the_request() -> None:
    with World() as world:
        world.node("b", echo).start()
        world.at(2, world.nodes["b"].crash)
        assert ask(world, "slow", timeout=30) is ConnectionResetError


def test_a_slow_peer_times_out() -> None:
    with World() as world:
        world.node("b", echo).start()
        assert ask(world, "slow", timeout=3) is TimeoutError


def test_loss_delays_requests_and_does_not_lose_them() -> None:
    with World(3, link=NetworkLink(loss=0.6)) as world:
        world.node("b", echo).start()
        assert ask(world, "x", timeout=50)["echo"] == "x"


def test_a_handler_that_raises_fails_the_run() -> None:
    async def bad(host: Host) -> None:
        async def answer(sender: str, message: Any) -> Any:
            raise KeyError("a bug")

        host.transport.serve(answer)
        await asyncio.sleep(100)

    with World() as world:
        world.node("b", bad).start()
        with pytest.raises(KeyError, match="a bug"):
            ask(world, "x")


def test_datagrams_can_be_handled_by_a_callback_and_are_bounded_in_size() -> None:
    async def called(host: Host) -> None:
        host.transport.on_datagram(lambda sender, data: host.disk.setdefault("seen", []).append((sender, data, 0)))
        with pytest.raises(LimitError, match="65,507"):
            host.transport.send("a", bytes(70_000))
        await asyncio.sleep(100)

    with World() as world:
        world.node("b", called).start()
        world.node("a", speak(5)).start()
        world.run_for(5)
        assert len(heard(world)) == 5


@pytest.mark.parametrize("bad", [{"loss": 1.5}, {"delay_s": (2.0, 1.0)}, {"duplicate": -0.1}])
def test_a_link_that_cannot_be_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(LimitError):
        NetworkLink(**bad)


@pytest.mark.parametrize("cut", [False, True])
def test_whoever_gives_up_hangs_up_and_the_other_end_hears_of_it_unless_it_is_cut_off(cut: bool) -> None:
    """As servers do: the handler is cancelled wherever it is (decision 0182)."""

    async def serve(host: Host) -> None:
        async def handle(sender: str, message: Any) -> str:
            try:
                await asyncio.sleep(5)
                host.disk["ended"] = "answered"
            except asyncio.CancelledError:
                host.disk["ended"] = "hung up on"
                raise
            return "late"

        host.transport.serve(handle)
        await asyncio.Event().wait()

    async def ask(host: Host) -> None:
        with pytest.raises(TimeoutError):
            await host.transport.request("b", "hello", timeout=1.0)
        host.disk["gave up"] = True
        await asyncio.Event().wait()

    with World() as world:
        world.node("b", serve).start()
        world.node("a", ask).start()
        if cut:
            world.at(0.5, lambda: world.network.partition(["a"], ["b"]) and None)
        world.run_for(2)
        assert world.nodes["a"].disk["gave up"]
        assert world.nodes["b"].disk.get("ended") == (None if cut else "hung up on")
        world.run_for(10)
        assert world.nodes["b"].disk["ended"] == ("answered" if cut else "hung up on")
