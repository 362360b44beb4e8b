"""A TCP proxy that breaks connections the way networks do, at the moment a test chooses.

    with FaultProxy(server.host, server.port) as proxy:
        engine = Engine.open(server.url_of("db", port=proxy.port))
        proxy.cut_answer(b"tenure.send")     # the server does it, and the client never hears of it
        ...
        assert proxy.fired == 1              # the fault was met: the test did not pass by missing it

It runs in a thread with a loop of its own. Bytes are not understood, only searched, so it serves every protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Fault(StrEnum):
    """What happens to the first request that matches."""

    BEFORE_REQUEST = "before request"  # the server never sees it
    MID_REQUEST = "mid request"  # the server sees half of it
    AFTER_REQUEST = "after request"  # the server gets it whole; the client's connection is reset at once
    BEFORE_ANSWER = "before answer"  # the server has answered, and the answer is thrown away


@dataclass
class Trap:
    fault: Fault
    matching: bytes
    times: int


@dataclass(eq=False)
class Link:
    """One client's connection and ours to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    tail: bytes = b""  # the end of the last chunk, for a match that is split over two
    swallow_answer: bool = False  # the next answer is thrown away, and then both sides are reset
    mute: bool = False  # answers are thrown away
    abandoned: bool = False  # nothing of either side arrives any more, and nobody is told
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def reset(self) -> None:
        """RST to both sides: no goodbye, as when a machine vanishes and its address answers for it."""
        for writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class FaultProxy:
    """Listens on a free port of the loopback address and forwards to one server."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.host, self.port = "127.0.0.1", 0
        self.connections = 0
        """Accepted since the start."""
        self.fired = 0
        """Faults that met a request."""
        self.chunks = 0
        """Pieces of data that came from either side: a caller that waits for a server adds none."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._links: set[Link] = set()
        self._traps: list[Trap] = []
        self._delay_s = 0.0
        self._refusing = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None

    def start(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def stop(self) -> None:
        if self._loop.is_closed():
            return
        self._do(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    # Faults that last until heal().

    def delay(self, seconds: float) -> None:
        """Hold each chunk, in both directions, for this long."""
        self._run(lambda: setattr(self, "_delay_s", seconds))

    def partition(self) -> None:
        """Let nothing through, in silence: connections stay open, also new ones, and no byte arrives."""
        self._run(self._flowing.clear)

    def refuse(self) -> None:
        """Reset every connection, and each new one as soon as it is made."""

        def begin() -> None:
            self._refusing = True
            self._reset_all()

        self._run(begin)

    def heal(self) -> None:
        """End delay, partition and refusal, and take traps away. What a partition held back is delivered now."""

        def mend() -> None:
            self._delay_s, self._refusing = 0.0, False
            self._traps.clear()
            self._flowing.set()

        self._run(mend)

    # Faults of one moment.

    def reset(self) -> None:
        """Reset all connections that are open now; new ones are welcome."""
        self._run(self._reset_all)

    def drop(self) -> None:
        """Forget everything that a partition holds back, by resetting its connections, and let new ones through."""

        def forget() -> None:
            self._reset_all()
            self._flowing.set()

        self._run(forget)

    def abandon(self) -> None:
        """Make the connections that are open now half-open: each stays, and no byte ever arrives. New ones are welcome."""

        def forsake() -> None:
            for link in self._links:
                link.abandoned = True

        self._run(forsake)

    def cut_request(self, matching: bytes = b"", *, times: int = 1) -> None:
        """Reset instead of forwarding the next request that contains these bytes."""
        self._trap(Fault.BEFORE_REQUEST, matching, times)

    def cut_mid_request(self, matching: bytes = b"", *, times: int = 1) -> None:
        """Forward half of the next request that contains these bytes, then reset."""
        self._trap(Fault.MID_REQUEST, matching, times)

    def cut_after_request(self, matching: bytes = b"", *, times: int = 1) -> None:
        """Forward the next request that contains these bytes, then reset the client without waiting for the answer."""
        self._trap(Fault.AFTER_REQUEST, matching, times)

    def cut_answer(self, matching: bytes = b"", *, times: int = 1) -> None:
        """Forward the next request that contains these bytes, wait for the server's answer, throw it away and reset."""
        self._trap(Fault.BEFORE_ANSWER, matching, times)

    def _trap(self, fault: Fault, matching: bytes, times: int) -> None:
        self._run(lambda: self._traps.append(Trap(fault, matching, times)))

    # The loop's side.

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        assert self._server is not None
        self._server.close()
        self._refusing = True  # whoever is half-way in turns round
        self._delay_s = 0.0
        self._flowing.set()
        self._reset_all()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if rest:
            await asyncio.wait(rest, timeout=5)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        link = Link(writer, writer)
        self._links.add(link)
        try:
            if self._refusing:
                link.reset()
                return
            await self._flowing.wait()
            upstream, link.server = await asyncio.open_connection(*self.target)
            if self._refusing or writer.transport.is_closing():
                link.reset()
                return
            link.tasks = [
                asyncio.ensure_future(self._requests(reader, link)),
                asyncio.ensure_future(self._answers(upstream, link)),
            ]
            await asyncio.wait(link.tasks, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            link.reset()  # the server is down: the client sees what it would see without us
        finally:
            self._links.discard(link)
            for task in link.tasks:
                task.cancel()
            await asyncio.gather(*link.tasks, return_exceptions=True)
            for side in (link.client, link.server):
                side.close()

    async def _requests(self, reader: asyncio.StreamReader, link: Link) -> None:
        while chunk := await self._chunk(reader, link):
            trap = self._sprung(link, chunk)
            if trap is None:
                await _send(link.server, chunk)
                continue
            if trap.fault is Fault.MID_REQUEST:
                await _send(link.server, chunk[: max(1, len(chunk) // 2)])
            elif trap.fault is not Fault.BEFORE_REQUEST:
                # Set before the request leaves, so that not even an instant answer gets through.
                link.swallow_answer = trap.fault is Fault.BEFORE_ANSWER
                link.mute = trap.fault is Fault.AFTER_REQUEST
                await _send(link.server, chunk)
            if trap.fault is Fault.BEFORE_ANSWER:
                continue
            if trap.fault is Fault.AFTER_REQUEST:
                await asyncio.sleep(0.01)  # an RST overtakes bytes that the server has not read yet
            self.fired += 1
            link.reset()
            return

    async def _answers(self, reader: asyncio.StreamReader, link: Link) -> None:
        while chunk := await self._chunk(reader, link):
            if link.swallow_answer:
                self.fired += 1
                link.reset()
                return
            if not link.mute:
                await _send(link.client, self.changed(chunk))

    def changed(self, chunk: bytes) -> bytes:
        """Returns what the client gets instead of this piece of an answer. A proxy of another kind may change it."""
        return chunk

    async def _chunk(self, reader: asyncio.StreamReader, link: Link) -> bytes:
        """The next bytes; none when the side went away."""
        try:
            chunk = await reader.read(65_536)
            while chunk and link.abandoned:
                chunk = await reader.read(65_536)
        except OSError:
            return b""
        self.chunks += 1
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        await self._flowing.wait()
        return chunk

    def _sprung(self, link: Link, chunk: bytes) -> Trap | None:
        seen = link.tail + chunk
        longest = max((len(trap.matching) for trap in self._traps), default=0)
        link.tail = seen[-(longest - 1) :] if longest > 1 else b""
        for trap in self._traps:
            if trap.matching in seen:
                trap.times -= 1
                if trap.times <= 0:
                    self._traps.remove(trap)
                link.tail = b""
                return trap
        return None

    def _reset_all(self) -> None:
        for link in list(self._links):
            link.reset()

    # The caller's side.

    def _run(self, act: Callable[[], object]) -> None:
        async def wrapped() -> None:
            act()

        self._do(wrapped())

    def _do(self, work: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        """Run it on the proxy's loop and wait for it, so that the fault is in force when the call returns."""

        async def wrapped() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(wrapped(), self._loop).result(timeout=10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


async def _send(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    with contextlib.suppress(OSError):
        writer.write(chunk)
        await writer.drain()
