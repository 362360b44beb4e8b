"""The parts that every node process shares: it checks its name, opens its engine, speaks from its own address, and stops on request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tenure.bound_checks import check
from tenure.bounds import NodeName
from tenure.clock import Clock
from tenure.control.admission import is_loopback
from tenure.engines.aio import Calls, calling
from tenure.engines.contracts import Engine
from tenure.errors import LimitError
from tenure.ids import IdSource
from tenure.randomness import Random


@dataclass(frozen=True, slots=True)
class Environment:
    """The engine, the clock, the sources of chance and the log that one node is built on. A process, a test and the simulator each bring theirs."""

    engine: Engine
    calls: Calls
    """Calls the engine from the node's event loop."""
    clock: Clock
    random: Random
    ids: IdSource
    say: Callable[[str], None] = lambda text: None
    """Writes one line to the log of the node."""


def check_candidate(name: str, term_s: float) -> None:
    """Checks the name and the term with which a node stands for election. Raises `LimitError`."""
    if not 0.5 <= term_s <= 3_600:
        raise LimitError("term_s", term_s, "between 0.5 and 3,600 seconds")
    check(name, NodeName, field="name")


@contextlib.asynccontextmanager
async def open_engine(url: str, clock: Clock) -> AsyncIterator[tuple[Engine, Calls]]:
    """Opens the engine and yields it with the `Calls` through which this event loop calls it; closes both at the end."""
    engine = await asyncio.to_thread(Engine.open, url, clock=clock)
    async with calling(engine) as calls:
        yield engine, calls


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
