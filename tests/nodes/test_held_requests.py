"""Requests that are held: until they are rung for, for their time at most, and not more than so many."""

from __future__ import annotations

import asyncio

import pytest

from tenure.clock import ManualClock
from tenure.errors import NodeUnavailableError
from tenure.nodes.held_requests import Held

pytestmark = pytest.mark.asyncio


async def test_a_request_is_held_until_it_is_rung_for() -> None:
    held = Held(ManualClock())
    waiting = asyncio.create_task(held.hold("job", 3_600))
    await asyncio.sleep(0)
    assert held.keys == ["job"]
    held.ring("other")
    held.ring("job")
    await asyncio.wait_for(waiting, 10)
    assert held.keys == []


async def test_a_request_beyond_the_bound_is_told_so_and_one_that_goes_makes_room() -> None:
    held = Held(ManualClock(), most=2)
    first, second = (asyncio.create_task(held.hold(key, 3_600)) for key in ("a", "b"))
    await asyncio.sleep(0)
    with pytest.raises(NodeUnavailableError, match="2 requests are held here already") as refused:
        await held.hold("c", 3_600)
    assert refused.value.retry_after_s == 1.0
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    third = asyncio.create_task(held.hold("c", 3_600))
    await asyncio.sleep(0)
    held.ring_all()
    await asyncio.wait_for(asyncio.gather(second, third), 10)
