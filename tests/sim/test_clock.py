from __future__ import annotations

import asyncio
import threading

import pytest

from tenure.errors import ConfigurationError, SimulationForbiddenError
from tenure.sim import Host, World


def test_each_machine_has_clocks_of_its_own_and_the_seed_decides_them() -> None:
    with World(1) as one, World(1) as same, World(2) as other:
        readings = [(w.node("a").clock.monotonic(), w.node("b").clock.monotonic()) for w in (one, same, other)]
    assert readings[0] == readings[1] != readings[2]
    assert readings[0][0] != readings[0][1]


def test_a_fast_clock_reaches_its_timers_early_and_never_reads_less_than_they_were_set_for() -> None:
    woke: dict[str, float] = {}

    async def sleeper(host: Host) -> None:
        begun = host.clock.monotonic()
        await host.clock.async_sleep(100)
        assert host.clock.monotonic() - begun >= 100
        woke[host.name] = world.now

    with World() as world:
        world.node("fast", sleeper).start()
        world.node("slow", sleeper).start()
        world.node("true", sleeper).start()
        world.nodes["fast"].drift(1.25)
        world.nodes["slow"].drift(0.8)
        world.run_for(200)
    assert woke == pytest.approx({"fast": 80, "true": 100, "slow": 125}, abs=1e-5)


def test_timers_that_run_already_follow_a_clock_that_changes_its_rate() -> None:
    woke: list[float] = []

    async def sleeper(host: Host) -> None:
        async with asyncio.timeout(1_000):
            await asyncio.sleep(100)
        woke.append(world.now)

    with World() as world:
        node = world.node("a", sleeper)
        node.start()
        world.at(50, node.drift, 2.0)
        world.run_for(200)
    assert woke == pytest.approx([75], abs=1e-5)


def test_drifts_add_up_and_end_in_any_order() -> None:
    with World() as world:
        node = world.node("a")
        node.drift(1.02)
        node.drift(0.97)
        assert node.clock.rate == 0.99
        node.end_drift(1.02)
        assert node.clock.rate == 0.97
        node.end_drift(0.97)
        assert node.clock.rate == 1.0


def test_a_step_moves_only_the_wall_clock() -> None:
    with World() as world:
        clock = world.node("a").clock
        before = clock.monotonic(), clock.boottime(), clock.wall()
        clock.step_wall(-3_600)
        assert (clock.monotonic(), clock.boottime(), clock.wall()) == (*before[:2], before[2] - 3_600)


def test_a_suspended_machine_loses_monotonic_time_only() -> None:
    async def idle(host: Host) -> None:
        await asyncio.sleep(1_000)

    with World() as world:
        node = world.node("a", idle)
        node.start()
        clock = node.clock
        before = clock.monotonic(), clock.boottime(), clock.wall()
        node.stall(asleep=True)
        world.run_for(60)
        node.resume()
        world.run_for(10)
        after = clock.monotonic(), clock.boottime(), clock.wall()
    assert [b - a for a, b in zip(before, after, strict=True)] == [10, 70, 70]


def test_a_reboot_starts_boot_time_anew_under_a_new_id() -> None:
    async def idle(host: Host) -> None:
        await asyncio.sleep(1_000)

    with World() as world:
        node = world.node("a", idle)
        node.start()
        wall, boot = node.clock.wall(), node.clock.boot_id()
        node.restart(reboot=True)
        assert node.clock.boottime() == node.clock.monotonic() == 0
        assert node.clock.boot_id() != boot
        assert node.clock.wall() == wall


def test_blocking_waits_are_refused_with_what_to_use_instead() -> None:
    with World() as world:
        clock = world.node("a").clock
        with pytest.raises(SimulationForbiddenError, match="async_sleep"):
            clock.sleep(1)
        condition = threading.Condition()
        with condition:
            assert clock.wait(condition, 0) is False
            with pytest.raises(SimulationForbiddenError, match=r"calls\.run"):
                clock.wait(condition, 1)


def test_an_absurd_rate_is_refused() -> None:
    with World() as world, pytest.raises(ConfigurationError, match=r"between 0\.1 and 10"):
        world.node("a").clock.set_rate(0)
