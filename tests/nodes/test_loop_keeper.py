"""A loop ends when it is stopped or deposed, and by nothing else; one that raises never spins."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tenure.clock import ManualClock
from tenure.errors import DeposedError, EngineUnavailableError
from tenure.jobs.alarms import AlarmKind
from tenure.logs import log_to
from tenure.nodes.loop_keeper import AWAY_MOST_S, MOST_S, NEWS_S, WELL_S, FailedOn, LoopKeeper, ProductFailures


class Bench:
    """A keeper with a clock that a test moves."""

    def __init__(self) -> None:
        self.clock, self.said = ManualClock(), list[str]()
        self.failures = ProductFailures(self.clock, log_to(self.said.append))
        self.keeper = LoopKeeper(self.clock, Random(1), self.failures)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / 0.05)):
            for _ in range(8):
                await asyncio.sleep(0)
            self.clock.advance(0.05)


def run(story: Callable[[Bench], Awaitable[None]]) -> None:
    asyncio.run(_run(story))


async def _run(story: Callable[[Bench], Awaitable[None]]) -> None:
    await story(Bench())


@pytest.mark.parametrize("kind", [KeyError, MemoryError, RecursionError, UnicodeError, DeposedError])
def test_a_loop_that_raises_begins_again_after_a_rest_that_grows(kind: type[Exception]) -> None:
    async def story(bench: Bench) -> None:
        tries: list[float] = []

        async def loop() -> None:
            tries.append(bench.clock.monotonic())
            raise kind("broken")

        keeping = asyncio.create_task(bench.keeper.keep("broken one", loop))
        await bench.pass_time(120)
        rests = [later - sooner for sooner, later in itertools.pairwise(tries)]
        assert not keeping.done()
        assert 5 < len(tries) < 20, "it never spins"
        assert rests[0] < 0.5
        assert rests[-1] > MOST_S / 4
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        assert keeping.cancelled()

    run(story)


def test_good_running_makes_the_rest_short_again() -> None:
    async def story(bench: Bench) -> None:
        tries: list[float] = []

        async def loop() -> None:
            tries.append(bench.clock.monotonic())
            if len(tries) % 4 == 0:
                await bench.clock.async_sleep(WELL_S + 1)
            raise KeyError("broken")

        keeping = asyncio.create_task(bench.keeper.keep("now and then", loop))
        await bench.pass_time(40)
        assert tries[4] - tries[3] < WELL_S + 1.3, "it had run well, so it rests as for the first time"
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    run(story)


def test_what_ends_a_term_ends_all_its_loops() -> None:
    async def story(bench: Bench) -> None:
        ended: list[str] = []

        async def waits() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("waits")

        async def is_deposed() -> None:
            await bench.clock.async_sleep(1)
            raise DeposedError("another leads")

        leading = asyncio.create_task(bench.keeper.of_term().keep_all({"waits": waits, "is deposed": is_deposed}))
        await bench.pass_time(2)
        with pytest.raises(DeposedError):
            await leading
        assert ended == ["waits"]
        assert not bench.failures.alarms()

    run(story)


def test_an_engine_that_is_away_is_asked_again_soon_and_is_no_failure_of_ours() -> None:
    async def story(bench: Bench) -> None:
        tries: list[float] = []

        async def loop() -> None:
            tries.append(bench.clock.monotonic())
            raise EngineUnavailableError("it is away")

        keeping = asyncio.create_task(bench.keeper.keep("asking", loop))
        await bench.pass_time(60)
        rests = [later - sooner for sooner, later in itertools.pairwise(tries)]
        assert max(rests) <= AWAY_MOST_S + 0.1
        assert not bench.failures.alarms()
        assert sum("has to wait" in line for line in bench.said) == 1
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    run(story)


def test_a_step_that_raises_rests_while_the_others_go_on() -> None:
    async def story(bench: Bench) -> None:
        done = {"broken": 0, "whole": 0}

        async def broken() -> None:
            done["broken"] += 1
            raise ValueError("broken")

        async def whole() -> None:
            done["whole"] += 1

        steps = {"broken": broken, "whole": whole}
        for _ in range(200):
            await bench.keeper.turn(steps)
            bench.clock.advance(0.05)
        assert done["whole"] == 200
        assert 3 < done["broken"] < 12
        assert bench.keeper.rest_s(0.0, steps) > 0, "a loop must not spin on what a resting step has to do"
        assert bench.keeper.rest_s(0.0, ["whole"]) == 0

    run(story)


def test_a_loop_that_is_to_begin_again_does_so_at_once_and_is_not_ended_by_it() -> None:
    async def story(bench: Bench) -> None:
        begun: list[float] = []

        async def loop() -> None:
            begun.append(bench.clock.monotonic())
            await asyncio.Event().wait()

        keeping = asyncio.create_task(bench.keeper.keep("reading", loop))
        for _ in range(5):
            await bench.pass_time(1)
            bench.keeper.begin_again("reading")
        await bench.pass_time(1)
        assert len(begun) == 6
        assert not bench.failures.alarms()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    run(story)


def test_a_failure_is_said_once_with_its_traceback_counted_and_an_alarm_until_it_is_old() -> None:
    clock, said, counted = ManualClock(), list[str](), list[str]()
    failures = ProductFailures(clock, log_to(said.append), counted.append)

    def fail(job_id: str) -> None:
        try:
            {}["missing"]
        except KeyError as error:
            failed = failures.note(FailedOn.JOB, job_id, "dispatching it", error)
            assert "test_loop_keeper.py" in failed.trace
            assert "Tenure itself failed while dispatching it: KeyError: 'missing'" in failed.fact

    for number in range(3):
        fail(f"j-{number}")
    assert counted == ["job"] * 3
    assert [("Traceback" in line) for line in said] == [True, False, False]
    (alarm,) = failures.alarms()
    assert alarm.key == (AlarmKind.PRODUCT_FAILED, "job"), "one for each kind of thing: ids would be without bounds"
    assert "3 times" in alarm.reason
    assert "j-2" in alarm.reason
    clock.advance(NEWS_S + 1)
    assert not failures.alarms()
