"""Struck worlds in which one of the defences is missing: every one of them has to be found.

Not a test module: the replay commands of failing seeds name this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from tests.worlds.patching import Patched
from tests.worlds.struck.datacenter import Struck

from tenure.nodes.ledger import NodeLedger
from tenure.nodes.loop_keeper import Loop, LoopKeeper
from tenure.nodes.term_leader import JobStrikes


async def _run_once(self: LoopKeeper, name: str, loop: Loop, *, stop: asyncio.Event | None = None) -> None:
    await loop()


class WithoutKeeper(Patched, Struck):
    """A loop that raises ends, and everything that is kept with it."""

    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(LoopKeeper, "keep"): _run_once}


async def _simply(self: Any, job_id: str, act: Callable[[], Awaitable[object]], doing: str) -> bool:
    await act()
    return True


async def _raise(self: Any, job_id: str, doing: str, error: Exception) -> None:
    raise error


class WithoutStrikes(Patched, Struck):
    """What is raised on one job is raised for all."""

    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {
        (JobStrikes, "attempt"): _simply,
        (JobStrikes, "strike"): _raise,
    }


async def _keep_as_it_is(self: Any) -> None:
    """The book stays as what was raised left it."""


class WithoutRebuild(Patched, Struck):
    """A book that is half changed is led with."""

    instead: ClassVar[Mapping[tuple[Any, str], Any]] = {(NodeLedger, "_rebuild"): _keep_as_it_is}


MUTANTS = {"WithoutKeeper": 40, "WithoutStrikes": 60, "WithoutRebuild": 60}
"""And the most seeds that finding it may take."""

KNOWN = {"WithoutKeeper": (16, 20), "WithoutStrikes": (2, 5), "WithoutRebuild": (4, 23)}
"""Seeds at which it was found. They are tried first."""
