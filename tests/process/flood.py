"""Many connections at once that send something and never finish it: what a stranger, or a broken client, can do to an open port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

CHUNK = 16 << 10


class Unfinished(NamedTuple):
    """One kind of connection: what it sends first, what it goes on with, and when it falls silent."""

    first: bytes
    rest: Callable[[int], bytes]
    """Given how much was sent, the next piece."""
    most: int


class Flood:
    """`count` connections to one port. `async with` opens them; they go on sending inside it."""

    def __init__(self, port: int, count: int, kind: Unfinished) -> None:
        self._port, self._count, self._kind = port, count, kind
        self._tasks: list[asyncio.Task[None]] = []
        self.connected = self.sent = self.refused = 0

    async def __aenter__(self) -> Flood:
        self._tasks = [asyncio.create_task(self._one()) for _ in range(self._count)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until_connected(self) -> None:
        """Returns when each connection was accepted or refused."""
        while self.connected < self._count:
            await asyncio.sleep(0.05)

    async def until_settled(self) -> None:
        """Returns when nothing more can be sent: it is all there, or refused, or held up by the other side."""
        await self.until_connected()
        before = -1
        while before != self.sent:
            before = self.sent
            await asyncio.sleep(0.5)

    async def _one(self) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            # Kept, even if nobody reads it: a reader that is garbage aborts its connection.
            _reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            self.connected += 1
            writer.transport.set_write_buffer_limits(high=1)
            writer.write(self._kind.first)
            sent = len(self._kind.first)
            while sent < self._kind.most:
                piece = self._kind.rest(sent)
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
                self.sent += len(piece)
            await asyncio.Event().wait()
        except OSError:
            self.refused += 1
            if writer is None:
                self.connected += 1
        finally:
            if writer is not None:
                with suppress(OSError):
                    writer.transport.abort()
