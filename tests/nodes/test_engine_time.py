from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.clock import ManualClock
from tenure.engines import MemoryEngine
from tenure.engines.aio import calls_for
from tenure.engines.contracts import Fence
from tenure.errors import EngineUnavailableError
from tenure.nodes.engine_time import SHIFTS, SLEW, STEP_S, EngineTime


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


class SetEngine(MemoryEngine):
    """Tells the time of a clock that somebody may set, as a server does."""

    has_own_clock = True

    def set_clock(self, seconds: float) -> None:
        self.epoch += seconds


class Node:
    """One node's time. It looks at the engine as often as a node with a term of 10 s."""

    def __init__(self, engine: SetEngine, clock: ManualClock) -> None:
        self.clock = clock
        self.time = EngineTime(engine, calls_for(engine), clock)

    def look(self, epoch: int = 0, **options: Any) -> float:
        asyncio.run(self.time.refresh(epoch, **options))
        return self.time.now()

    def lead(self, seconds: float, epoch: int = 1) -> None:
        for _ in range(int(seconds / 2.5)):
            self.clock.advance(2.5)
            self.look(epoch)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock: ManualClock) -> SetEngine:
    return SetEngine(clock=clock)


@pytest.mark.parametrize("step", [600.0, -600.0, 86_400.0])
def test_a_clock_that_was_set_moves_it_by_one_part_in_a_hundred_and_not_at_once(
    engine: SetEngine, clock: ManualClock, step: float
) -> None:
    node = Node(engine, clock)
    begun = node.look(1)
    engine.set_clock(step)
    node.lead(500.0)
    assert abs(node.time.now() - begun - 500.0) <= 500.0 * SLEW + 0.1
    assert node.time.was_set
    assert node.time.ahead_s == pytest.approx(step, abs=500.0 * SLEW + 0.1)


def test_it_has_caught_up_in_the_end(engine: SetEngine, clock: ManualClock) -> None:
    for step in (30.0, -30.0):
        node = Node(engine, clock)
        node.look(1)
        engine.set_clock(step)
        node.lead(10.0)
        assert node.time.was_set
        node.lead(30.0 / SLEW * 1.1)
        assert not node.time.was_set
        assert node.time.now() == pytest.approx(engine.now(), abs=0.1)


def test_a_little_is_followed_at_once_and_said_to_nobody(engine: SetEngine, clock: ManualClock) -> None:
    node = Node(engine, clock)
    node.look(1)
    engine.set_clock(0.04)
    clock.advance(2.5)
    assert node.look(1) == pytest.approx(engine.now())
    engine.set_clock(0.9 * STEP_S)
    node.lead(10.0)
    assert not node.time.was_set
    assert engine.store(SHIFTS).list() == []


@pytest.mark.parametrize("step", [600.0, -600.0])
def test_a_node_that_starts_later_or_reads_it_later_tells_the_same_time(
    engine: SetEngine, clock: ManualClock, step: float
) -> None:
    leader, standby = Node(engine, clock), Node(engine, clock)
    leader.look(1), standby.look()
    engine.set_clock(step)
    assert Node(engine, clock).look() == pytest.approx(leader.time.now() + step), "nobody has said it yet"
    leader.lead(60.0)
    assert standby.look() == pytest.approx(leader.time.now(), abs=1.0)
    late = Node(engine, clock)
    assert late.look() == pytest.approx(leader.time.now(), abs=1.0)
    assert late.time.was_set
    leader.lead(1_000.0)
    assert Node(engine, clock).look() == pytest.approx(leader.time.now(), abs=2.0)


def test_a_standby_that_saw_it_leads_on_though_the_leader_died_before_it_could_say_so(
    engine: SetEngine, clock: ManualClock
) -> None:
    leader, standby = Node(engine, clock), Node(engine, clock)
    leader.look(1), standby.look()
    engine.set_clock(600.0)
    clock.advance(2.5)
    before = standby.look()
    standby.look(2)
    assert standby.time.now() == pytest.approx(before, abs=0.1)
    assert Node(engine, clock).look() == pytest.approx(before, abs=0.1)


def test_a_node_whose_own_clock_stood_still_believes_the_leader(engine: SetEngine, clock: ManualClock) -> None:
    """As that of a virtual machine that is moved: to this node it looks as if the engine's clock had been set."""
    own = ManualClock()
    leader, paused = Node(engine, clock), Node(engine, own)
    leader.look(1), paused.look()
    leader.lead(100.0)
    paused.look(doubts_for_s=20.0)
    assert paused.time.was_set
    for _ in range(10):
        own.advance(2.5)
        leader.lead(2.5)
        paused.look(doubts_for_s=20.0)
    assert not paused.time.was_set
    assert paused.time.now() == pytest.approx(leader.time.now(), abs=0.1)


def test_a_leader_that_was_replaced_overwrites_nothing(engine: SetEngine, clock: ManualClock) -> None:
    node = Node(engine, clock)
    node.look(1)
    engine.store(SHIFTS).put("jobs", b'{"seconds":0.0,"shown":0.0}', fence=Fence(7, 0))
    engine.set_clock(600.0)
    node.lead(10.0)
    assert engine.store(SHIFTS).get("jobs") == b'{"seconds":0.0,"shown":0.0}'


@pytest.mark.parametrize("step", [600.0, -600.0])
def test_a_moment_that_the_engine_stamped_is_told_in_this_time(
    engine: SetEngine, clock: ManualClock, step: float
) -> None:
    node = Node(engine, clock)
    node.look(1)
    before = engine.now()
    assert node.time.of_engine(before) == before
    engine.set_clock(step)
    node.lead(10.0)
    assert node.time.of_engine(engine.now()) == pytest.approx(node.time.now(), abs=0.2)
    assert node.time.of_engine(before) <= node.time.now(), "what came before is not later than now"


@pytest.mark.parametrize("stored", [b"\xff", b"[" * 2_000, b'{"seconds":1e300,"shown":0}', b'{"seconds":"much"}', b"7"])
def test_a_damaged_record_keeps_no_node_from_starting(stored: bytes) -> None:
    clock = ManualClock()
    engine = SetEngine(clock=clock)
    engine.store(SHIFTS).put("jobs", stored, fence=Fence(1, 0))
    node = Node(engine, clock)
    asyncio.run(node.time.refresh())
    assert node.time.now() == engine.now()
    assert not node.time.was_set
