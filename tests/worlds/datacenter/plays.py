"""What scripted workflows do. Each play is one way in which real work behaves, or misbehaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from tenure.errors import TenureError
from tenure.work.delivery import Cause
from tests.worlds.datacenter.stage import Stage

STEP_S = 0.35


class Play(StrEnum):
    ADVANCE = "advance"  # some steps, then a result
    LONG = "long"  # many steps: longer than leases, terms and healthcheck deadlines
    SLOW = "slow"  # each step takes almost as long as a silence may
    SILENCE = "silence"  # a quiet spell that was declared, longer than the stall threshold
    HANG = "hang"  # one step, and nothing more; does not end when it is asked to
    SPIN = "spin"  # alive, and declares one silence after the other, without a step
    FAIL = "fail"  # raises
    CRASH = "crash"  # its process dies
    MEMORY = "memory"  # its process is killed for its memory
    FALSE_PROGRESS = "false progress"  # says a fraction that cannot be, and a counter that falls
    FALSE_ATTEMPTS = "false attempts"  # its worker reports attempts that it does not hold
    STALE = "stale"  # brings a result for the attempt before its own, which nobody asked for any more
    HELPED = "helped"  # hangs while a helper thread beats
    REPEAT = "repeat"  # beats at one item for ever
    LATE = "late"  # goes on after it lost its lease, and brings its result all the same, more than once


class ScriptedFailure(TenureError):
    """A workflow raised, as its script says."""


async def advance(stage: Stage) -> None:
    await _steps(stage, stage.item.args.get("steps", 3), STEP_S)


async def long(stage: Stage) -> None:
    await _steps(stage, 12, STEP_S)


async def slow(stage: Stage) -> None:
    await _steps(stage, 4, 0.8 * stage.occupant.stall_s)


async def silence(stage: Stage) -> None:
    stage.beat()
    stage.declare_silence(2.5)
    await stage.work(2.0)
    await _steps(stage, 2, STEP_S)


async def hang(stage: Stage) -> None:
    stage.beat()
    stage.cooperates = stage.item.args.get("cooperates", False)
    await stage.work(1_000)


async def spin(stage: Stage) -> None:
    while True:
        stage.declare_silence(1.0)
        await stage.work(0.9)


async def helped(stage: Stage) -> None:
    stage.beat()
    while True:
        stage.attempt.record.count_other()
        await stage.work(0.1)


async def repeat(stage: Stage) -> None:
    assert stage.context is not None
    while True:
        stage.context.beat(progress=0.1, completed_items=7)
        await stage.work(0.1)


async def fail(stage: Stage) -> None:
    await _steps(stage, 1, STEP_S)
    raise ScriptedFailure("scripted")


async def crash(stage: Stage) -> None:
    await _steps(stage, 1, STEP_S)
    stage.die(Cause.KILLED)


async def memory(stage: Stage) -> None:
    await _steps(stage, 1, STEP_S)
    stage.die(Cause.MEMORY)


async def false_progress(stage: Stage) -> None:
    for _ in range(4):
        stage.beat(7.0)
        await stage.work(STEP_S)
        stage.take_back(2)


async def late(stage: Stage) -> None:
    stage.cooperates = False
    await _steps(stage, 2, STEP_S)
    await stage.work(2 * stage.watch.grace_s + 3.0)  # long enough to lose its lease, shorter than a kill takes then


async def _steps(stage: Stage, count: int, seconds: float) -> None:
    stage.beat()
    for number in range(count):
        await stage.work(seconds)
        stage.beat((number + 1) / count)


PLAYS: dict[Play, Callable[[Stage], Awaitable[None]]] = {
    Play.ADVANCE: advance,
    Play.LONG: long,
    Play.SLOW: slow,
    Play.SILENCE: silence,
    Play.HANG: hang,
    Play.SPIN: spin,
    Play.HELPED: helped,
    Play.REPEAT: repeat,
    Play.FAIL: fail,
    Play.CRASH: crash,
    Play.MEMORY: memory,
    Play.FALSE_PROGRESS: false_progress,
    Play.FALSE_ATTEMPTS: advance,
    Play.STALE: advance,
    Play.LATE: late,
}


def play_of(stage: Stage) -> Play:
    """The script names a play for each delivery; the last one is for all that follow."""
    plays, number = stage.item.args["plays"], stage.item.attempt + stage.ticket.delivery_count - 2
    return Play(plays[min(number, len(plays) - 1)])
