"""Links between the nodes of a demo that can be cut: every node is reached through a relay that knows who asks, by the address it speaks from.

A cut link is a black hole, as a cut cable is: connections stay open and no byte arrives. When it is mended, what hung on it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Self

from tenure.errors import PortTakenError


class Relay:
    """One node's address for everybody else; where the node itself listens may be told later."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.target: tuple[str, int] | None = None
        self.home = ""
        """The loopback address of the node behind it."""


class Switchboard:
    """All relays, in a thread of its own. Safe to use from another."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="switchboard", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._cuts: set[tuple[str, str]] = set()
        self._deaf: set[tuple[str, Relay]] = set()
        self._delays: dict[tuple[str, str], float] = {}
        self._lines: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def relay(self, host: str, home: str, port: int = 0) -> Relay:
        """A port of `host`, a free one by default, that stands for a node which speaks from `home`."""
        try:
            return asyncio.run_coroutine_threadsafe(self._listen(host, home, port), self._loop).result(10)
        except OSError as error:
            raise PortTakenError("the gate", host, port, str(error)) from error

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between these two addresses, either way."""
        self._loop.call_soon_threadsafe(self._cuts.update, {(one, other), (other, one)})

    def hush(self, one: str, other: str) -> None:
        """What `one` asks of `other` passes no more; what `other` asks of it, and the answers, do."""
        self._loop.call_soon_threadsafe(self._cuts.add, (one, other))

    def deafen(self, one: str, relay: Relay) -> None:
        """What `one` asks of this node passes no more."""
        self._loop.call_soon_threadsafe(self._deaf.add, (one, relay))

    def slow(self, one: str, other: str, seconds: float) -> None:
        """Between these two, everything takes so long, each way."""
        self._loop.call_soon_threadsafe(self._delays.update, {(one, other): seconds, (other, one): seconds})

    def mend(self, one: str, other: str) -> None:
        self._loop.call_soon_threadsafe(self._mend, one, other)

    def _mend(self, one: str, other: str) -> None:
        ends = {(one, other), (other, one)}
        self._cuts -= ends
        self._deaf = {(asker, relay) for asker, relay in self._deaf if (asker, relay.home) not in ends}
        for line in ends:
            self._delays.pop(line, None)
        for task, line in list(self._lines.items()):
            if line in ends:
                task.cancel()

    async def _listen(self, host: str, home: str, port: int) -> Relay:
        relay = Relay("")
        relay.home = home

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            line = (writer.get_extra_info("peername")[0], relay.home)
            self._lines[task] = line
            self._writers.add(writer)
            try:
                await self._carry(relay, line, reader, writer)
            except (OSError, EOFError, asyncio.CancelledError):
                pass
            finally:
                self._lines.pop(task, None)
                self._writers.discard(writer)
                writer.close()

        server = await asyncio.start_server(serve, host, port)
        self._servers.append(server)
        relay.address = f"{host}:{server.sockets[0].getsockname()[1]}"
        return relay

    async def _carry(
        self, relay: Relay, line: tuple[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._passable(line, relay)
        if relay.target is None:
            return  # nobody is there yet: as a port that refuses
        far_reader, far_writer = await asyncio.open_connection(*relay.target)
        try:
            both = (self._pump(line, relay, reader, far_writer), self._pump(line, relay, far_reader, writer))
            tasks = [asyncio.ensure_future(one) for one in both]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            far_writer.close()

    async def _pump(
        self, line: tuple[str, str], relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65_536):
            await self._passable(line, relay)
            writer.write(data)
            await writer.drain()

    async def _passable(self, line: tuple[str, str], relay: Relay) -> None:
        if delay_s := self._delays.get(line):
            await asyncio.sleep(delay_s)
        if line in self._cuts or (line[0], relay) in self._deaf:
            await asyncio.Event().wait()  # until mending closes it

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._lines):
            task.cancel()
        for writer in list(self._writers):
            with contextlib.suppress(OSError):
                writer.close()
        await asyncio.sleep(0.05)
