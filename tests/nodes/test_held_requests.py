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


async def test_a_look_asks_only_about_what_has_ended_since_the_last_however_many_jobs_are_waited_for() -> None:
    """Every look asked about every job that somebody waited for: five hundred requests for a thousand jobs each kept a leader from its work."""
    held, ended, asked = Held(ManualClock()), dict.fromkeys(["old"]), list[str]()

    def has_ended(key: str) -> bool:
        asked.append(key)
        return key in ended

    held.ring_ended(ended, has_ended)
    waits = [asyncio.create_task(held.hold_any([f"{one}-{n}" for n in range(100)], 3_600)) for one in "abc"]
    await asyncio.sleep(0)
    held.ring_ended(ended, has_ended)
    ended |= dict.fromkeys(["x", "b-7", "y"])
    held.ring_ended(ended, has_ended)
    await asyncio.wait_for(waits[1], 10)
    assert (asked, len(held.keys)) == ([], 200)
    del ended["old"], ended["x"], ended["b-7"], ended["y"]  # archived
    ended["a-1"] = None
    held.ring_ended(ended, has_ended)
    await asyncio.wait_for(waits[0], 10)
    assert asked == []
    ended = dict.fromkeys(["c-9"])  # another book: it may have ended before this node looked at it
    held.ring_ended(ended, has_ended)
    await asyncio.wait_for(waits[2], 10)
    assert len(asked) == 100


async def test_the_keys_of_all_requests_are_bounded_and_one_that_waits_for_one_job_is_let_in() -> None:
    held = Held(ManualClock(), most_keys=10)
    first = asyncio.create_task(held.hold_any([f"a-{n}" for n in range(8)], 3_600))
    await asyncio.sleep(0)
    with pytest.raises(NodeUnavailableError, match="8 jobs are waited for here already"):
        await held.hold_any(["b", "c", "d"], 3_600)
    single = asyncio.create_task(held.hold("b", 3_600))
    await asyncio.sleep(0)
    held.ring_all()
    await asyncio.wait_for(asyncio.gather(first, single), 10)
