"""Struck worlds in which one of the defences is missing: every one of them has to be found.

Not a test module: the replay commands of failing seeds name this file.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from tests.worlds.struck.datacenter import Struck

from tenure.nodes.job_strikes import JobStrikes
from tenure.nodes.ledger import Journaled
from tenure.nodes.loop_keeper import Loop, LoopKeeper
from tenure.sim.world import World


class Undefended(Struck):
    """Takes the place of some functions for the time of a run."""

    instead: ClassVar[Mapping[tuple[type, str], Callable[..., Any]]] = {}

    def setup(self, world: World) -> None:
        self._sound = {(owner, name): getattr(owner, name) for owner, name in self.instead}
        for (owner, name), function in self.instead.items():
            setattr(owner, name, function)
        super().setup(world)

    def tally(self, world: World) -> Counter[str]:
        found = super().tally(world)
        for (owner, name), function in self._sound.items():
            setattr(owner, name, function)
        return found


async def _run_once(self: LoopKeeper, name: str, loop: Loop, *, stop: asyncio.Event | None = None) -> None:
    await loop()


class WithoutKeeper(Undefended):
    """A loop that raises ends, and everything that is kept with it."""

    instead: ClassVar[Mapping[tuple[type, str], Callable[..., Any]]] = {(LoopKeeper, "keep"): _run_once}


async def _simply(self: Any, job_id: str, act: Callable[[], Awaitable[object]], doing: str) -> bool:
    await act()
    return True


async def _raise(self: Any, job_id: str, doing: str, error: Exception) -> None:
    raise error


class WithoutStrikes(Undefended):
    """What is raised on one job is raised for all."""

    instead: ClassVar[Mapping[tuple[type, str], Callable[..., Any]]] = {
        (JobStrikes, "attempt"): _simply,
        (JobStrikes, "strike"): _raise,
    }


async def _keep_as_it_is(self: Any) -> None:
    """The book stays as what was raised left it."""


class WithoutRebuild(Undefended):
    """A book that is half changed is led with."""

    instead: ClassVar[Mapping[tuple[type, str], Callable[..., Any]]] = {(Journaled, "_rebuild"): _keep_as_it_is}


MUTANTS = {"WithoutKeeper": 40, "WithoutStrikes": 60, "WithoutRebuild": 60}
"""And the most seeds that finding it may take."""
