from __future__ import annotations

import asyncio

import pytest

from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.engines.aio import calls_for
from tenure.errors import EngineUnavailableError
from tenure.nodes.leadership import EngineTime


def test_it_follows_the_engine_and_not_the_wall_clock() -> None:
    clock = ManualClock()
    engine = MemoryEngine(clock=ManualClock(start=5_000, wall=9_000))
    time = EngineTime(engine, calls_for(engine), clock)
    with pytest.raises(EngineUnavailableError):
        time.now()
    asyncio.run(time.refresh())
    first = time.now()
    assert first == engine.now()
    clock.step_wall(3_600)
    clock.advance(10)
    assert time.now() == first + 10
    assert time.skew_s == pytest.approx(clock.wall() - first - 10)


def test_it_never_goes_back() -> None:
    clock, theirs = ManualClock(), ManualClock()
    engine = MemoryEngine(clock=theirs)
    time = EngineTime(engine, calls_for(engine), clock)
    asyncio.run(time.refresh())
    clock.advance(50)  # we ran ahead
    ahead = time.now()
    asyncio.run(time.refresh())
    assert time.now() == ahead
    theirs.advance(60)
    asyncio.run(time.refresh())
    assert time.now() == pytest.approx(ahead + 10)
