"""A node that lets everybody in reads no list of tokens, and begins to when it is given some."""

from __future__ import annotations

import asyncio

from tenure.clock import ManualClock
from tenure.control.tokens import TokenBook
from tenure.engines import MemoryEngine
from tenure.engines.aio import ThreadCalls
from tenure.logs import NodeLog
from tenure.nodes.token_keeper import TokenKeeper


class CountedNaps(ManualClock):
    """Its pauses end at once, and are counted."""

    naps = 0

    async def async_sleep(self, seconds: float) -> None:
        self.naps += 1
        await asyncio.sleep(0)


def test_a_node_without_tokens_wakes_for_none_until_it_is_given_some() -> None:
    clock = CountedNaps()

    async def play() -> None:
        engine = MemoryEngine(clock=clock)
        keeper = TokenKeeper(
            engine, ThreadCalls(engine), clock, NodeLog("manager", "m"), TokenBook(), lambda book: None
        )
        running = asyncio.create_task(keeper.run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert clock.naps == 0
        keeper.rebase(TokenBook(shared="secret"))
        while clock.naps < 3:
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(asyncio.wait_for(play(), 60))
