"""One connection with its log, and the engines of a process that use it together: each log is folded once, however many engines have it open.

A worker that managers control has two engines, its supervisor's and its node's. Engines share only where both were opened to share, with the same settings.
Everything in here runs on the background loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from weakref import WeakKeyDictionary

from tenure.clock import Clock, SystemClock
from tenure.engines.nats import examination
from tenure.engines.nats.address import ApiError, NatsSettings
from tenure.engines.nats.command_log import CommandLog
from tenure.engines.nats.connection import Background, NatsConnection
from tenure.engines.nats.streams import Blobs, Names
from tenure.errors import EngineError
from tenure.randomness import Random


class ProcessLog:
    """A connection, the log and the blobs of one namespace."""

    def __init__(self, settings: NatsSettings, clock: Clock, random: Random) -> None:
        self.settings, self.users = settings, 1
        self.link = NatsConnection(settings, clock, random)
        names = Names(settings.namespace)
        self.blobs = Blobs(self.link, names)
        self.log = CommandLog(self.link, names, self.blobs)
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Returns when it can be used. Whoever comes while it is opened waits for that, and is told what prevents it."""
        self._opening = self._opening or asyncio.get_running_loop().create_task(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        await self.link.open()
        try:
            await examination.must_be_usable(self.link)
            await self.blobs.open()
            await self.log.open()
        except BaseException as error:
            await self.log.close()
            await self.link.close()
            if isinstance(error, ApiError):
                raise self.link.told(error, f"opening {self.settings.shown}") from error
            raise

    async def close(self) -> None:
        with contextlib.suppress(EngineError):
            await self.log.standing.withdraw_all()
        await self.log.close()
        await self.link.close()


class SharedLogs:
    """The logs of this process that engines may share."""

    def __init__(self) -> None:
        self._open: list[ProcessLog] = []

    async def enter(self, settings: NatsSettings, clock: Clock, random: Random, *, shared: bool) -> ProcessLog:
        """Returns a log that can be used. Give it back with `leave`."""
        may_share = shared and isinstance(clock, SystemClock)  # another clock is told by whoever opened it
        found = next((one for one in self._open if may_share and one.settings == settings and one.log.usable), None)
        if found is None:
            found = ProcessLog(settings, clock, random)
            if may_share:
                self._open.append(found)
        else:
            found.users += 1
        try:
            await found.open()
        except BaseException:
            found.users -= 1
            self._forget(found)
            raise
        return found

    async def leave(self, found: ProcessLog) -> None:
        found.users -= 1
        if not found.users:
            self._forget(found)
            await found.close()

    def _forget(self, found: ProcessLog) -> None:
        if found in self._open:
            self._open.remove(found)


_logs: WeakKeyDictionary[Background, SharedLogs] = WeakKeyDictionary()


def logs_of(background: Background) -> SharedLogs:
    """Returns the shared logs of one loop. A child after a fork has another loop, and so no logs of its parent."""
    return _logs.setdefault(background, SharedLogs())
