"""Commands that were appended and have not come back through the stream yet. Runs on the background loop.

Each has its deadline, and whoever asked is told at the deadline whatever the connection does: deadlines are looked at before anything
is sent. A command that does not come back is sent again, which is harmless: the fold drops the second by its id. Nothing is sent
into a connection that takes nothing, so a silent server costs no memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from tenure.backoff import Backoff
from tenure.engines.nats import address as faults
from tenure.engines.nats import commands as c
from tenure.engines.nats.address import ApiError
from tenure.engines.nats.connection import NatsConnection
from tenure.errors import TenureError

log = logging.getLogger("tenure.engines.nats")

_LOOK_EVERY_S = 0.05
_AGAIN_S = 0.25
_AND_AGAIN_S = 1.0


class PendingCommand:
    """A command under way."""

    __slots__ = ("again_at", "end", "future", "name", "pause", "payload")

    def __init__(self, name: str, payload: bytes, future: asyncio.Future[Any], again_at: float, end: float) -> None:
        self.name, self.payload, self.future, self.again_at, self.end = name, payload, future, again_at, end
        self.pause: Backoff | None = None


class PendingCommands:
    """The commands of one engine that are under way, by id. `subject` is where commands are appended."""

    def __init__(self, link: NatsConnection, subject: str, prefix: str) -> None:
        self._link, self._subject, self._prefix = link, subject, prefix
        self._asked: dict[str, PendingCommand] = {}
        self._inbox = ""

    async def open(self) -> None:
        self._inbox = self._link.client.new_inbox()
        await self._link.client.subscribe(f"{self._inbox}.*", cb=self._on_answer, pending_msgs_limit=0)

    async def ask(self, command: c.AnyCommand) -> Any:
        """Append it; what `answer` or `fail` is told of it. After `EngineUnavailableError` the outcome is unknown."""
        now = self._link.clock.monotonic()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        name, end = str(command.__struct_config__.tag), now + self._link.settings.timeout_s
        asked = PendingCommand(name, c.encode(command), future, now + _AGAIN_S, end)
        self._asked[command.id] = asked
        try:
            # Without asking the server for an answer of its own: the command comes back, or is sent again with that question.
            await self._publish(asked, "")
            return await future
        finally:
            del self._asked[command.id]

    def answer(self, name: str, result: Any) -> bool:
        """The fold's answer to a command of this id. False when nobody waits for it."""
        asked = self._asked.get(name)
        if asked is None or asked.future.done():
            return False
        asked.future.set_result(result)
        return True

    def fail(self, name: str, error: Exception) -> None:
        asked = self._asked.get(name)
        if asked is not None and not asked.future.done():
            asked.future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        for name in list(self._asked):
            self.fail(name, error)

    def send_again(self) -> None:
        """The connection is new: what was sent over the old one may be lost."""
        for asked in self._asked.values():
            asked.again_at = 0.0

    async def _publish(self, asked: PendingCommand, reply: str) -> None:
        """Send it, unless the connection takes nothing: then it is sent again later."""
        if self._link.clogged:
            return
        # Without headers: every process would have to parse those of every command.
        try:
            await self._link.client.publish(self._subject, asked.payload, reply=reply)
        except Exception as error:
            if not faults.is_lost(error):
                raise self._link.told(error, f"{asked.name} on {self._link.settings.shown}") from error

    async def _on_answer(self, message: Any) -> None:
        """The server's answer to an append. Only refusals matter: what was appended comes back by itself."""
        data = message.data
        if data and b'"error"' not in data:
            return
        name = f"{self._prefix}{message.subject.rpartition('.')[2]}"
        asked = self._asked.get(name)
        if asked is None:
            return
        if not data:  # no responders: the stream has no leader at the moment
            self._soon_again(asked)
            return
        refused = ApiError(json.loads(data)["error"])
        if refused.number in faults.PASSING:
            self._soon_again(asked)
        else:
            where = f"{asked.name} on {self._link.settings.shown}"
            self.fail(name, faults.translate(refused, where, self._link.settings.secrets))

    def _soon_again(self, asked: PendingCommand) -> None:
        asked.pause = asked.pause or Backoff(self._link.random, first_s=0.05, most_s=0.5)
        asked.again_at = self._link.clock.monotonic() + asked.pause.next()

    async def look_after(self) -> None:
        """For ever: end what is past its deadline, then send again what did not come back."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = self._link.clock.monotonic()
            for name, asked in list(self._asked.items()):
                if now >= asked.end:
                    self.fail(name, self._link.no_answer(f"{asked.name} on {self._link.settings.shown}"))
            for name, asked in list(self._asked.items()):
                if self._link.client.is_connected and now >= asked.again_at and not asked.future.done():
                    asked.again_at = now + _AND_AGAIN_S
                    await self._send_again(name, asked)

    async def _send_again(self, name: str, asked: PendingCommand) -> None:
        try:
            await self._publish(asked, f"{self._inbox}.{name.rpartition('.')[2]}")
        except TenureError as error:
            self.fail(name, error)
