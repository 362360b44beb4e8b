"""The sockets of a gossip node: UDP and TCP on one port, on asyncio.

The transport knows no messages, but how to read one from a stream. The simulator has a transport of its own with the same methods.

The listeners of a gossip node. An error in one of them is logged, and harms neither the others nor the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator

from tenure.byte_budget import ByteBudget
from tenure.errors import ConfigurationError, WireError
from tenure.gossip.messages import Address
from tenure.gossip.state import Event, HealthEvent, PoolWarning
from tenure.gossip.stream import StreamInbox, StreamMessage
from tenure.health.node_states import HealthPiggyback


async def resolve(address: Address) -> list[Address]:
    """Returns the IP addresses of a host, which may be one already. Returns none where the name is unknown."""
    host, port = address
    try:
        return [(ipaddress.ip_address(host).compressed, port)]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys((str(entry[4][0]), port) for entry in found))


PacketHandler = Callable[[Address, bytes], None]
StreamHandler = Callable[[Address, StreamMessage], bytes | None]
Inbox = Callable[[bool], StreamInbox]
"""Makes an inbox for one stream. Its argument is True when the peer opened the stream."""

READ_BYTES = 64 * 1024
DATAGRAMS_AT_ONCE = 64
RECEIVE_BUFFER_BYTES = 2 * 1024 * 1024
STREAM_READ_BYTES = 16 * 1024
STREAM_BUFFER_BYTES = 64 * 1024
"""The kernel's buffer of an accepted stream: asyncio reads all that is there at once, before we can say no."""
MAX_STREAMS = 128
MAX_STREAMS_EACH = 64
"""Accepted streams of one address at once. Many nodes may share an address; none needs more than one at a time."""
MAX_HELD_BYTES = 16 * 1024 * 1024
"""For all streams together: what has arrived of their messages, and answers that were not taken yet."""
STEP_PAUSE_S = 0.01
"""The pause after a step of parsing, which takes about 3 ms."""
BIND_ATTEMPTS = 16


class GossipTransport(ABC):
    """Sends and receives a node's datagrams and streams. All methods are called on the event loop's thread."""

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
        """Starts to listen. Returns the address at which it listens."""

    @abstractmethod
    def send(self, to: Address, data: bytes) -> None:
        """Sends a datagram, which may be lost. Raises `OSError` when our own machine refuses it."""

    @abstractmethod
    async def exchange(self, to: Address, data: bytes, *, timeout_s: float) -> StreamMessage:
        """Opens a stream, sends, and returns the one message that comes back. Raises `OSError`, `TimeoutError` or `WireError`."""

    @abstractmethod
    async def close(self) -> None:
        """Stops listening, and waits until nothing is under way."""


class UdpTcpTransport(GossipTransport):
    """Uses real sockets."""

    def __init__(self, bind: Address = ("127.0.0.1", 0)) -> None:
        self._bind = bind
        self._udp: socket.socket | None = None
        self._server: asyncio.Server | None = None
        # The streams that peers opened, oldest first, with the peer's address; empty for one that was ended to make room.
        self._streams: dict[asyncio.Task[None], str] = {}
        self._budget = StreamBudget()
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
        self._server = await asyncio.start_server(self._accept, sock=tcp, limit=STREAM_READ_BYTES)
        asyncio.get_running_loop().add_reader(udp.fileno(), self._read_packets)
        host, port = udp.getsockname()[:2]
        return str(host), int(port)

    def send(self, to: Address, data: bytes) -> None:
        if self._udp is None:
            raise OSError("the gossip transport is closed")
        with contextlib.suppress(BlockingIOError):  # the buffer is full; a datagram may be lost, and this one is
            self._udp.sendto(data, to)

    def _read_packets(self) -> None:
        """Reads the datagrams that wait. After a pause of this process, answers that waited are so heard before any deadline is judged."""
        udp, packets = self._udp, self._packets
        assert udp is not None
        assert packets is not None
        for _ in range(DATAGRAMS_AT_ONCE):
            try:
                data, source = udp.recvfrom(READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue  # an ICMP error of an earlier send; the probe that it belongs to will find out
            packets((source[0], source[1]), data)
            if self._udp is not udp:  # the handler closed the transport
                return

    async def exchange(self, to: Address, data: bytes, *, timeout_s: float) -> StreamMessage:
        if self._inbox is None:
            raise OSError("the gossip transport is closed")
        return await stream_exchange(to, data, self._inbox(False), timeout_s=timeout_s, budget=self._budget)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one stream that a peer opened. asyncio runs it as a task."""
        task = asyncio.current_task()
        assert task is not None
        peer: Address = writer.get_extra_info("peername")[:2]
        self._streams[task] = peer[0]
        self._make_room(peer[0])
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                with self._budget.stream(peer, deadline) as held:
                    await self._serve(peer, reader, writer, held)
        except (OSError, WireError, TimeoutError):
            self._stream_failed()
        except asyncio.CancelledError:
            # We are closing, or make room. asyncio reports a cancelled handler of a server as an error, so it ends here.
            pass
        finally:
            self._streams.pop(task, None)
            await _hang_up(writer)

    def _make_room(self, newcomer: str) -> None:
        """Ends the oldest stream of an address that has too many, or of the one with most where all together are too many.

        An honest stream takes milliseconds, so a flood from its own address ends its own streams before that one.
        """
        addresses = Counter(self._streams.values())
        del addresses[""]
        if addresses[newcomer] > MAX_STREAMS_EACH:
            crowded = newcomer
        elif addresses.total() > MAX_STREAMS:
            crowded = addresses.most_common(1)[0][0]
        else:
            return
        oldest = next(task for task, address in self._streams.items() if address == crowded)
        self._streams[oldest] = ""
        self._stream_failed()
        oldest.cancel()

    async def _serve(
        self, peer: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held: HeldStream
    ) -> None:
        assert self._inbox is not None
        assert self._answer is not None
        message = await _read_message(reader, self._inbox(True), held, self._budget)
        answer = self._answer(peer, message)
        if answer is not None:
            held.hold(len(answer))  # until the peer has taken it
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


class StreamBudget:
    """Bounds the memory of all streams of a node together, and lets them take turns at the parser."""

    def __init__(self, most: int = MAX_HELD_BYTES) -> None:
        self._bytes: ByteBudget[HeldStream] = ByteBudget(most)
        # One stream parses one step in one round of the event loop. A hundred that each took a step would make it late by a second.
        self._turn = asyncio.Lock()
        # Held by the stream that takes a further step, over the pause after it. The first step of a stream does not wait for it: an honest message
        # needs one step, and is heard while large ones take theirs.
        self._further = asyncio.Lock()

    async def first_step(self, inbox: StreamInbox, held: HeldStream, data: bytes) -> StreamMessage | None:
        """Parses one step of a message, in a round of the loop in which no other stream does."""
        async with self._turn:
            message = inbox.feed(data)
            held.hold(inbox.held_bytes)
            # Within the turn, so that the next stream takes its turn in another round of the loop.
            await asyncio.sleep(0)
        return message

    async def further_step(self, inbox: StreamInbox, held: HeldStream, data: bytes) -> StreamMessage | None:
        """Does the same, and pauses where more steps follow, so that large messages take at most a quarter of the loop's time together."""
        async with self._further:
            message = await self.first_step(inbox, held, data)
            if message is None and inbox.has_work:
                await asyncio.sleep(STEP_PAUSE_S)
        return message

    @contextlib.contextmanager
    def stream(self, peer: Address, deadline: asyncio.Timeout) -> Iterator[HeldStream]:
        """Counts one stream for as long as the block lasts. `deadline` is the one that the block is in."""
        stream = HeldStream(self._bytes, peer[0], deadline)
        try:
            yield stream
        finally:
            self._bytes.release(stream)


class HeldStream:
    """One stream and the memory that it takes."""

    def __init__(self, budget: ByteBudget[HeldStream], owner: str, deadline: asyncio.Timeout) -> None:
        self._budget, self._owner, self._deadline = budget, owner, deadline
        self._gave_way = False

    def hold(self, size: int) -> None:
        """Sets the memory that the stream takes. Raises `WireError` where the stream has to make room for others."""
        for loser in self._budget.hold(self, self._owner, size):
            loser.give_way()
        if self._gave_way:
            raise WireError(f"the streams of this node hold more than {self._budget.most} bytes")

    def give_way(self) -> None:
        """Ends the stream: its reader gets a `TimeoutError`."""
        self._gave_way = True
        if not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())


async def stream_exchange(
    to: Address, data: bytes, inbox: StreamInbox, *, timeout_s: float, budget: StreamBudget | None = None
) -> StreamMessage:
    """Opens a stream, sends, and returns the one message that comes back. `budget` is that of the node, if the caller is one."""
    budget = budget or StreamBudget()
    async with asyncio.timeout(timeout_s) as deadline:
        reader, writer = await asyncio.open_connection(*to, limit=STREAM_READ_BYTES)
        try:
            with budget.stream(to, deadline) as held:
                writer.write(data)
                await writer.drain()
                return await _read_message(reader, inbox, held, budget)
        finally:
            await _hang_up(writer)


async def _read_message(
    reader: asyncio.StreamReader, inbox: StreamInbox, held: HeldStream, budget: StreamBudget
) -> StreamMessage:
    data, step = b"", budget.first_step
    while True:
        if not inbox.has_work:
            data = await reader.read(STREAM_READ_BYTES)
            if not data:
                raise WireError(f"a stream ended after {inbox.received} bytes, before its message was complete")
        message = await step(inbox, held, data)
        if message is not None:
            return message
        data, step = b"", budget.further_step


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
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STREAM_BUFFER_BYTES)
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


log = logging.getLogger("tenure.gossip")

EventListener = Callable[[Event], object]
HealthListener = Callable[[str, HealthPiggyback], object]


class GossipListeners:
    """Calls listeners with events, in the order in which they were added."""

    def __init__(self) -> None:
        self._events: list[EventListener] = []
        self._health: list[HealthListener] = []

    def add(self, listener: EventListener) -> Callable[[], None]:
        """Calls `listener` with every event. Returns a function that ends this."""
        self._events.append(listener)
        return lambda: self._events.remove(listener)

    def add_health(self, listener: HealthListener) -> Callable[[], None]:
        """Calls `listener` with the node and its health when it has changed. Returns a function that ends this."""
        self._health.append(listener)
        return lambda: self._health.remove(listener)

    def publish(self, event: Event) -> None:
        """Gives an event to the listeners. Warnings go to the log as well."""
        if isinstance(event, PoolWarning):
            log.warning("%s: %s: %s", event.complaint, event.node, event.why)
        for listener in self._events:
            _call(listener, event)
        if isinstance(event, HealthEvent):
            for health_listener in self._health:
                _call(health_listener, event.node, event.health)


def _call(listener: Callable[..., object], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:
        log.exception("a gossip listener raised")
