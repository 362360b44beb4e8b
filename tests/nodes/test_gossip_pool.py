"""Workers and managers in one gossip pool over real loopback sockets: what the pool says of a worker, and that nothing waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

from click.testing import CliRunner
from tests.nodes.cast import Cast

from tenure.cli.leaders import manager as manager_command
from tenure.clock import SystemClock
from tenure.gossip import format_address
from tenure.health.overload import OverloadState
from tenure.health.piggyback import NodeType
from tenure.nodes.gossip_pool import Pool, PoolSettings, gossip_name, pooled

CLOCK = SystemClock()


def enter(name: str, kind: NodeType, *join: str, said: list[str] | None = None) -> Any:
    settings = PoolSettings("127.0.0.1:0", join, label=f"test-{id(asyncio.get_running_loop())}")
    return pooled(settings, name, kind, clock=CLOCK, say=(said if said is not None else []).append)


async def until(true: Any) -> None:
    for _ in range(1_200):
        if true():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")


def test_a_leader_learns_by_gossip_that_a_worker_lives_how_it_is_and_that_it_left() -> None:
    async def story() -> None:
        async with enter("m-1", NodeType.MANAGER) as leader:
            assert isinstance(leader, Pool)
            assert leader.alive("w-1") is None
            cast = Cast()
            async with enter("w-1", NodeType.WORKER, format_address(leader.node.address)) as worker:
                await until(lambda: leader.alive("w-1"))
                assert leader.alive("m-1") is None  # a manager of that name is no worker
                cast.begin(silent_s=1.0)
                worker.tell_slots(cast.view(), OverloadState.BUSY, cast.incarnation)
                await until(lambda: leader.health("w-1"))
                health = leader.health("w-1")
                assert (health.capacity, health.waiting, health.advancing) == (1, 1, 1)
                assert (health.overload_state, health.node_type) == (OverloadState.BUSY, NodeType.WORKER)
                tags = lambda: leader.node.member(gossip_name(NodeType.WORKER, "w-1")).tags  # noqa: E731
                await until(lambda: tags().get("incarnation") == "w-1#1")
                assert (tags()["role"], tags()["name"]) == ("worker", "w-1")
                cast.come_back()
                worker.tell_slots(cast.view(), OverloadState.HEALTHY, cast.incarnation)
                await until(lambda: tags().get("incarnation") == "w-1#2")
                sequence = worker._said.sequence
                worker.tell_slots(cast.view(), OverloadState.HEALTHY, cast.incarnation)
                assert worker._said.sequence == sequence  # nothing new, nothing said
            await until(lambda: leader.alive("w-1") is False)

    asyncio.run(story())


def test_seeds_that_do_not_answer_are_said_once_and_nothing_waits_for_them() -> None:
    async def story() -> None:
        said: list[str] = []
        async with enter("w-1", NodeType.WORKER, "127.0.0.1:9", said=said) as pool:
            assert pool is not None
            await until(lambda: any("without it" in line for line in said))
        assert sum("without it" in line for line in said) == 1

    asyncio.run(story())


def test_without_an_address_there_is_no_pool_and_seeds_alone_are_a_mistake() -> None:
    async def story() -> None:
        async with pooled(PoolSettings(), "w-1", NodeType.WORKER, clock=CLOCK, say=print) as pool:
            assert pool is None

    asyncio.run(story())
    result = CliRunner().invoke(manager_command, ["--engine", "memory://", "--join", "127.0.0.1:7946"])
    assert result.exit_code == 2
    assert "--join needs --gossip" in result.output
