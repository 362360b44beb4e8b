from __future__ import annotations

import asyncio

import pytest

from tenure.errors import EngineUnavailableError, SimulationError
from tenure.sim import Host, World


async def tick(host: Host) -> None:
    while True:
        host.disk.setdefault("ticks", []).append((host.incarnation, host.clock.monotonic()))
        await asyncio.sleep(1)


def test_a_crash_is_sudden_and_a_restart_is_a_new_life_with_the_same_disk() -> None:
    with World() as world:
        node = world.node("a", tick)
        first = node.start()
        world.run_for(3.5)
        node.crash()
        assert not node.running
        world.run_for(10)
        second = node.restart()
        world.run_for(1.5)
        lives = [life for life, _ in node.disk["ticks"]]
    assert lives == [1, 1, 1, 1, 2, 2]
    assert (first.id, second.id) == ("a#1", "a#2")


def test_a_crashed_process_cleans_nothing_up_and_its_last_words_are_not_heard() -> None:
    heard: list[str] = []
    tidied: list[str] = []

    async def listener(host: Host) -> None:
        while True:
            heard.append((await host.transport.receive()).data.decode())

    async def tidy(host: Host) -> None:
        election = host.engine.election("e")
        term = election.campaign(host.id, 60)
        assert term is not None
        try:
            await asyncio.sleep(1_000)
        finally:
            tidied.append(f"at {world.now}")
            host.transport.send("b", b"goodbye")
            try:
                election.resign(term)
            except EngineUnavailableError:
                tidied.append("refused")
            await asyncio.sleep(1)
            host.transport.send("b", b"goodbye again")

    with World() as world:
        world.node("b", listener).start()
        node = world.node("a", tidy)
        node.start()
        world.run_for(5)
        node.crash()
        world.run_for(5)
        assert tidied == []
        leader = world.backend.engine.election("e").current()
        assert leader is not None
        assert leader.candidate == "a#1"
    assert tidied == ["at 10.0", "refused"]  # when the world was taken down, without any effect
    assert heard == []


def test_a_clean_stop_lets_a_process_say_goodbye() -> None:
    heard: list[bytes] = []

    async def listener(host: Host) -> None:
        while True:
            heard.append((await host.transport.receive()).data)

    async def polite(host: Host) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await asyncio.sleep(1)
            host.transport.send("b", b"goodbye")

    with World() as world:
        world.node("b", listener).start()
        node = world.node("a", polite)
        node.start()
        world.at(5, node.stop)
        world.run_for(10)
        assert not node.running
    assert heard == [b"goodbye"]


def test_a_stopped_process_does_nothing_and_then_is_late_with_everything() -> None:
    ran: list[tuple[str, float]] = []

    async def timers(host: Host) -> None:
        loop = asyncio.get_running_loop()
        for delay in (2, 3, 4, 8):
            loop.call_later(delay, lambda delay=delay: ran.append((f"due at {delay}", world.now)))
        await asyncio.sleep(100)

    with World() as world:
        node = world.node("a", timers)
        node.start()
        world.at(1, node.stall)
        world.at(6, node.resume)
        world.run_for(10)
    assert ran == [("due at 2", 6.0), ("due at 3", 6.0), ("due at 4", 6.0), ("due at 8", 8.0)]


def test_stalls_nest_and_a_crash_ends_what_was_held() -> None:
    with World() as world:
        node = world.node("a", tick)
        node.start()
        node.stall()
        node.stall()
        world.run_for(5)
        node.resume()
        world.run_for(5)
        assert "ticks" not in node.disk
        node.crash()
        node.start()
        world.run_for(5)
        assert "ticks" not in node.disk
        node.resume()
        world.run_for(1.5)
        assert [life for life, _ in node.disk["ticks"]] == [2, 2]


def test_a_process_that_ends_takes_its_tasks_with_it() -> None:
    async def parent(host: Host) -> None:
        host.disk["child"] = asyncio.create_task(tick(host))
        await asyncio.sleep(2.5)

    with World() as world:
        node = world.node("a", parent)
        node.start()
        world.run_for(10)
        assert not node.running
        assert len(node.disk["ticks"]) == 3


def test_a_process_that_fails_fails_the_run() -> None:
    async def bad(host: Host) -> None:
        await asyncio.sleep(1)
        raise ValueError("a bug")

    with World() as world:
        world.node("a", bad).start()
        with pytest.raises(ValueError, match="a bug"):
            world.run_for(10)


def test_two_processes_cannot_share_what_belongs_to_a_loop() -> None:
    shared: list[asyncio.Event] = []

    async def waiter(host: Host) -> None:
        if not shared:
            shared.append(asyncio.Event())
        await shared[0].wait()

    with World() as world:
        world.node("a", waiter).start()
        world.node("b", waiter).start()
        with pytest.raises(RuntimeError, match="different event loop"):
            world.run_for(1)


def test_misuse_is_told() -> None:
    with World() as world:
        with pytest.raises(SimulationError, match="no program"):
            world.node("a").start()
        world.node("a", tick).start()
        with pytest.raises(SimulationError, match="a#1 runs already"):
            world.nodes["a"].start()
        with pytest.raises(SimulationError, match="engine is an engine, and no node"):
            world.node("engine")
