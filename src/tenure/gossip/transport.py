"""How a node's datagrams and streams travel: UDP and TCP on one port, on asyncio.

Knows no messages but how to read one from a stream. Another transport (the simulator's) has the same methods.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable

from tenure.errors import ConfigurationError, WireError
from tenure.gossip.messages import Address
from tenure.gossip.stream import StreamInbox, StreamMessage

PacketHandler = Callable[[Address, bytes], None]
StreamHandler = Callable[[Address, StreamMessage], bytes | None]
Inbox = Callable[[bool], StreamInbox]
"""A fresh inbox; True when the peer opened the stream."""

READ_BYTES = 64 * 1024
DATAGRAMS_AT_ONCE = 64
RECEIVE_BUFFER_BYTES = 2 * 1024 * 1024
MAX_STREAMS = 128
BIND_ATTEMPTS = 16


class GossipTransport(ABC):
    """A node's place in the network."""

    @abstractmethod
    async def open(
        self,
        *,
        packets: PacketHandler,
        streams: StreamHandler,
        stream_failed: Callable[[], object],
        inbox: Inbox,
        stream_timeout_s: float,
    ) -> Address:
        """Start to listen; gives the address at which we listen."""

    @abstractmethod
    def send(self, to: Address, data: bytes) -> None:
        """Send a datagram and hope. Raises `OSError` when our own machine refuses."""

    @abstractmethod
    async def exchange(self, to: Address, data: bytes, *, timeout_s: float) -> StreamMessage:
        """Open a stream, send, and give the one message that comes back. `OSError`, `TimeoutError` or `WireError`."""

    @abstractmethod
    async def close(self) -> None:
        """Stop listening, and wait until nothing is under way."""


class UdpTcpTransport(GossipTransport):
    """Sockets. The datagram socket is read until it is empty: after a pause, answers that wait are heard at once."""

    def __init__(self, bind: Address = ("127.0.0.1", 0)) -> None:
        self._bind = bind
        self._udp: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._streams: set[asyncio.Task[None]] = set()
        self._packets: PacketHandler | None = None
        self._answer: StreamHandler | None = None
        self._inbox: Inbox | None = None
        self._timeout_s = 10.0
        self._stream_failed: Callable[[], object] = lambda: None

    async def open(
        self,
        *,
        packets: PacketHandler,
        streams: StreamHandler,
        stream_failed: Callable[[], object],
        inbox: Inbox,
        stream_timeout_s: float,
    ) -> Address:
        self._packets, self._answer, self._inbox = packets, streams, inbox
        self._stream_failed = stream_failed
        self._timeout_s = stream_timeout_s
        udp, tcp = _bind_both(*self._bind)
        self._udp = udp
        self._server = await asyncio.start_server(self._accept, sock=tcp)
        asyncio.get_running_loop().add_reader(udp.fileno(), self._read_packets)
        host, port = udp.getsockname()[:2]
        return str(host), int(port)

    def send(self, to: Address, data: bytes) -> None:
        if self._udp is None:
            raise OSError("the gossip transport is closed")
        with contextlib.suppress(BlockingIOError):  # the buffer is full: a datagram may be lost, and this one is
            self._udp.sendto(data, to)

    def _read_packets(self) -> None:
        udp, packets = self._udp, self._packets
        assert udp is not None
        assert packets is not None
        for _ in range(DATAGRAMS_AT_ONCE):
            try:
                data, source = udp.recvfrom(READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue  # an ICMP error of an earlier send; the probe that it belonged to finds out
            packets((source[0], source[1]), data)
            if self._udp is not udp:  # closed by what it heard
                return

    async def exchange(self, to: Address, data: bytes, *, timeout_s: float) -> StreamMessage:
        if self._inbox is None:
            raise OSError("the gossip transport is closed")
        return await stream_exchange(to, data, self._inbox(False), timeout_s=timeout_s)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            if len(self._streams) <= MAX_STREAMS:
                async with asyncio.timeout(self._timeout_s):
                    await self._serve(reader, writer)
        except (OSError, WireError, TimeoutError):
            self._stream_failed()
        except asyncio.CancelledError:
            # We are closing. asyncio reports a cancelled handler of a server as an error, so it ends here.
            pass
        finally:
            self._streams.discard(task)
            await _hang_up(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._inbox is not None
        assert self._answer is not None
        peer = writer.get_extra_info("peername")
        message = await _read_message(reader, self._inbox(True))
        answer = self._answer((peer[0], peer[1]), message)
        if answer is not None:
            writer.write(answer)
            await writer.drain()

    async def close(self) -> None:
        if self._udp is not None:
            asyncio.get_running_loop().remove_reader(self._udp.fileno())
            self._udp.close()
            self._udp = None
        if self._server is not None:
            self._server.close()
            for task in self._streams:
                task.cancel()
            if self._streams:
                await asyncio.wait(self._streams, timeout=self._timeout_s)
            await self._server.wait_closed()
            self._server = None


async def stream_exchange(to: Address, data: bytes, inbox: StreamInbox, *, timeout_s: float) -> StreamMessage:
    """Open a stream, send, and give the one message that comes back."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(*to)
        try:
            writer.write(data)
            await writer.drain()
            return await _read_message(reader, inbox)
        finally:
            await _hang_up(writer)


async def _read_message(reader: asyncio.StreamReader, inbox: StreamInbox) -> StreamMessage:
    while True:
        data = await reader.read(READ_BYTES)
        if not data:
            raise WireError(f"a stream ended after {inbox.received} bytes, before its message was complete")
        message = inbox.feed(data)
        if message is not None:
            return message


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


def _bind_both(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """UDP and TCP on one port; where any port will do, one that is free for both."""
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    for attempt in range(BIND_ATTEMPTS):
        tcp = socket.socket(family, socket.SOCK_STREAM)
        udp = socket.socket(family, socket.SOCK_DGRAM)
        try:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind((host, port))
            udp.bind((host, tcp.getsockname()[1]))
        except OSError as error:
            tcp.close()
            udp.close()
            if port != 0 or attempt == BIND_ATTEMPTS - 1:
                raise ConfigurationError(
                    f"gossip cannot listen on {host}:{port}: {error.strerror or error}",
                    remedy="Stop what listens there, or choose another port (0 for any)",
                ) from error
            continue
        udp.setblocking(False)
        tcp.setblocking(False)
        with contextlib.suppress(OSError):
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        return udp, tcp
    raise AssertionError("unreachable")
