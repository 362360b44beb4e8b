"""The parts that every node process shares: it checks its name, opens its engine, speaks from its own address, and stops on request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tenure.bound_checks import check
from tenure.bounds import NodeName
from tenure.clock import Clock
from tenure.control.admission import is_loopback
from tenure.engines.aio import Calls, calling
from tenure.engines.contracts import Engine
from tenure.engines.urls import PatientOpening
from tenure.errors import EngineUnavailableError, LimitError
from tenure.logs import NodeLog
from tenure.randomness import IdSource, Random, fresh_random


@dataclass(frozen=True, slots=True)
class Environment:
    """The engine, the clock, the sources of chance and the log that one node is built on. A process, a test and the simulator each bring theirs."""

    engine: Engine
    calls: Calls
    """Calls the engine from the node's event loop."""
    clock: Clock
    random: Random
    ids: IdSource
    log: NodeLog = field(default_factory=lambda: NodeLog("node"))


def check_candidate(name: str, term_s: float) -> None:
    """Checks the name and the term with which a node stands for election. Raises `LimitError`."""
    if not 0.5 <= term_s <= 3_600:
        raise LimitError("term_s", term_s, "between 0.5 and 3,600 seconds")
    check(name, NodeName, field="name")


@contextlib.asynccontextmanager
async def open_engine(
    url: str, clock: Clock, log: NodeLog | None = None, stop: asyncio.Event | None = None
) -> AsyncIterator[tuple[Engine, Calls]]:
    """Opens the engine and yields it with the `Calls` through which this event loop calls it; closes both at the end.

    With `stop`, an engine that is away is waited for until `stop` is set.
    """
    if stop is None:
        engine = await asyncio.to_thread(Engine.open, url, clock=clock)
    else:
        opening = PatientOpening(url, clock, fresh_random(), (log or NodeLog("node")).warning)
        opened = await await_engine(opening, clock, stop)
        if opened is None:
            raise opening.error or EngineUnavailableError("it was told to stop before its engine was opened")
        engine = opened
    async with calling(engine) as calls:
        yield engine, calls


async def await_engine(opening: PatientOpening, clock: Clock, stop: asyncio.Event) -> Engine | None:
    """Returns the engine once it can be opened; None when `stop` is set before."""
    while not stop.is_set():
        engine = await asyncio.to_thread(opening.attempt)
        if engine is not None:
            return engine
        await clock.async_wait(stop, opening.pause_s)
    return None


def own_loopback(host: str) -> str:
    """Returns the loopback address that a node listens on, to speak from it: so peers can tell several nodes on one machine apart."""
    return host if is_loopback(host) and host.startswith("127.") else ""


async def until_stopped(stop: asyncio.Event, life: Coroutine[Any, Any, None]) -> None:
    """Runs `life` until `stop` is set. Raises what `life` raises."""
    stopping, living = asyncio.create_task(stop.wait()), asyncio.create_task(life)
    try:
        await asyncio.wait([stopping, living], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        living.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await living
