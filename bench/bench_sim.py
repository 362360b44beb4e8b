"""The simulator's loop beside asyncio's own, doing the same callbacks, and how fast whole scenarios run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.worlds.leadership.scenario import Leadership

from bench.harness import Report, rate
from tenure.sim import run as run_simulated
from tenure.sim import run_seeds
from tenure.sim.kernel import Kernel
from tenure.sim.loop import SimLoop

CALLBACKS = 90_000  # under what a run may do while time stands still
SWITCHES = 50_000
TIMERS = 20_000
SEEDS = 100


def chain(loop: asyncio.AbstractEventLoop) -> None:
    """Each callback makes the next one ready."""
    left = CALLBACKS

    def step() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(step)
        else:
            loop.stop()

    loop.call_soon(step)
    loop.run_forever()


def simulated() -> None:
    loop = SimLoop(Kernel())
    chain(loop)
    loop.close()


def bare() -> None:
    loop = asyncio.SelectorEventLoop()
    chain(loop)
    loop.close()


async def hand_over() -> None:
    """Two tasks pass a token through two queues."""
    there: asyncio.Queue[int] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()

    async def echo() -> None:
        for _ in range(SWITCHES // 2):
            back.put_nowait(await there.get())

    task = asyncio.create_task(echo())
    for number in range(SWITCHES // 2):
        there.put_nowait(number)
        await back.get()
    await task


async def sleep_nought() -> None:
    """Timers that are due at once: what the two loops can be compared in without waiting for real time."""
    loop = asyncio.get_running_loop()
    for _ in range(TIMERS):
        woken = loop.create_future()
        loop.call_later(0, woken.set_result, None)
        await woken


def both(main: Callable[[], Coroutine[Any, Any, None]], count: int) -> tuple[Callable[[], float], Callable[[], float]]:
    return (lambda: rate(lambda: run_simulated(main()), count=count)), (
        lambda: rate(lambda: asyncio.run(main()), count=count)
    )


def run(report: Report) -> None:
    report.compare(
        "callbacks, each making the next one ready",
        lambda: rate(simulated, count=CALLBACKS),
        lambda: rate(bare, count=CALLBACKS),
        beside="asyncio's own loop",
        at_least=1.0,
    )
    ours, theirs = both(hand_over, SWITCHES)
    report.compare("task switches through queues", ours, theirs, beside="asyncio's own loop", at_least=0.8)
    ours, theirs = both(sleep_nought, TIMERS)
    report.compare("timers that are due at once", ours, theirs, beside="asyncio's own loop", at_least=0.8)
    steps = 0

    def seeds() -> None:
        nonlocal steps
        steps = run_seeds(Leadership, range(SEEDS)).steps

    per_second = rate(seeds, count=SEEDS)
    report.value("leadership seeds on one core", per_second, "seeds per second")
    report.value("leadership callbacks on one core, invariants included", per_second * steps / SEEDS, "per second")
