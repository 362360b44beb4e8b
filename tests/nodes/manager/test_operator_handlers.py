"""Managers find each other through the engine's store, also beside values that no manager wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tenure.clock import ManualClock
from tenure.control.messages.nodes import ManagerNode
from tenure.engines.aio import calls_for
from tenure.engines.memory import MemoryEngine
from tenure.errors import EngineUnavailableError
from tenure.nodes.manager.operator_handlers import NODES, Presence, managers

NODE = ManagerNode(
    name="m-1", address="m-1:8470", leads=True, epoch=1, seq=7, version="0.1", skew_s=0.0, started_at=0.0, heard_s_ago=0.0
)  # fmt: skip


async def until(clock: ManualClock, ready: Callable[[], object]) -> None:
    for _ in range(50):
        for _ in range(20):
            await asyncio.sleep(0)
        if ready():
            return
        clock.advance(0.1)
    raise AssertionError("it did not come")


def test_a_manager_waits_in_silence_for_the_engines_time_and_skips_what_is_no_manager() -> None:
    async def play() -> None:
        clock = ManualClock()
        with MemoryEngine(clock) as engine:
            calls, store, known = calls_for(engine), engine.store(NODES), False

            def node() -> ManagerNode:
                if not known:
                    raise EngineUnavailableError("the engine's time is not known yet")
                return NODE

            store.put("manager/garbage", b'\xff{"node":')
            store.put("manager/other", b"[]")
            running = asyncio.create_task(Presence(engine, calls, clock, node=node, now=lambda: 5.0).run())
            await until(clock, lambda: clock.monotonic() > 1.0)
            assert not running.done()
            known = True
            await until(clock, lambda: "manager/m-1" in store.list())
            assert await managers(store, calls, 6.0) == (msgspec.structs.replace(NODE, heard_s_ago=1.0),)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert store.list() == ["manager/garbage", "manager/other"]

    asyncio.run(play())
